"""Makes `xla:N` a device of stock PyTorch.

Stock PyTorch carries the autograd and autocast keys, the functionalization hooks and the printing
of device type XLA; what is missing is a device guard and kernels that make tensors. The guard is
registered with libc10's exported registry: private, seen on torch 2.13 (and, as a prototype, on 2.9
and 2.15).
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable
from typing import Any

import torch

from xla_dynamo.backend.runtime import resident
from xla_dynamo.compat.execution import dispatch, predicates, sync  # noqa: F401  (reads fills HANDLERS)
from xla_dynamo.compat.kernels import inplace
from xla_dynamo.compat.kernels.as_strided import register_strided
from xla_dynamo.compat.kernels.composites import register_composites
from xla_dynamo.compat.kernels.control_flow import register_control_flow
from xla_dynamo.compat.kernels.factories import register_factories
from xla_dynamo.compat.kernels.fft import register_fourier
from xla_dynamo.compat.kernels.inplace_views import register_renamed
from xla_dynamo.compat.kernels.out_variants import register_outs
from xla_dynamo.compat.kernels.packed_sequences import register_sequences
from xla_dynamo.compat.kernels.prims import register_primitives
from xla_dynamo.compat.kernels.view_copy import register_view_copies
from xla_dynamo.compat.recording import devices, fork_guard, metrics, shape_inference, windows
from xla_dynamo.compat.values import functionalization, values
from xla_dynamo.compat.values.hide_from_dynamo import hide_kernels
from xla_dynamo.compat.values.torch_private import (
    DeviceType,
    Key,
    KeySet,
    below_autograd,
    is_functional,
    kernels_of,
    outside_transforms,
)
from xla_dynamo.compat.values.values import Leaf

_libraries: list[torch.library.Library] = []


@functools.cache
def install() -> None:
    """Make the lazy device exist, once for the process."""
    for module in (fork_guard, inplace, metrics, shape_inference, values, windows):
        module.install()  # what they change outside themselves: hooks at a fork, a filter of logs
    _register_guard()
    Leaf.__torch_dispatch__ = classmethod(dispatch.dispatch)  # type: ignore[method-assign]
    library = torch.library.Library("aten", "IMPL", "XLA")
    _libraries.append(library)
    register_factories(library)
    autograd = torch.library.Library("aten", "IMPL", "AutogradXLA")
    _libraries.append(autograd)
    register_composites(library, autograd, _keep_whole, _below_autograd)
    inplace.register_inplace(autograd, _redispatch, _straight)
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
        lambda device: sync.device_of(windows.window(device)), sync.arrays_of, sync.tensors_of
    )
    windows.allow_backward()
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
    kind = DeviceType
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


@functools.cache
def _keys(op: Any, last: Any) -> Any:
    """Kernels from autograd on, less those that only pass a call on, to that of `last`.

    Of kernels that are the same for every device, those of the CPU: XLA's are the ones overridden.
    """
    keys = KeySet(Key.CPU) | KeySet(last)
    table = kernels_of(op.name())
    for key in (Key.AutogradCPU, Key.ADInplaceOrView):
        if f"\n{key.name}: fallthrough" not in table:
            keys = keys | KeySet(key)
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
    real = any(is_functional(t) for t in given if _is_tensor(t))
    return op.redispatch(_keys(op, Key.Functionalize if real else Key.Python), *args, **kwargs)


def _straight(op: Any) -> Callable[..., Any]:
    """What runs `op` as `_redispatch` does on tensors of the device, outside transforms."""
    return functools.partial(op.redispatch, _keys(op, Key.Functionalize))


# Nested tensors have kernels for linear and matmul, so there PyTorch's autograd knows them whole.
_WHOLE = KeySet(Key.AutogradNestedTensor) | KeySet(Key.Functionalize)


def _keep_whole(op: Any, args: Any) -> Any:
    """Run `op` by an autograd kernel that does not take it apart."""
    return op.redispatch(_WHOLE, *args)


def _below_autograd(op: Any, args: Any) -> Any:
    """Run `op` by what comes after autograd."""
    with below_autograd():
        return op(*args)


def _zero_dim(value: Any) -> Any:
    """A Python number in the place of a tensor arrives as a number: as a tensor, in full precision.

    A tensor made here must not belong to a functional transform that is active.
    """
    for kind, dtype in _NUMBERS.items():
        if type(value) is kind:
            with outside_transforms():
                return torch.tensor(value, dtype=dtype)
    return value


_NUMBERS = {bool: torch.bool, int: torch.int64, float: torch.float64, complex: torch.complex128}


def _is_tensor(argument: Any) -> bool:
    return isinstance(argument, torch.Tensor)
