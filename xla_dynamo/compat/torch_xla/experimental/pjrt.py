"""torch_xla.experimental.pjrt, later torch_xla._internal.pjrt: starting replicas.

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
    """See torch_xla.distributed.xla_multiprocessing.spawn."""
    xla_multiprocessing.spawn(fn, args=tuple(args), nprocs=nprocs, start_method=start_method)


def spawn_threads(fn: Callable[..., Any], args: Sequence[Any] = ()) -> None:
    """fn(rank, *args) in a thread for each device of a CPU."""
    xla_multiprocessing.spawn_threads(fn, tuple(args))


def run_multiprocess(
    fn: Callable[..., Any], *args: Any, start_method: str = "spawn", **kwargs: Any
) -> dict[int, Any]:
    """fn(*args), by replica: in a thread for each device of a CPU, else here."""
    results = xla_multiprocessing.spawn_threads(lambda rank: fn(*args, **kwargs))
    return dict(enumerate(results))


def initialize_multiprocess(local_rank: int = 0, local_world_size: int = 1) -> None:
    """Nothing: what starts replicas tells them all they need."""


initialize_singleprocess = initialize_multiprocess
