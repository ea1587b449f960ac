# pyright: reportAttributeAccessIssue=false
"""JAX's coordination service, in a process of its own.

    python coordinator.py COUNT SECONDS HOST PORT GRACE    prints the address; ends with stdin

There it outlives each replica, so that the others learn why one has ended, and who started it can
be forked. The process imports nothing but jaxlib. Private API met here:
_jax.get_distributed_runtime_service.

| from  | what is new |
|-------|-------------|
| 0.8.0 | whether a process may die without the others is told to the service, not to the client |
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from typing import Any

from jaxlib import _jax, version

_HEARTBEAT = 10  # seconds; with very long ones, get_live_nodes blocked
_SHUTDOWN = 5
_TOLD_TO_THE_SERVICE = tuple(version.__version_info__) >= (0, 8)
_TRIES = 5
_GRACE = 30  # seconds, in which the others end after the first
_DONE = b"all have left"


def serve(count: int, seconds: int, host: str, port: int = 0) -> tuple[str, Any]:
    """A service for `count` processes, which come within `seconds`: its address, and itself.

    It lives as long as what this returns. A process that dies does not end the others.

    host, port: what it listens to; without a port, one that is free.
    """
    more = {"recoverable": True} if _TOLD_TO_THE_SERVICE else {}
    for left in reversed(range(1 if port else _TRIES)):
        with socket.socket() as probe:
            probe.bind((host, port))
            address = f"{host}:{probe.getsockname()[1]}"
        try:
            return address, _jax.get_distributed_runtime_service(
                address,
                count,
                heartbeat_timeout=_HEARTBEAT,
                cluster_register_timeout=seconds,
                shutdown_timeout=_SHUTDOWN,
                **more,
            )
        except Exception:  # another process took the port meanwhile
            if not left:
                raise
    raise AssertionError


class Apart:
    """A service in a process of its own, which lives `grace` seconds longer than this one.

    address: for the processes, "host:port"; the port is free, or the one that is given.

    Raises:
        RuntimeError: it does not start, as where the port is taken.
    """

    def __init__(
        self,
        count: int,
        seconds: int,
        host: str = "127.0.0.1",
        port: int = 0,
        grace: int = _GRACE,
    ) -> None:
        given = str(count), str(seconds), host, str(port), str(grace)
        arguments = [sys.executable, os.path.abspath(__file__), *given]
        quiet = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"}
        self._process = subprocess.Popen(
            arguments,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,  # a reader of this process's would wait for it
            env=quiet,
            start_new_session=True,
        )
        assert self._process.stdout is not None
        self.address = self._process.stdout.readline().decode().strip()
        if not self.address:
            why = self._process.communicate()[1].decode()
            raise RuntimeError(f"JAX's coordination service does not start: {why}")

    def end(self) -> None:
        """End it at once: all have left."""
        self._process.communicate(_DONE)


def _main(count: str, seconds: str, host: str, port: str, grace: str) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C: who started this ends by it
    address, service = serve(int(count), int(seconds), host, int(port))
    print(address, flush=True)
    if sys.stdin.buffer.read() != _DONE:
        time.sleep(int(grace))
    del service


if __name__ == "__main__":
    _main(*sys.argv[1:])
