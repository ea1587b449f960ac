"""Which ATen ops are decomposed before anything is lowered: PyTorch's decompositions, and ours.

An op is not decomposed where a rule or torch-mlir lowers it better than its decomposition.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from xla_dynamo.backend.graph.torch_private import (
    core_aten_decompositions,
    native_batch_norm_helper,
)
from xla_dynamo.backend.lowering import rules  # noqa: F401  (fills RULES)
from xla_dynamo.backend.lowering.registry import RULES

from .determinants import LINEAR_ALGEBRA_DECOMPOSITIONS
from .eager_layout import restrided_decompositions, restrided_ops
from .empty_strided import BLANK_DECOMPOSITIONS
from .foreach import FOREACH_DECOMPOSITIONS
from .functional_collectives import FUNCTIONAL_COLLECTIVES
from .gpu_ops import GPU_DECOMPOSITIONS
from .matmul_backward import PRODUCT_DECOMPOSITIONS
from .mended import MENDED
from .transformer_layers import TRANSFORMER_DECOMPOSITIONS

# The decomposition returns the attention matrix where its own backward expects the logsumexp.
_WRONG = frozenset({torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default})
_FROZEN = torch.ops.aten._native_batch_norm_legit_no_training.default


def _frozen_batch_norm(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    mean: torch.Tensor,
    var: torch.Tensor,
    momentum: float,
    eps: float,
) -> Any:
    """Returns the statistics that devices save, too; the rule, like the CPU, saves none."""
    return native_batch_norm_helper(x, weight, bias, mean, var, False, momentum, eps, False)[:3]


@functools.cache
def core() -> dict[Any, Callable[..., Any]]:
    """PyTorch's core decompositions, less those that are wrong."""
    right = {op: how for op, how in core_aten_decompositions().items() if op not in _WRONG}
    return {**right, _FROZEN: _frozen_batch_norm, **MENDED}


@functools.cache
def decompositions() -> dict[Any, Callable[..., Any]]:
    """Core decompositions of ops without a rule, and our own."""
    without_rule = {op: how for op, how in core().items() if op not in RULES}
    return {
        **without_rule,
        **restrided_decompositions(without_rule),
        **LINEAR_ALGEBRA_DECOMPOSITIONS,
        **PRODUCT_DECOMPOSITIONS,
        **FOREACH_DECOMPOSITIONS,
        **BLANK_DECOMPOSITIONS,
        **FUNCTIONAL_COLLECTIVES,
        **GPU_DECOMPOSITIONS,
        **TRANSFORMER_DECOMPOSITIONS,
    }


@functools.cache
def traced_decompositions() -> dict[Any, Callable[..., Any]]:
    """Decompositions for a trace that tells views from copies: results have eager's strides."""
    return {**restrided_ops(decompositions()), **decompositions()}
