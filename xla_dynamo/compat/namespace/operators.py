"""torch.ops.xla.*: torch_xla's own ops, as the functions that do the same here.

They are composite: PyTorch records, differentiates and compiles what they are made of.
"""

from __future__ import annotations

import ast
import functools
import importlib
from collections.abc import Sequence
from typing import Any

import torch

# Signatures of torch_xla 2.9 (misspelt names too), and what they call: "module:function", or
# nothing where the op only tells torch_xla's compiler something and gives its first argument.
OPS = {
    "flash_attention(Tensor q, Tensor k, Tensor v, bool casual=False) -> Tensor": (
        "torch_xla.experimental.custom_kernel:flash_attention"
    ),
    "paged_attention(Tensor q, Tensor k_pages, Tensor v_pages, Tensor lengths, "
    "Tensor page_indices, int pages_per_compute_block, str? megacore_mode=None, "
    "float? attn_logits_soft_cap=None) -> Tensor": (
        "torch_xla.experimental.custom_kernel:paged_attention"
    ),
    "multi_queries_paged_attention(Tensor q, Tensor k_pages, Tensor v_pages, Tensor lengths, "
    "Tensor page_indices, Tensor effective_q_lens, int num_kv_pages_per_compute_block, "
    "int num_queries_per_compute_block, bool use_kernel, float? attn_logits_soft_cap=None) -> "
    "Tensor": "torch_xla.experimental.custom_kernel:multi_queries_paged_attention",
    "ragged_paged_attention(Tensor q, Tensor kv_pages, Tensor kv_lens, Tensor page_indices, "
    "Tensor cu_q_lens, Tensor num_seqs, float sm_scale=1, int? sliding_window=None, "
    "float? soft_cap=None, float? mask_value=None, float? k_scale=None, float? v_scale=None, "
    "bool use_kernel=True, int? num_kv_pages_per_block=None, int? num_queries_per_block=None, "
    "int? vmem_limit_bytes=None) -> Tensor": (
        "torch_xla.experimental.custom_kernel:ragged_paged_attention"
    ),
    "gmm(Tensor lhs, Tensor rhs, Tensor group_sizes, int[]? tiling=None, "
    "Tensor? group_offset=None, bool transpose_rhs=False) -> Tensor": (
        "torch_xla.experimental.custom_kernel:gmm"
    ),
    "quantized_matmul_int8(Tensor x, Tensor w, Tensor scalar, Tensor? zero_point=None, "
    "Tensor? quant_block_size=None, bool quantize_activation=False, int? batch_block_size=None, "
    "int? out_block_size=None, int? in_block_size=None) -> Tensor": (
        "torch_xla.experimental.custom_kernel:quantized_matmul_int8"
    ),
    "quantized_matmul(Tensor x, Tensor w, Tensor scale, Tensor? zero_point=None, "
    "int? block_size=-1, bool? int4_weight=False, bool? quantize_activation=False) -> Tensor": (
        "torch_xla.experimental.xla_quantized_matmul:quantized_matmul"
    ),
    "einsum_linear_forward(Tensor input, Tensor weight, Tensor? bias) -> Tensor": (
        "torch.nn.functional:linear"
    ),
    "dynamo_mark_sharding(Tensor input, int[] device_ids, int[] mesh_shape, str axis_names, "
    "str partition_spec) -> Tensor": "xla_dynamo.compat.namespace.operators:mark_sharding",
    "dynamo_set_buffer_donor_(Tensor t, bool should_donoate) -> Tensor": "",
    "mark_tensor(Tensor x, str name, int pos, str id, bool is_input, Any? attr=None) -> Tensor": "",
    "write_mlir_debuginfo(Tensor x, str data) -> Tensor": "",
}
_libraries: list[torch.library.Library] = []


@functools.cache
def install() -> None:
    """Register the ops, once for the process."""
    library = torch.library.Library("xla", "FRAGMENT")
    _libraries.append(library)
    for schema, place in OPS.items():
        name = library.define(schema)
        body = functools.partial(_call, place) if place else _same
        library.impl(name, body, "CompositeImplicitAutograd")


def _call(place: str, *args: Any, **kwargs: Any) -> Any:
    # Imported here: the names of torch_xla exist only while the finder serves them.
    module, _, function = place.partition(":")
    return getattr(importlib.import_module(module), function)(*args, **kwargs)


def mark_sharding(
    input: torch.Tensor,
    device_ids: Sequence[int],
    mesh_shape: Sequence[int],
    axis_names: str,
    partition_spec: str,
) -> torch.Tensor:
    """The tensor, marked; names and specification are as Python writes them."""
    sharding = importlib.import_module("torch_xla.distributed.spmd.xla_sharding")
    mesh = sharding.Mesh(device_ids, mesh_shape, ast.literal_eval(axis_names))
    spec = ast.literal_eval(partition_spec)
    if mesh.size() > 1:
        return sharding.mark_sharding_with_gradients(input, mesh, spec)
    sharding.mark_sharding(input, mesh, spec)
    return input


def _same(x: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
    return x
