"""Where replicas wait for each other outside of a program, and exchange what is not on a device."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from xla_dynamo.compat.device import step_barrier, torch_patches
from xla_dynamo.compat.recording import devices, replicas

from . import _transfer


def rendezvous(
    tag: str,
    payload: bytes = b"",
    replicas: Sequence[int] = (),  # torch_xla's name
) -> list[bytes]:
    """Wait for all replicas, after a barrier; the payload of each, by ordinal.

    Raises:
        TypeError: payload is not bytes.
        ReplicaError: not all come.
    """
    if not isinstance(payload, bytes):
        raise TypeError(f"`payload` must be bytes, not {type(payload)}")
    step_barrier.mark_step()
    return _exchange(tag, payload)


def _exchange(tag: str, item: Any) -> list[Any]:
    member = replicas.current()
    return [item] if member is None else member.world.exchange(member.rank, tag, item)


def _local_rank() -> int:
    return replicas.local_rank()


def xla_rendezvous(
    payload: bytes = b"", ordinals: Sequence[int] | None = None, tag: str | None = None
) -> list[bytes]:
    """`rendezvous` with its arguments in another order."""
    return rendezvous(tag or "", payload, ordinals or ())


def mesh_reduce(tag: str, data: Any, reduce_fn: Callable[[list[Any]], Any]) -> Any:
    """reduce_fn of the list of every replica's `data`, its tensors on the CPU."""
    mine = copy.deepcopy(_transfer.to_cpu(data))
    step_barrier.mark_step()
    return reduce_fn(copy.deepcopy(_exchange(tag, mine)))


def do_on_ordinals(
    target: Callable[..., Any], data: Any = (), ordinals: Iterable[int] | int = (0,)
) -> Any:
    """target(*data), tensors on the CPU, on the replicas `ordinals`; None elsewhere."""
    chosen = {ordinals} if isinstance(ordinals, int) else set(ordinals)
    running = replicas.rank() in chosen
    arguments = _transfer.to_cpu(data, convert=running)
    result = target(*arguments) if running else None
    rendezvous("torch_xla.core.xla_model.do_on_ordinals")
    return result


def set_replication(device: devices.Named, replicas: Sequence[devices.Named] | None) -> None:
    """Make `device` the thread's default.

    Accelerate, which calls this, then reads from LOCAL_RANK whether this process may print.
    """
    devices.set_default(device)
    torch_patches.set_variable("LOCAL_RANK", str(_local_rank()))
