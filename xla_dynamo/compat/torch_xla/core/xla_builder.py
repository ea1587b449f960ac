"""torch_xla.core.xla_builder: programs written with XLA's builder, which is not here.

`call_jax`, which most of its users want, is: it takes and gives xla tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import torch
from torch.utils import _pytree as pytree

from xla_dynamo.backend.jax_adapter import apart
from xla_dynamo.compat.execution import sync
from xla_dynamo.compat.values import values
from xla_dynamo.errors import NotAvailable


def call_jax(
    jax_func: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None = None,
    name: str | None = None,
    override_hash: str | None = None,
) -> Any:
    """jax_func of the arrays behind xla tensors: jitted, run now, its results as xla tensors.

    No gradients flow through it.
    """
    tensors = [t for t in pytree.tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
    if not tensors:
        raise ValueError("call_jax takes at least one xla tensor")
    home = values.value_of(tensors[0].detach()).home

    def into(item: Any) -> Any:
        return sync.materialize(values.value_of(item.detach()))

    def out(array: Any) -> torch.Tensor:
        host = torch.from_dlpack(array) if array.dtype != jax.numpy.bfloat16 else None
        dtype = torch.bfloat16 if host is None else host.dtype
        meta = values.meta(torch.Size(array.shape), dtype)
        return values.tensor(values.Value(meta, home, array=array))

    inputs = pytree.tree_map_only(torch.Tensor, into, (args, dict(kwargs or {})))
    with apart():
        results = jax.jit(jax_func)(*inputs[0], **inputs[1])
    return pytree.tree_map_only(jax.Array, out, results)


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    raise NotAvailable(
        f"xla_builder.{name}: XLA's builder is not here. Write the function in jax.numpy and call "
        "it by xla_builder.call_jax, or lower a custom op (see CONTRIBUTING.md, Adding an op)"
    )
