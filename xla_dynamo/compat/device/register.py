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
from typing import Any

import torch

from xla_dynamo.backend.runtime import resident
from xla_dynamo.compat.execution import (
    automatic_barriers,  # noqa: F401  (sets the policy of traces)
    compiled_graphs,
    dispatch,
    factories_like,  # noqa: F401  (fills HANDLERS)
    growing_results,  # noqa: F401  (fills HANDLERS)
    on_host,  # noqa: F401  (sets the policy of traces)
    packed_rows,  # noqa: F401  (fills HANDLERS)
    predicates,  # noqa: F401  (fills HANDLERS)
    sync,
)
from xla_dynamo.compat.kernels import inplace, mutable_ops
from xla_dynamo.compat.kernels.as_strided import register_as_strided
from xla_dynamo.compat.kernels.composites import register_composites
from xla_dynamo.compat.kernels.control_flow import register_control_flow
from xla_dynamo.compat.kernels.factories import register_factories
from xla_dynamo.compat.kernels.out_variants import register_out_variants
from xla_dynamo.compat.kernels.recurrent import register_recurrent
from xla_dynamo.compat.kernels.single_ops import register_single_ops
from xla_dynamo.compat.kernels.view_copy import register_view_copy
from xla_dynamo.compat.recording import devices, pending, replicas
from xla_dynamo.compat.values.hide_from_dynamo import hide_kernels
from xla_dynamo.compat.values.torch_private import DeviceType
from xla_dynamo.compat.values.values import Leaf

_libraries: list[torch.library.Library] = []


@functools.cache
def install() -> None:
    """Make the lazy device exist, once for the process."""
    _register_guard()
    Leaf.__torch_dispatch__ = classmethod(dispatch.dispatch)  # type: ignore[method-assign]
    library = torch.library.Library("aten", "IMPL", "XLA")
    _libraries.append(library)
    register_factories(library)
    autograd = torch.library.Library("aten", "IMPL", "AutogradXLA")
    _libraries.append(autograd)
    register_composites(library, autograd)
    inplace.register_inplace(autograd)
    register_out_variants(autograd)
    register_as_strided(autograd)
    register_recurrent(autograd)
    register_view_copy(autograd)
    primitives = torch.library.Library("prims", "IMPL", "AutogradXLA")
    _libraries.append(primitives)
    register_single_ops(autograd, primitives)
    register_control_flow()
    mutable_ops.register_auto_functionalized()
    mutable_ops.register_known()
    resident.RESIDENCIES["xla"] = resident.Residency(
        lambda device: sync.device_of(pending.trace(device)),
        compiled_graphs.compiled,
        compiled_graphs.launch,
        lambda device: replicas.size_for(device.index or 0),
        compiled_graphs.of_replicas,
    )
    pending.allow_backward()
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
