"""Which attention is cuDNN's, and calls as JAX writes them; tests/accelerator/cuda.py runs it."""

from __future__ import annotations

import json
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from jax._src.cudnn import fused_attention_stablehlo as of_jax
from jax._src.interpreters import mlir
from jax._src.lib.mlir import ir

from xla_dynamo.backend import options
from xla_dynamo.backend.lowering.registry import Target, lowering_for
from xla_dynamo.backend.lowering.rules.cuda import attention
from xla_dynamo.backend.passes.contract import target_of
from xla_dynamo.backend.runtime import gpu_order

SHAPE = (2, 4, 256, 64)


def lowered(
    query: tuple[int, ...] = SHAPE,
    key: tuple[int, ...] = SHAPE,
    mask: tuple[tuple[int, ...], Any] | None = None,
    dtype: Any = jnp.bfloat16,
    choice: str = "auto",
    *,
    is_causal: bool = False,
) -> str:
    """StableHLO for CUDA of forward and backward."""
    q, k = jax.ShapeDtypeStruct(query, dtype), jax.ShapeDtypeStruct(key, dtype)
    masks = [] if mask is None else [jax.ShapeDtypeStruct(*mask)]

    def both(q: Any, k: Any, v: Any, grad: Any, *masks: Any) -> Any:
        how = {"attn_mask": masks[0] if masks else None}
        with lowering_for(Target("cuda", attention=choice)):
            out, lse = attention.flash_attention(q, k, v, 0.0, is_causal, **how)
            given = grad, q, k, v, out, lse, 0.0, is_causal
            return out, lse, attention.flash_attention_backward(*given, **how)

    traced = jax.jit(both).trace(q, k, k, q, *masks)
    return traced.lower(lowering_platforms=("cuda",)).as_text()


def calls(text: str) -> list[str]:
    return re.findall(r"custom_call @(\S+?)\(", text)


ODD = (2, 4, 255, 64)
KERNEL: dict[str, dict[str, Any]] = {
    "plain": {},
    "float16": {"dtype": jnp.float16},
    "causal": {"is_causal": True},
    "shared heads": {"key": (2, 2, 256, 64)},
    "other keys": {"key": (2, 4, 1024, 64)},
    "odd lengths": {"query": ODD, "key": ODD},
    "short, as chosen": {"query": (2, 4, 16, 64), "key": (2, 4, 16, 64), "choice": "kernel"},
}
XLA: dict[str, dict[str, Any]] = {
    "float32": {"dtype": np.float32},
    "short": {"query": (2, 4, 16, 64), "key": (2, 4, 16, 64)},
    "as chosen": {"choice": "xla"},
    "features": {"query": (2, 4, 256, 20), "key": (2, 4, 256, 20)},
    "causal, other keys": {"key": (2, 4, 1024, 64), "is_causal": True},
    "odd lengths, mask": {"query": ODD, "key": ODD, "mask": ((2, 1, 1, 255), np.bool_)},
}


@pytest.mark.parametrize("name", KERNEL)
def test_cudnn_computes(name: str) -> None:
    found = calls(lowered(**KERNEL[name]))
    assert found == ["__cudnn$fmhaSoftmax", "__cudnn$fmhaSoftmaxBackward"]


@pytest.mark.parametrize("dtype", [np.bool_, jnp.bfloat16])
@pytest.mark.parametrize("shape", [(256, 256), (2, 1, 1, 256), (1, 4, 256, 256)])
def test_a_mask_is_added(shape: tuple[int, ...], dtype: Any) -> None:
    text = lowered(mask=(shape, dtype))
    kinds = ["__cudnn$fmhaScaleBiasSoftmax", "__cudnn$fmhaScaleBiasSoftmaxBackward"]
    assert calls(text) == kinds
    leading = "x".join(map(str, (1,) * (4 - len(shape)) + shape[:-2]))
    for line in text.splitlines():
        if "custom_call" in line:
            assert f"tensor<{leading}x256x256xbf16>" in line


@pytest.mark.parametrize("name", XLA)
def test_xla_multiplies(name: str) -> None:
    assert not calls(lowered(**XLA[name]))


@pytest.mark.parametrize("is_causal", [False, True])
def test_the_configuration_is_that_of_jax(is_causal: bool) -> None:
    """JAX's own code writes what XLA:GPU of the same version reads."""
    call = attention.Call(2, 4, 256, 128, "BF16", is_causal, has_mask=False, scale=0.25)
    kind = of_jax.MaskType.CAUSAL if is_causal else of_jax.MaskType.NO_MASK
    with mlir.make_ir_context():
        number = ir.BF16Type.get()
        for direction in ("", "Backward"):
            layout = of_jax.AttentionLayout.BTNH.value
            sizes = 2, 4, 256, 128, number, 0.25, 0, 0.0, kind, layout, None, 1, False
            text = of_jax.create_dot_product_attention_backend_config(
                *sizes, direction == "Backward"
            )
            wanted = json.loads(text)
            shape = wanted["cudnn_fmha_backend_config"]["intermediate_tensor_shape"]
            shape["layout"] = {"minor_to_major": shape["layout"]["minor_to_major"]}
            del shape["tuple_shapes"]  # what is left out are defaults
            assert json.loads(call.config(direction)) == wanted


def test_older_gpus_multiply(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = options.parse({"attention": "kernel"}, None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    for capability, choice in (((7, 5), "xla"), ((8, 0), "kernel"), ((12, 0), "kernel")):
        gpu_order.has_attention.cache_clear()
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda of=capability: of)
        assert target_of(chosen, "cuda").attention == choice
    gpu_order.has_attention.cache_clear()
