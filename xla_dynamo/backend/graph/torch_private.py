"""The private API of PyTorch that the backend uses, under one name each; seen on torch 2.13.

No other module of the backend names a private module of torch, but for capture.aot (AOTAutograd and
Dynamo) and runtime.pjrt (DLPack). A release of PyTorch that renames something is met here.

- torch._subclasses: fake tensors, which tell shapes without values
- torch._decomp: PyTorch's decompositions
- torch._prims_common: the order in memory that eager's kernels give to results
- torch._C._nn: functions that torch.nn.functional calls, as Dynamo's graphs name them
- torch._higher_order_ops: flex_attention's eager implementation
- torch._C._distributed_c10d: process groups by the names that graphs hold
- torch._C._autograd: whether a profiler is on, in 30 ns
- Tensor._make_wrapper_subclass, torch._C._disabled_torch_function_impl: tensors without memory
- torch._C._functorch: whether torch.func transforms what is called
- torch._dispatch, torch.utils._python_dispatch, torch._C._ExcludeDispatchKeyGuard: what takes part
  in the dispatch of an op
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch._C import _functorch  # pyright: ignore
from torch._C._distributed_c10d import _resolve_process_group
from torch._decomp import core_aten_decompositions as core_aten_decompositions
from torch._decomp.decompositions import native_batch_norm_helper as native_batch_norm_helper
from torch._dispatch.python import enable_python_dispatcher as enable_python_dispatcher
from torch._dispatch.python import no_python_dispatcher as no_python_dispatcher
from torch._higher_order_ops.flex_attention import math_attention as math_attention
from torch._prims_common import (
    compute_elementwise_output_strides as compute_elementwise_output_strides,
)
from torch._prims_common import suggest_memory_format as suggest_memory_format
from torch._subclasses import FakeTensor as FakeTensor
from torch._subclasses import FakeTensorMode as FakeTensorMode
from torch.nn import _reduction
from torch.utils._python_dispatch import TorchDispatchMode as TorchDispatchMode
from torch.utils._python_dispatch import _disable_current_modes


def is_transforming() -> bool:
    """Whether torch.func (vmap, grad, ...) transforms what is called now."""
    return _functorch.peek_interpreter_stack() is not None


# The number that aten ops take for reduction="mean", and for the older size_average and reduce.
reduction_number = _reduction.get_enum
old_reduction_number = _reduction.legacy_get_enum
nn_functions: Any = torch._C._nn  # type: ignore[attr-defined]
resolve_process_group: Any = _resolve_process_group
# Whether torch.profiler, or its older form, records this thread now.
is_profiling: Any = torch._C._autograd._profiler_enabled  # type: ignore[attr-defined]
no_modes = _disable_current_modes
# A tensor subclass's instance of given shape, dtype and device, without memory.
wrapper_subclass: Any = torch.Tensor._make_wrapper_subclass  # type: ignore[attr-defined]
without_torch_function: Any = torch._C._disabled_torch_function_impl


def another_fake(of: torch.Tensor) -> torch.Tensor:
    """A fake tensor like this one, with memory of its own; an op takes ten times as long."""
    if not isinstance(of, FakeTensor):
        return of
    memory = torch.empty_strided(of.shape, of.stride(), dtype=of.dtype, device="meta")
    return FakeTensor(of.fake_mode, memory, of.device)


def _keys_above_kernels() -> Any:
    keys, key = torch._C.DispatchKeySet, torch._C.DispatchKey  # type: ignore[attr-defined]
    above = keys(key.AutogradCPU) | keys(key.ADInplaceOrView) | keys(key.AutocastCPU)
    return above | keys(key.Python) | keys(key.PythonTLSSnapshot)


# A context manager: ops go to their CPU kernels, past autograd, autocast and modes of the thread.
kernels_only = functools.partial(
    torch._C._ExcludeDispatchKeyGuard,  # type: ignore[attr-defined]
    _keys_above_kernels(),
)
