"""`xla:N` as a device of stock PyTorch.

The only file of the lazy device that touches torch._C's device internals. Seen on torch 2.13 (and,
as a prototype, on 2.9 and 2.15). Stock PyTorch carries the autograd and autocast keys, the
functionalization hooks and the printing of device type XLA; what is missing is a device guard and
kernels that make tensors. Private API met here: libc10's exported device guard registry,
torch._C._autograd.DeviceType, torch._C dispatch key guards.
"""

from __future__ import annotations

import ctypes
import functools
import os
import threading
from collections.abc import Callable
from typing import Any

import torch

from xla_dynamo.backend.runtime import resident
from xla_dynamo.compat.execution import dispatch, predicates, sync  # noqa: F401  (reads fills HANDLERS)
from xla_dynamo.compat.kernels.as_strided import register_strided
from xla_dynamo.compat.kernels.composites import register_composites
from xla_dynamo.compat.kernels.control_flow import register_control_flow
from xla_dynamo.compat.kernels.factories import register_factories
from xla_dynamo.compat.kernels.fft import register_fourier
from xla_dynamo.compat.kernels.inplace import register_inplace
from xla_dynamo.compat.kernels.inplace_views import register_renamed
from xla_dynamo.compat.kernels.out_variants import register_outs
from xla_dynamo.compat.kernels.packed_sequences import register_sequences
from xla_dynamo.compat.kernels.prims import register_primitives
from xla_dynamo.compat.kernels.view_copy import register_view_copies
from xla_dynamo.compat.recording.trace import Window
from xla_dynamo.compat.values import functionalization
from xla_dynamo.compat.values.hide_from_dynamo import hide_kernels
from xla_dynamo.compat.values.values import Leaf

_lock = threading.Lock()
_windows: dict[int, Window] = {}
_thread = threading.local()
_libraries: list[torch.library.Library] = []


@functools.cache
def install() -> None:
    """Make the lazy device exist, once for the process."""
    _register_guard()
    Leaf.__torch_dispatch__ = classmethod(dispatch.dispatch)  # type: ignore[method-assign]
    library = torch.library.Library("aten", "IMPL", "XLA")
    _libraries.append(library)
    register_factories(library, window)
    autograd = torch.library.Library("aten", "IMPL", "AutogradXLA")
    _libraries.append(autograd)
    register_composites(library, autograd, _keep_whole, _below_autograd)
    register_inplace(autograd, _redispatch, _straight)
    register_outs(autograd, _redispatch)
    register_sequences(autograd)
    register_fourier(autograd, _redispatch)
    register_renamed(autograd, _redispatch)
    register_strided(autograd, _redispatch, _straight)
    register_view_copies(autograd, _redispatch)
    primitives = torch.library.Library("prims", "IMPL", "AutogradXLA")
    _libraries.append(primitives)
    register_primitives(primitives)
    register_control_flow()
    resident.RESIDENCIES["xla"] = resident.Residency(
        lambda device: sync.device_of(window(device)), sync.arrays_of, sync.tensors_of
    )
    allow_backward()
    hide_kernels()


def _register_guard() -> None:
    """Give DeviceType::XLA the guard that PyTorch has for `meta`, which does nothing.

    Without one, the first autograd node on an xla tensor fails with "PyTorch is not linked with
    support for xla devices". Registry and registrar are exported by libc10.
    """
    c10 = ctypes.CDLL(os.path.join(os.path.dirname(torch.__file__), "lib", "libc10.so"))
    guards = (ctypes.c_void_p * 32).in_dll(c10, "_ZN3c104impl26device_guard_impl_registryE")
    register = c10[
        "_ZN3c104impl24DeviceGuardImplRegistrarC1ENS_10DeviceTypeEPKNS0_24DeviceGuardImplInterfaceE"
    ]
    register.argtypes = [ctypes.c_void_p, ctypes.c_int8, ctypes.c_void_p]
    kind: Any = torch._C._autograd.DeviceType  # type: ignore[attr-defined]
    guard = _guard_like(guards[int(kind.Meta)], int(kind.XLA))
    register(ctypes.create_string_buffer(8), int(kind.XLA), ctypes.addressof(guard))


_alive: list[Any] = []  # what C++ points to


def _guard_like(guard: int, kind: int) -> Any:
    """A C++ guard object: a copy of `guard` whose current device is the thread's xla device.

    PyTorch asks for the current device where a program says "xla" without a number. In the table of
    virtual functions getDevice() is the third; two words precede the first.
    """

    @ctypes.CFUNCTYPE(ctypes.c_uint16, ctypes.c_void_p)
    def current(this: int) -> int:
        from xla_dynamo.compat.recording import devices

        return kind | devices.default().index << 8  # c10::Device: two bytes, type and index

    words = ctypes.c_void_p * 64
    functions = ctypes.c_void_p.from_address(guard).value
    assert functions is not None
    word = ctypes.sizeof(ctypes.c_void_p)
    table = words.from_buffer_copy(words.from_address(functions - 2 * word))
    table[2 + 2] = ctypes.cast(current, ctypes.c_void_p).value
    made = ctypes.c_void_p(ctypes.addressof(table) + 2 * word)
    _alive.extend((current, table, made))
    return made


_Keys: Any = torch._C.DispatchKeySet
_Key: Any = torch._C.DispatchKey


@functools.cache
def _keys(op: Any, last: Any) -> Any:
    """Kernels from autograd on, less those that only pass a call on, to that of `last`.

    Of kernels that are the same for every device, those of the CPU: XLA's are the ones overridden.
    """
    keys = _Keys(_Key.CPU) | _Keys(last)
    table = torch._C._dispatch_dump_table(op.name())
    for key in (_Key.AutogradCPU, _Key.ADInplaceOrView):
        if f"\n{key.name}: fallthrough" not in table:
            keys = keys | _Keys(key)
    return keys


def _redispatch(op: Any, args: Any, kwargs: Any) -> Any:
    """Run `op` by the autograd kernel that a kernel of ours stands before."""
    taken = zip(op._schema.arguments, args, strict=False)
    args = [
        _zero_dim(value) if isinstance(kind.type, torch.TensorType) else value
        for kind, value in taken
    ]
    if functionalization.transformed():
        return op.redispatch(_keys(op, functionalization.TRANSFORMED), *args, **kwargs)
    tensors = args[0] if isinstance(args[0], (list, tuple)) else (args[0],)
    given = (*tensors, *args[1:], *kwargs.values())
    real = any(functionalization.is_functional(t) for t in given if _is_tensor(t))
    return op.redispatch(_keys(op, _Key.Functionalize if real else _Key.Python), *args, **kwargs)


def _straight(op: Any) -> Callable[..., Any]:
    """What runs `op` as `_redispatch` does on tensors of the device, outside transforms."""
    return functools.partial(op.redispatch, _keys(op, _Key.Functionalize))


# Nested tensors have kernels for linear and matmul, so there PyTorch's autograd knows them whole.
_WHOLE = _Keys(_Key.AutogradNestedTensor) | _Keys(_Key.Functionalize)


def _keep_whole(op: Any, args: Any) -> Any:
    """Run `op` by an autograd kernel that does not take it apart."""
    return op.redispatch(_WHOLE, *args)


def _below_autograd(op: Any, args: Any) -> Any:
    """Run `op` by what comes after autograd."""
    with torch._C._AutoDispatchBelowAutograd():
        return op(*args)


def _zero_dim(value: Any) -> Any:
    """A Python number in the place of a tensor arrives as a number: as a tensor, in full precision.

    A tensor made here must not belong to a functional transform that is active.
    """
    for kind, dtype in _NUMBERS.items():
        if type(value) is kind:
            with torch._C._DisableFuncTorch():
                return torch.tensor(value, dtype=dtype)
    return value


_NUMBERS = {bool: torch.bool, int: torch.int64, float: torch.float64, complex: torch.complex128}


def _is_tensor(argument: Any) -> bool:
    return isinstance(argument, torch.Tensor)


def allow_backward() -> None:
    """Run backward in the calling thread: autograd has no worker threads for device type XLA.

    PyTorch keeps this switch for each thread.
    """
    if not getattr(_thread, "ready", False):
        torch.autograd.set_multithreading_enabled(False)
        _thread.ready = True


def window(device: torch.device) -> Window:
    """The window of an xla device."""
    index = device.index
    if index is None:
        from xla_dynamo.compat.recording import devices

        index = devices.default().index
    found = _windows.get(index)
    if found is None:
        with _lock:
            found = _windows.setdefault(index, Window(torch.device("xla", index)))
    allow_backward()
    return found


def windows() -> list[Window]:
    """The windows of all devices that were used."""
    return list(_windows.values())
