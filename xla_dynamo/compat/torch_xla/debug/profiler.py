"""torch_xla.debug.profiler on jax.profiler: a server for TensorBoard, traces, named regions.

A region costs nothing to speak of until a server or a trace was started.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from xla_dynamo import versions
from xla_dynamo.compat.device import step_barrier
from xla_dynamo.errors import XlaDynamoError
from xla_dynamo.lazily import lazily

if TYPE_CHECKING:
    import jax
else:
    jax = lazily("jax", globals())

_LOCAL = ("localhost", "127.0.0.1", "[::1]", "0.0.0.0")
_lock = threading.Lock()
_ports: set[int] = set()
_tracing = False
_marked_step = False


class ProfilerServer:
    """A running server; it stops when this object is dropped."""

    def __init__(self, port: int) -> None:
        self.port = port


def start_server(port: int, only_on_master: bool = True) -> ProfilerServer:
    """Serve profiles to TensorBoard (or `trace`) on a port, as long as the result is kept.

    Raises:
        RuntimeError: a server runs already, or the port is invalid.
        XlaDynamoError: a libtpu is loaded that this jax cannot profile with.
    """
    if not 0 < port < 65_536:
        raise RuntimeError(f"{port} is not a port: 1 to 65535")
    _refuse_other_libtpu()
    try:
        jax.profiler.start_server(port)
    except ValueError as error:
        raise RuntimeError(f"the profiler's server did not start: {error}") from error
    server = ProfilerServer(port)
    _ports.add(port)
    weakref.finalize(server, _stop_server, port)
    return server


def _stop_server(port: int) -> None:
    _ports.discard(port)
    jax.profiler.stop_server()


def trace(
    service_addr: str,
    logdir: str | os.PathLike[str],
    duration_ms: int = 1000,
    num_tracing_attempts: int = 3,
    host_tracer_level: int = 2,
    device_tracer_level: int = 1,
    delay_ms: int = 0,
    timeout_s: int = 120,
    interval_s: int = 5,
) -> None:
    """Profile this process for `duration_ms`, from `delay_ms` on, into a folder for TensorBoard.

    service_addr: the address of the server that this process started: "localhost:9012".
    num_tracing_attempts, timeout_s, interval_s: nothing; no network is between.

    Raises:
        XlaDynamoError: the address is of another process.
        RuntimeError: a profile is being taken.
    """
    for address in service_addr.split(","):
        host, _, port = address.removeprefix("grpc://").rpartition(":")
        if host not in _LOCAL or not port.isdecimal() or int(port) not in _ports:
            raise XlaDynamoError(
                f"{address} is not the server of this process. Profile another process with "
                "`python -m jax.collect_profile PORT DURATION_MS`, or call start_trace and "
                "stop_trace in it."
            )
    time.sleep(delay_ms / 1000)
    start_trace(logdir, host_tracer_level, device_tracer_level)
    try:
        time.sleep(duration_ms / 1000)
    finally:
        stop_trace()


def trace_detached(*args: Any, **kwargs: Any) -> None:
    """`trace` in a thread of its own."""
    threading.Thread(target=trace, args=args, kwargs=kwargs).start()


def start_trace(
    log_dir: str | os.PathLike[str], host_tracer_level: int = 2, device_tracer_level: int = 1
) -> None:
    """Profile until `stop_trace`, into a folder for TensorBoard.

    Raises:
        RuntimeError: a profile is being taken.
        XlaDynamoError: a libtpu is loaded that this jax cannot profile with.
    """
    global _tracing
    with _lock:
        if _tracing:
            raise RuntimeError("Profile has already been started. Only one profile may be run.")
        _refuse_other_libtpu()
        options = jax.profiler.ProfileOptions()
        options.host_tracer_level = host_tracer_level
        options.device_tracer_level = device_tracer_level
        jax.profiler.start_trace(log_dir, profiler_options=options)
        _tracing = True


def _refuse_other_libtpu() -> None:
    """jaxlib and libtpu share a C struct of the profiler: another size of it ends the process."""
    if "libtpu" not in sys.modules:
        return
    wanted = versions.other_libtpu_wanted()
    if wanted is not None:
        raise XlaDynamoError(
            f"libtpu {versions.installed('libtpu')} is loaded, and jax {versions.installed('jax')} "
            f"can profile with libtpu=={wanted}.* only. pip install 'jax[tpu]' installs it."
        )


def stop_trace() -> None:
    """End the profile and write it.

    Raises:
        RuntimeError: none was started.
    """
    global _tracing
    with _lock:
        if not _tracing:
            raise RuntimeError("No profile started")
        _tracing = False
        jax.profiler.stop_trace()


class Trace:
    """A region that profiles show by name: `with Trace("forward"):`; kwargs are shown with it."""

    _annotation = "TraceAnnotation"  # of jax.profiler

    def __init__(self, name: str, **kwargs: Any) -> None:
        self.name = name
        self._details = kwargs
        self._region: Any = None

    def __enter__(self) -> Trace:
        if _tracing or _ports:
            self._region = getattr(jax.profiler, self._annotation)(self.name, **self._details)
            self._region.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        if self._region is not None:
            self._region.__exit__(*error)
            self._region = None


class StepTrace(Trace):
    """A region that is a training step: it ends with a barrier. `StepTrace("step", step_num=3)`."""

    _annotation = "StepTraceAnnotation"

    def __enter__(self) -> Trace:
        set_tracer_marked_step(True)
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        try:
            step_barrier.mark_step()
        finally:
            super().__exit__(*error)


def trace_me(scope: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: calls of the function are regions called `scope`."""

    @contextlib.contextmanager
    def region() -> Iterator[None]:
        with Trace(scope):
            yield

    return region()  # a decorator, which makes a new region for each call


@contextlib.contextmanager
def profile(log_dir: str | os.PathLike[str]) -> Iterator[None]:
    """Profile a block into a folder for TensorBoard."""
    start_trace(log_dir)
    try:
        yield
    finally:
        stop_trace()


def set_tracer_marked_step(value: bool) -> None:
    """Note whether a StepTrace ends the steps, so that a loader need not."""
    global _marked_step
    _marked_step = value


def get_tracer_marked_step() -> bool:
    """Whether a StepTrace ends the steps."""
    return _marked_step
