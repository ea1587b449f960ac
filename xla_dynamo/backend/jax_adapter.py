"""JAX as a part of this program: apart from the state of the user's JAX, whatever its version.

The one file that knows where jax and jaxlib differ. Seen: 0.7.2 to 0.12.0. Private API met here:
xla_client.make_cpu_client, utils.absl_set_min_log_level, logging_config, and of _jax
get_distributed_runtime_client, make_gloo_tcp_collectives; mlir.make_ir_context.

| from   | what is new |
|--------|-------------|
| 0.8.0  | an MLIR context keeps no table of operations by address, which may be another's later |
| 0.8.0  | `jax.enable_x64`; `Client.compile_and_load` takes a module, not only its bytecode |
|        | whether a process may die without the others is told to the service, not to the client |
| 0.8.1  | `dlpack_managed_tensor_to_buffer` has a parameter `copy` |
|        | until 0.10.1, loading a program logs LLVM's tuning flags as features that the CPU lacks |
| 0.8.3  | XLA:CPU's collectives give up after a time that a flag sets |
| 0.10.0 | `jax.lax.linalg.ormqr`; XLA:CPU can order operations so that they need little memory |
| 0.10.1 | `jax.scipy.special.erfcx` |
| 0.10.2 | `dlpack_managed_tensor_to_buffer` has a parameter `dl_device_type` |
|        | until 0.11.0, XLA:CPU gets some fusions wrong: `runtime.wrong_fusions` knows them |
| 0.11.2 | StableHLO 1.20 and newer: torch-mlir 20261001 writes 1.19 (see `lowering.importer`) |
"""

from __future__ import annotations

import functools
import io
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax, version
from jax._src import logging_config
from jax._src.interpreters import mlir
from jax._src.lib import _jax, utils, xla_client  # pyright: ignore[reportPrivateImportUsage]
from jax.scipy import special

from . import cpu_threads

VERSION = version.__version_info__
_WIDE = frozenset(map(np.dtype, ("int64", "uint64", "float64", "complex128")))
# Older versions end the process where they meet a flag that they do not know.
COLLECTIVE_TIMEOUT_FLAG = "--xla_cpu_collective_timeout_seconds" if VERSION >= (0, 8, 3) else ""
# XLA:CPU's options for programs that shall need little memory; by default it orders operations so
# that many can run at once.
LEAST_MEMORY = (
    {"xla_cpu_scheduler_type": "CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED"} if VERSION >= (0, 10) else {}
)
SHARES_CONTEXTS = VERSION >= (0, 8)  # an MLIR context can serve for more than one program


@contextmanager
def apart(*, wide: bool = True, platform: str = "cpu") -> Iterator[None]:
    """Trace and lower within: 64-bit types keep their width, and JAX's devices are not asked for.

    With `wide=False` there are no 64-bit types.
    platform: what is lowered for. Pallas asks JAX what TPU it is.

    JAX would initialise every plug-in that is installed, for the process and for the user's own
    JAX code, where a trace needs but a place for constants.
    """
    device = jax.default_device(cpu_client(asynchronous=False).local_devices()[0])
    with _enable_x64(wide), device, _of_a_tpu() if platform == "tpu" else nullcontext():
        yield


def _of_a_tpu() -> AbstractContextManager[Any]:
    """What asks for the kind of TPU is told of a v5e, within; what a program may ask is the same.

    It asks for tiles, and whether there is arithmetic of bfloat16, which TPUs have since v4.
    """
    platform = {"platform": "tpu"} if VERSION >= (0, 10, 1) else {}
    chip = jax.sharding.AbstractDevice("TPU v5 lite", 1, **platform)
    return jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((), (), abstract_device=chip))


def new_context() -> Any:
    """An MLIR context with JAX's dialects."""
    return mlir.make_ir_context()


@contextmanager
def lowering_into(context: Any) -> Iterator[None]:
    """This thread's next lowering takes `context`: to make one is half of what a small one takes.

    One thread at a time.
    """
    usual, thread, given = mlir.make_ir_context, threading.get_ident(), [context]

    def make() -> Any:
        return given.pop() if given and threading.get_ident() == thread else usual()

    mlir.make_ir_context = make
    try:
        yield
    finally:
        mlir.make_ir_context = usual


def cpu_client(*, asynchronous: bool, devices: int | None = None) -> Any:
    """A client of XLA:CPU, which is not JAX's: the same one for the same arguments."""
    with _creating:  # two threads that come first get one client
        return _cpu_client(asynchronous, devices)


_creating = threading.Lock()


# The part of a launch on one device keeps a thread of the client's pool while it waits for the
# others, and the next launch may already hold some: with fewer than two a device, N + 1 launches of
# a small program hang for 40 s, and end the process. jaxlib 0.10.2 starts one a device, or a core.
_THREADS_OF_DEVICE = 4
_THREADS = "PJRT_NPROC"


@functools.cache
def _cpu_client(asynchronous: bool, devices: int | None) -> Any:
    with _pool_of(devices or 1):
        return xla_client.make_cpu_client(asynchronous=asynchronous, num_devices=devices)


def processes_client(service: Any, rank: int, count: int, devices: int, host: str) -> Any:
    """A client of XLA:CPU whose collectives reach those of `count` processes, by gloo.

    Args:
        service: this process's connection: see `coordination_client`.
        host: the name or address of this host for the others.
    """
    with _pool_of(devices):
        return xla_client.make_cpu_client(
            asynchronous=True,
            distributed_client=service,
            node_id=rank,
            num_nodes=count,
            collectives=_jax.make_gloo_tcp_collectives(service, hostname=host),
            num_devices=devices,
        )


_HEARTBEAT = 10  # seconds; with very long ones, get_live_nodes blocked
_SHUTDOWN = 5


def coordination_client(address: str, rank: int, seconds: int) -> Any:
    """The connection of process `rank` to the service, after all have come.

    Raises:
        RuntimeError: not all came.
    """
    more = {} if VERSION >= (0, 8) else {"recoverable": True}
    client = _jax.get_distributed_runtime_client(
        address,
        rank,
        init_timeout=seconds,
        shutdown_timeout=_SHUTDOWN,
        heartbeat_timeout=_HEARTBEAT,
        # Without one, jaxlib ends the process where `connect` fails. It never runs, as jaxlib
        # cannot make a Python object of its argument.
        missed_heartbeat_callback=lambda status: None,
        shutdown_on_destruction=False,
        **more,
    )
    client.connect()
    return client


@contextmanager
def _pool_of(devices: int) -> Iterator[None]:
    """A client of so many devices that is made within gets the threads it needs."""
    number = _THREADS_OF_DEVICE * devices if devices > 1 else cpu_threads.fixed()
    with _variable(_THREADS, number), cpu_threads.bound():
        yield


@contextmanager
def _variable(name: str, value: int | None) -> Iterator[None]:
    """An environment variable, unless the user has set it; none for None."""
    if value is None or name in os.environ:
        yield
        return
    os.environ[name] = str(value)
    try:
        yield
    finally:
        del os.environ[name]


def narrow() -> AbstractContextManager[None]:
    """Within `apart`: no 64-bit types, as Pallas's kernels for TPUs need it."""
    return _enable_x64(False)


def is_wide(dtype: Any) -> bool:
    """Whether JAX by default has a narrower type in place of `dtype`."""
    return np.dtype(dtype) in _WIDE


def _enable_x64(enabled: bool) -> AbstractContextManager[None]:
    """Whether JAX's 64-bit types keep their width within."""
    if VERSION >= (0, 8):
        return jax.enable_x64(enabled)
    from jax import experimental

    return experimental.enable_x64(enabled)  # pyright: ignore


def computation(module: Any) -> Any:
    """A StableHLO module in the form that `Client.compile_and_load` takes."""
    if VERSION >= (0, 8):
        return module
    bytecode = io.BytesIO()
    module.operation.write_bytecode(bytecode)
    return bytecode.getvalue()


@contextmanager
def loading() -> Iterator[None]:
    """Machine code for this very CPU is loaded within: XLA reports no features that it lacks."""
    if not (0, 8, 1) <= VERSION < (0, 10, 2):
        yield
        return
    with errors_only():
        yield


@contextmanager
def errors_only() -> Iterator[None]:
    """XLA's C++ code logs nothing within."""
    utils.absl_set_min_log_level(3)  # of absl's levels the last: what ends the process
    try:
        yield
    finally:
        # Nothing tells the level: JAX sets the variable, and its own setting goes before.
        utils.absl_set_min_log_level(int(os.environ["TF_CPP_MIN_LOG_LEVEL"]))
        logging_config._set_cpp_min_log_level(jax.config.jax_logging_level)  # pyright: ignore


def settings() -> str:
    """JAX's settings, of which some decide what rules are lowered to."""
    return repr(sorted(jax.config.values.items(), key=lambda item: item[0]))


def dlpack_importer(native: Callable[..., Any]) -> Callable[..., Any]:
    """jaxlib's function, as (capsule, device, stream, copy, DLPack device type)."""
    if VERSION >= (0, 10, 2):
        return native
    return lambda capsule, on, stream, copy, kind: native(capsule, on, stream)


def ormqr(a: Array, taus: Array, c: Array, *, left: bool, transpose: bool) -> Array:
    """`c` times the whole Q of a QR factorization as `lax.linalg.geqrf` gives it."""
    if VERSION >= (0, 10):
        return lax.linalg.ormqr(a, taus, c, left=left, transpose=transpose)
    lead = [(0, 0)] * (a.ndim - 2)
    order = a.shape[-2]
    square = jnp.pad(a[..., :order], [*lead, (0, 0), (0, max(order - a.shape[-1], 0))])
    q = lax.linalg.householder_product(square, taus)
    q = q.mT.conj() if transpose else q
    return q @ c if left else c @ q


def erfcx(x: Array) -> Array:
    """exp(x ** 2) * erfc(x), where erfc(x) is not too small."""
    return special.erfcx(x) if VERSION >= (0, 10, 1) else jnp.exp(x * x) * lax.erfc(x)
