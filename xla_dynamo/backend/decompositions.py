"""Which aten ops PyTorch's own decompositions take apart before anything is lowered.

An op keeps its node where a rule or torch-mlir lowers it better than its decomposition would.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch._decomp import core_aten_decompositions

from .linear_algebra import LINEAR_ALGEBRA_DECOMPOSITIONS
from .lowering import rules  # noqa: F401  (fills RULES)
from .lowering.registry import RULES
from .products import PRODUCT_DECOMPOSITIONS

# The decomposition returns the attention matrix where its own backward expects the logsumexp.
_WRONG = frozenset({torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default})


@functools.cache
def core() -> dict[Any, Callable[..., Any]]:
    """PyTorch's core decompositions, less those that are wrong."""
    return {op: how for op, how in core_aten_decompositions().items() if op not in _WRONG}


@functools.cache
def decompositions() -> dict[Any, Callable[..., Any]]:
    """The table handed to AOTAutograd: core decompositions of ops without a rule, and our own."""
    without_rule = {op: how for op, how in core().items() if op not in RULES}
    return {**without_rule, **LINEAR_ALGEBRA_DECOMPOSITIONS, **PRODUCT_DECOMPOSITIONS}
