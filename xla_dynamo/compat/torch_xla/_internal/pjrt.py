"""torch_xla._internal.pjrt: starting replicas; here there is one, in this process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..distributed import xla_multiprocessing


def spawn(
    fn: Callable[..., Any],
    nprocs: int | None = None,
    start_method: str = "spawn",
    args: Sequence[Any] = (),
) -> None:
    """fn(0, *args)."""
    xla_multiprocessing.spawn(fn, args=tuple(args), nprocs=nprocs, start_method=start_method)


def spawn_threads(fn: Callable[..., Any], args: Sequence[Any] = ()) -> None:
    """fn(0, *args)."""
    fn(0, *args)


def run_multiprocess(
    fn: Callable[..., Any], *args: Any, start_method: str = "spawn", **kwargs: Any
) -> dict[int, Any]:
    """{0: fn(*args)}: the result by replica."""
    return {0: fn(*args, **kwargs)}


def initialize_multiprocess(local_rank: int, local_world_size: int) -> None:
    """Nothing: this process is the only replica."""


def initialize_singleprocess() -> None:
    """Nothing: this process is the only replica."""
