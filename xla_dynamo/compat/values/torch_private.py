"""The private API of PyTorch that the lazy device uses, under one name each.

No other module of compat names a private module of torch, but for device.torch_patches (which
replaces functions of PyTorch by name) and torch_xla's own names of torch's C++ extension. A release
of PyTorch that renames something is met here. All were seen on torch 2.13, functionalization and
dispatch on 2.9 and 2.15 too (by a prototype of the device).

- functionalization: torch._is_functional_tensor and the like, torch._C._functionalization
- dispatch: torch._C.DispatchKey, DispatchKeySet, their guards and sets of the calling thread
- tensors: Tensor._make_wrapper_subclass, torch._C._disabled_torch_function_impl, _is_alias_of,
  torch._C._disabled_torch_dispatch_impl, torch._C._swap_tensor_impl; DTensorSpec, of DTensors
- shape inference: torch._subclasses.FakeTensorMode and what it raises
- Dynamo: torch._C._dynamo.eval_frame, the execution strategy of a code object
- FX: torch.fx._symbolic_trace, its Tracer.trace and is_fx_symbolic_tracing
- control flow: torch._higher_order_ops.scan; torch.prims: torch._prims.__all__
- devices: torch._C._autograd.DeviceType
- process groups: torch.testing._internal.distributed.multi_threaded_pg, loaded where it is needed,
  and torch._C._distributed_c10d
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from types import CodeType
from typing import Any

import torch
from torch import _prims
from torch._C._dynamo.eval_frame import _FrameAction, _FrameExecStrategy, set_code_exec_strategy
from torch._higher_order_ops.scan import generic_scan as generic_scan
from torch._subclasses import FakeTensorMode as FakeTensorMode
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    UnsupportedOperatorException,
)
from torch.fx import _symbolic_trace

_torch: Any = torch
_C: Any = torch._C

# Functionalization. Whether a tensor is a wrapper, and no view; its contents; a new wrapper.
is_functional: Callable[[torch.Tensor], bool] = _torch._is_functional_tensor
is_base: Callable[[torch.Tensor], bool] = _torch._is_functional_tensor_base
unwrapped: Callable[[torch.Tensor], torch.Tensor] = _torch._from_functional_tensor
wrapped: Callable[[torch.Tensor], torch.Tensor] = _torch._to_functional_tensor
# Take in what was written through other views of the same memory; let them take in this write.
sync: Callable[[torch.Tensor], None] = _torch._functionalize_sync
commit: Callable[[torch.Tensor], None] = _torch._functionalize_commit_update
# Let a wrapper have other contents.
replace: Callable[[torch.Tensor, torch.Tensor], None] = _torch._functionalize_replace
# How a tensor is a view of the tensor whose memory it shares; the same view of another tensor.
view_of: Callable[[torch.Tensor], Sequence[Any]] = _C._functionalization.get_view_meta_sequence
same_view: Callable[[torch.Tensor, Sequence[Any]], torch.Tensor] = (
    _C._functionalization.apply_view_meta_sequence
)

# Whether two share memory; makes no storage for Python, which would count as one more owner.
is_alias: Callable[[torch.Tensor, torch.Tensor], bool] = _C._is_alias_of
# Tell autograd that tensors have been written to.
mark_written: Callable[[Sequence[torch.Tensor]], None] = _C._increment_version
storage_owners: Callable[[int], int] = _C._storage_Use_Count
# A tensor subclass's instance of given shape, strides, dtype and device, without memory.
wrapper_subclass: Callable[..., Any] = _torch.Tensor._make_wrapper_subclass
no_torch_function: Any = _C._disabled_torch_function_impl
no_torch_dispatch: Any = _C._disabled_torch_dispatch_impl

Key: Any = _C.DispatchKey
KeySet: Any = _C.DispatchKeySet
parse_key: Callable[[str], Any] = _C._dispatch_key_parse
# Which kernel each dispatch key has for an op, as text; the names of all ops.
kernels_of: Callable[[str], str] = _C._dispatch_dump_table
all_op_names: Callable[[], Sequence[str]] = _C._dispatch_get_all_op_names
# The dispatch keys that the calling thread adds and leaves out now.
included_keys: Callable[[], Any] = _C._dispatch_tls_local_include_set
excluded_keys: Callable[[], Any] = _C._dispatch_tls_local_exclude_set
is_included: Callable[[Any], bool] = _C._dispatch_tls_is_dispatch_key_included
# How many modes that watch every op are active.
count_modes: Callable[[], int] = _C._len_torch_dispatch_stack
is_excluded: Callable[[Any], bool] = _C._dispatch_tls_is_dispatch_key_excluded
# Context managers: these keys, and no others; without keys; below autograd; outside torch.func.
only_keys: Callable[[Any, Any], Any] = _C._ForceDispatchKeyGuard
without_keys: Callable[[Any], Any] = _C._ExcludeDispatchKeyGuard
below_autograd: Callable[[], Any] = _C._AutoDispatchBelowAutograd
outside_transforms: Callable[[], Any] = _C._DisableFuncTorch

DeviceType: Any = _C._autograd.DeviceType
PRIMS: Sequence[str] = _prims.__all__

# What shape inference raises for results whose shape or values no fake tensor tells.
UNKNOWN_SHAPE = (
    DataDependentOutputException,
    DynamicOutputShapeException,
    UnsupportedOperatorException,
)
_SKIP = _FrameExecStrategy(_FrameAction.SKIP, _FrameAction.SKIP)
FAKE_TENSOR_LOG = "torch._subclasses.fake_tensor"


# One tensor object gets the other's contents: memory, device, dtype and autograd's data.
swap_contents: Callable[[torch.Tensor, torch.Tensor], None] = torch._C._swap_tensor_impl  # type: ignore[attr-defined]


def dtensor_spec(mesh: Any, placements: Sequence[Any], tensor: torch.Tensor) -> Any:
    """How a DTensor of `tensor`'s shape lies on a DeviceMesh."""
    # Imported here: a second, which only programs with meshes need to spend.
    from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta

    sizes = TensorMeta(tensor.shape, tensor.stride(), tensor.dtype)
    return DTensorSpec(mesh, tuple(placements), tensor_meta=sizes)


def hide(code: CodeType) -> None:
    """Let Dynamo run the frames of a code object, and what they call, without a look at them."""
    set_code_exec_strategy(code, _SKIP)


@contextmanager
def process_groups_of_threads() -> Iterator[None]:
    """Give each thread a torch.distributed of its own: a default group, a rank, other groups.

    Not where this thread has a default group: the others then share that.
    """
    if not torch.distributed.is_available() or torch.distributed.is_initialized():
        yield
        return
    from torch.testing._internal.distributed import multi_threaded_pg

    isolate = _C._distributed_c10d._set_thread_isolation_mode  # of groups' names
    multi_threaded_pg._install_threaded_pg()
    isolate(True)
    try:
        yield
    finally:
        isolate(False)
        multi_threaded_pg._uninstall_threaded_pg()


@contextmanager
def traces_of_threads() -> Iterator[None]:
    """Let threads trace by FX, as every torch.compile does, one at a time, unseen by the others.

    Whether something is traced is one flag of the process. While it is set, PyTorch refuses calls
    of compiled functions; of two traces at once, the one that ends last leaves it set for ever.
    """
    is_tracing, trace = _symbolic_trace.is_fx_symbolic_tracing, _symbolic_trace.Tracer.trace
    one_at_a_time, depth = threading.RLock(), threading.local()

    def trace_alone(*args: Any, **kwargs: Any) -> Any:
        with one_at_a_time:
            depth.of = getattr(depth, "of", 0) + 1
            try:
                return trace(*args, **kwargs)
            finally:
                depth.of -= 1

    def is_this_tracing() -> bool:
        return getattr(depth, "of", 0) > 0 and is_tracing()

    _symbolic_trace.is_fx_symbolic_tracing = is_this_tracing
    _symbolic_trace.Tracer.trace = trace_alone
    try:
        yield
    finally:
        _symbolic_trace.is_fx_symbolic_tracing, _symbolic_trace.Tracer.trace = is_tracing, trace


def calls_beside_traces() -> AbstractContextManager[Any]:
    """Let this thread call what was compiled before `traces_of_threads`, too, where it can be.

    Not with PyTorch 2.9, which has no such setting.
    """
    settings: Any = torch._dynamo.config
    name = "force_compile_during_fx_trace"
    return settings.patch(name, True) if hasattr(settings, name) else contextlib.nullcontext()
