# pyright: reportAttributeAccessIssue=false, reportPrivateImportUsage=false
# (jaxlib ships no type information for its native module.)
"""PJRT devices, and executables compiled of StableHLO modules.

Private API of jax and jaxlib met here, seen on 0.7.2 to 0.12.0: core.ShapedArray,
xla_bridge.get_backend, _jax.DeviceList, CompileOptions, compile_and_load,
(de)serialize_executable, mlir.serialize_portable_artifact. What differs between versions is in
`jax_adapter`; `call_path` launches; `transfers`, `replica_arrays` and `partitions` meet what arrays
need.
"""

from __future__ import annotations

import functools
import io
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import jax
import numpy as np
import torch
from jax._src import core, xla_bridge
from jax._src.lib import _jax
from jax._src.lib import xla_client as xc

from xla_dynamo import interrupts, versions
from xla_dynamo.backend.graph import torch_private
from xla_dynamo.backend.jax_adapter import computation, cpu_client, loading
from xla_dynamo.backend.metrics import CompileRecord
from xla_dynamo.bookkeeping import optional
from xla_dynamo.errors import CompileError, DeviceUnavailable

from . import (
    gpu_order,
    host_kernels,
    host_memory,
    job,
    partitions,
    replica_arrays,
    wrong_fusions,
)
from .call_path import call_path
from .partitions import Partitions

Device = Any
Array = Any

# One device, those of a program's replicas, or those of its parts.
Where = Device | tuple[Device, ...] | Partitions


@functools.cache
def device(platform: str, index: int = 0, *, asynchronous: bool = False) -> Device:
    """Addressable device `index` of a PJRT platform.

    With `asynchronous`, launches on the CPU return before they are done, as they do elsewhere; such
    a device shares no arrays with the other kind.

    Raises:
        DeviceUnavailable: jaxlib cannot initialise the platform here, or has fewer devices.
    """
    try:
        with interrupts.deferred(once=True):  # a client that is half made is of no use
            devices = _client(platform, asynchronous).local_devices()
    except RuntimeError as error:
        raise DeviceUnavailable(
            f"PJRT platform {platform!r} cannot be initialised: {error}. Install its plug-in "
            "(libtpu, jax-cuda13-plugin, ...) or set XLA_DYNAMO_PLATFORM=cpu."
        ) from error
    if index >= len(devices):
        raise DeviceUnavailable(f"{platform}:{index} does not exist: {len(devices)} device(s).")
    return devices[index]


def _client(platform: str, asynchronous: bool) -> Any:
    """JAX's client of the platform, but on CPU our own, which can run in the caller's thread.

    A torch CPU tensor must be ready when a call returns, so a hand-over to another thread and back
    is pure cost: 9 us against 27 us for a two-layer MLP.
    """
    if platform != "cpu":
        return client_of_jax(platform)
    host_memory.keep_freed()
    host_kernels.register()
    joint = job.current()
    if asynchronous and joint is not None:
        return joint.client
    return cpu_client(asynchronous=asynchronous, devices=_cpu_devices() if asynchronous else None)


def client_of_jax(platform: str) -> Any:
    """JAX's client of a platform, made here without JAX's warning at every fork from then on.

    What is forked of a program of torch is workers of a DataLoader, which use no device; where a
    child does, the lazy device says what is wrong. A program that has used JAX itself is warned.
    """
    warned = getattr(xla_bridge, "_at_fork_handler_installed", False)
    xla_bridge._at_fork_handler_installed = True
    try:
        with gpu_order.memory_left_to_torch():
            return xla_bridge.get_backend(platform)
    finally:
        xla_bridge._at_fork_handler_installed = warned


@functools.cache
def _cpu_devices() -> int:
    """CPU_NUM_DEVICES, torch_xla's name for it: read once, so that there is one client."""
    return int(os.environ.get("CPU_NUM_DEVICES") or 1)


def device_count(platform: str, *, asynchronous: bool = False) -> int:
    """How many addressable devices a platform has.

    Raises:
        DeviceUnavailable: jaxlib cannot initialise the platform here.
    """
    return len(device(platform, asynchronous=asynchronous).client.local_devices())


def platform(of: Where) -> str:
    """The platform of a device, or of devices, as JAX's lowering names it: "cpu", "cuda", ..."""
    device = _devices(of)[0]
    if device.platform != "gpu":
        return device.platform
    return "rocm" if "rocm" in device.client.platform_version.lower() else "cuda"


def describe(of: Where) -> str:
    """For cache keys and reports: platform, kind, replicas, versions of client and jaxlib."""
    devices = _devices(of)
    one = devices[0]
    told = f"{one.platform}/{one.device_kind}/{one.client.platform_version}/{jax.__version__}"
    parts = "partitions" if isinstance(of, Partitions) else "replicas"
    return told if len(devices) == 1 else f"{told}/{len(devices)} {parts}"


@dataclass(frozen=True)
class Origin:
    """Where an executable is kept on disk, and what it was made of.

    executable: its key there.
    inputs, outputs: shapes and dtypes.
    shapes, nodes: as in the record of its compile.
    """

    executable: str
    inputs: Signature
    outputs: Signature
    shapes: tuple[str, ...]
    nodes: int


class Executable:
    """A compiled program: arrays in, arrays out, through jaxlib's C++ call path.

    On several devices, one for each replica, the arrays are stacks: see `replica_arrays`. Those of
    a program that is partitioned have a sharding: see `partitions`.
    """

    def __init__(
        self, loaded: Any, on: Where, inputs: Sequence[Any], outputs: Sequence[Any], name: str
    ) -> None:
        self.loaded = loaded
        self.devices = _devices(on)
        self.device = self.devices[0]
        self.arguments, self.results = len(inputs), len(outputs)
        self.aliases = 0  # results that take over the memory of an argument
        self.origin: Origin | None = None
        self.record: CompileRecord | None = None
        self.observed: Any = None  # what an observer of launches keeps here
        self.is_part = False  # of what is watched as a whole
        if isinstance(on, Partitions):
            split = partitions.chosen(loaded, on, [len(shape) for shape, _ in outputs])
            labels = [[partitions.label(s, on.devices) for s in of] for of in (on.inputs, split)]
            avals = [core.ShapedArray(*output) for output in outputs]
            self._call = call_path(name, loaded, labels[0], avals, labels[1])
            return
        number = len(self.devices)
        avals = [replica_arrays.stacked(number, tuple(shape), dtype) for shape, dtype in outputs]
        given, made = (
            [replica_arrays.sharding(self.devices, not shape) for shape, _ in of]
            for of in (inputs, outputs)
        )
        self._call = call_path(name, loaded, given, avals, made)

    def __call__(self, *arrays: Array) -> list[Array]:
        """Launch; returns before the device is done (reading an output waits)."""
        if torch_private.is_profiling():
            with torch.profiler.record_function(self.event):
                return self._call(*arrays)
        return self._call(*arrays)

    @functools.cached_property
    def event(self) -> str:
        """What profiles call a launch: "xla 0/0 forward (model.py:12)"."""
        if self.record is None:
            return "xla"
        return f"xla {self.record.graph} ({os.path.basename(self.record.location)})"

    def optimized_hlo(self) -> str:
        """The program after XLA's passes, as HLO text."""
        return "\n".join(module.to_string() for module in self.loaded.hlo_modules())

    def memory(self) -> Any:
        """XLA's memory statistics: argument, output, temporary and code sizes in bytes."""
        return self.loaded.get_compiled_memory_stats()

    def cost(self) -> dict[str, float]:
        """XLA's cost analysis: "flops", "bytes accessed", ..."""
        return dict(self.loaded.cost_analysis())

    def serialize(self) -> bytes:
        return self.device.client.serialize_executable(self.loaded)


_launch = Executable.__call__


def observe(launched: Callable[[Executable, int, int], None] | None) -> None:
    """Have each launch told: the program, the times (perf_counter_ns) of its call and its return.

    None: no more. A check in every launch would cost those who watch nothing.
    """
    tell = optional(None)(launched) if launched is not None else None

    def observed(self: Executable, *arrays: Array) -> list[Array]:
        if self.is_part:
            return _launch(self, *arrays)
        start = time.perf_counter_ns()
        results = _launch(self, *arrays)
        tell(self, start, time.perf_counter_ns())  # type: ignore[misc]
        return results

    Executable.__call__ = _launch if tell is None else observed


def ends_in_call(executable: Executable) -> bool:
    """Whether a program is done when its launch returns: one of torch.compile on CPU tensors."""
    device = executable.device
    return device.platform == "cpu" and device.client is cpu_client(asynchronous=False)


def own_devices(executable: Executable) -> list[Device]:
    """The devices of a program that are this process's."""
    own = executable.device.client.process_index()
    return [device for device in executable.devices if device.process_index == own]


Signature = Sequence[tuple[tuple[int, ...], np.dtype]]


def compile(
    module: Any,
    on: Where,
    inputs: Signature,
    outputs: Signature,
    overrides: Mapping[str, Any],
    name: str = "xla_dynamo",
    preferred: Mapping[str, Any] = MappingProxyType({}),
) -> Executable:
    """Compile a StableHLO module whose arguments and results are `inputs` and `outputs`.

    on: a device, or the devices of all replicas of the program, of which some can be of other
        processes. overrides: XLA's own options, as the user wants them. name: for profiles.
    preferred: options that suit the program, where the user says nothing.

    Raises:
        CompileError: with XLA's message.
        InstallationError: this jaxlib takes no programs in our form.
    """
    try:
        options = _options(on, {**preferred, **overrides})
    except Exception as error:  # a user's compiler option of a wrong type
        raise CompileError(f"XLA refused the program: {error}") from error
    try:
        loaded = _compiled(module, on, options)
        if platform(on) == "cpu" and (changes := wrong_fusions.remedy(loaded, overrides)):
            loaded = _compiled(module, on, _options(on, {**overrides, **changes}))
    except (TypeError, AttributeError) as error:
        raise versions.explain(f"jaxlib does not take programs as it did: {error}") from error
    except Exception as error:
        raise CompileError(f"XLA refused the program: {error}") from error
    return Executable(loaded, on, inputs, outputs, name)


def _compiled(module: Any, on: Where, options: Any) -> Any:
    devices = _devices(on)
    gpu_order.drain(devices[0])
    with module.context:
        return devices[0].client.compile_and_load(
            computation(module), _jax.DeviceList(devices), options
        )


def hlo_text(module: Any) -> str:
    """A StableHLO module as HLO text, before XLA's passes."""
    text = str(module.operation.get_asm(enable_debug_info=False))
    computation = _jax.mlir.mlir_module_to_xla_computation(text, use_tuple_args=False)
    return computation.as_hlo_text()


def portable_artifact(module: Any, version: str) -> bytes:
    """A StableHLO module in the form that later versions read; ops of chlo become composites."""
    data = io.BytesIO()
    module.operation.write_bytecode(data)
    return _jax.mlir.serialize_portable_artifact(data.getvalue(), version)


def compile_only(
    module: Any, on: Where, overrides: Mapping[str, Any] = MappingProxyType({})
) -> Any:
    """Compile for devices of a topology: the unloaded executable, for analysis only."""
    devices = _devices(on)
    with module.context:
        return devices[0].client.compile(
            computation(module), _jax.DeviceList(devices), _options(on, overrides)
        )


def deserialize(
    data: bytes,
    on: Where,
    inputs: Signature,
    outputs: Signature,
    overrides: Mapping[str, Any],
    name: str = "xla_dynamo",
) -> Executable:
    """The inverse of `Executable.serialize`, for the same device kind and versions."""
    options, devices = _options(on, overrides), _devices(on)
    with loading():
        loaded = devices[0].client.deserialize_executable(data, _jax.DeviceList(devices), options)
    return Executable(loaded, on, inputs, outputs, name)


def _devices(on: Where) -> tuple[Device, ...]:
    if isinstance(on, Partitions):
        return on.devices
    return on if isinstance(on, tuple) else (on,)


def _options(on: Where, overrides: Mapping[str, Any]) -> Any:
    options = xc.CompileOptions()
    ids = np.array([[device.id] for device in _devices(on)])
    if isinstance(on, Partitions):
        ids = ids.T
        build = options.executable_build_options
        build.use_spmd_partitioning = build.use_shardy_partitioner = True
        build.allow_spmd_sharding_propagation_to_output = [each is None for each in on.outputs]
    options.num_replicas, options.num_partitions = ids.shape
    options.device_assignment = xc.DeviceAssignment.create(ids)
    options.env_option_overrides = list(overrides.items())
    return options
