"""torch_xla.experimental.pjrt, later torch_xla._internal.pjrt: starting replicas; here one runs.

1.13 and 2.0 had the names of torch_xla.runtime here too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .. import runtime
from ..core import xla_model
from ..distributed import xla_multiprocessing

broadcast_master_param = xla_model.broadcast_master_param
rendezvous = xla_model.xla_rendezvous
device_attributes = runtime.runtime_device_attributes
global_device_attributes = runtime.global_runtime_device_attributes


def __getattr__(name: str) -> Any:
    return getattr(runtime, name)


def spawn(
    fn: Callable[..., Any],
    nprocs: int | None = None,
    start_method: str = "spawn",
    args: Sequence[Any] = (),
) -> None:
    """fn(0, *args)."""
    xla_multiprocessing.spawn(fn, args=tuple(args), nprocs=nprocs, start_method=start_method)


def spawn_threads(fn: Callable[..., Any], args: Sequence[Any] = ()) -> None:
    """fn(0, *args); a process group that it makes ends with it."""
    xla_multiprocessing.run_replica(fn, 0, *args)


def run_multiprocess(
    fn: Callable[..., Any], *args: Any, start_method: str = "spawn", **kwargs: Any
) -> dict[int, Any]:
    """{0: fn(*args)}: the result by replica; a process group that `fn` makes ends with it."""
    return {0: xla_multiprocessing.run_replica(fn, *args, **kwargs)}


def initialize_multiprocess(local_rank: int = 0, local_world_size: int = 1) -> None:
    """Nothing: this process is the only replica."""


initialize_singleprocess = initialize_multiprocess
