"""torch.cond, while_loop, scan, map and flex_attention on the lazy device: Python's own functions.

As PyTorch runs them in eager on every other device: the host reads the condition, which is a
barrier, and the ops of the branch or body are recorded. Autograd follows the ops that ran. Those of
flex_attention are its math.

Private too, seen on torch 2.13: py_kernels of a HigherOrderOperator.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree

from xla_dynamo.backend.decompositions.flex_attention import FLEX_ATTENTION
from xla_dynamo.backend.decompositions.flex_attention import attention as flex_attention
from xla_dynamo.compat.values.functionalization import transformed
from xla_dynamo.compat.values.torch_private import Key, generic_scan, is_functional


def register_control_flow() -> None:
    """Register the kernels; PyTorch's own still serve every other tensor."""
    ops: Any = torch.ops.higher_order
    _register(ops.cond, _cond)
    _register(ops.scan, _scan)
    _register(FLEX_ATTENTION, flex_attention)
    for op in (ops.while_loop, ops.map_impl):
        _register(op, op.py_kernels[Key.CompositeExplicitAutograd])


def _cond(pred: Any, true_fn: Callable[..., Any], false_fn: Callable[..., Any], args: Any) -> Any:
    return (true_fn if pred else false_fn)(*args)


def _scan(combine: Callable[..., Any], init: Any, xs: Any, additional_inputs: Any) -> Any:
    return generic_scan(combine, init, xs, additional_inputs=additional_inputs)


def _register(op: Any, eager: Callable[..., Any]) -> None:
    # Inference tensors, which compiled functions may give, come to functionalization first.
    op.py_kernels[Key.AutogradXLA] = _kernel(eager, op.py_kernels[Key.Autograd])
    op.py_kernels[Key.Functionalize] = _kernel(eager, op.py_kernels[Key.Functionalize])
    op._dispatch_cache.clear()


def _kernel(eager: Callable[..., Any], other: Callable[..., Any]) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        return (eager if _is_eager(args, kwargs) else other)(*args, **kwargs)

    return kernel


def _is_eager(args: Any, kwargs: Any) -> bool:
    """Whether the op was called on tensors of the device: not on tracers, nor in a transform."""
    tensors = [x for x in pytree.tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
    own = [is_functional(x) for x in tensors if x.device.type == "xla"]
    return bool(own) and all(own) and not transformed()
