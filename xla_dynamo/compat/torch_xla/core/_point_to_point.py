"""Tensors from one replica to another, by way of the host, as their programs need not be alike.

What a replica has recorded with collectives is launched before it sends, and before it waits: the
other may need it on the way here.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from xla_dynamo.compat.device import step_barrier
from xla_dynamo.compat.recording import devices, pending, replicas
from xla_dynamo.errors import NotAvailable, ReplicaError


def send_to(address: str, tensor: torch.Tensor) -> None:
    """Send a tensor to who receives what comes for `address`.

    Raises:
        ReplicaError: he receives nothing.
        NotAvailable: there is one replica.
    """
    _launch_collectives()
    _world().send(address, tensor.detach().cpu())


def reserve(address: str) -> int:
    """The number of the next tensor to be received from an address, for `receive_from`."""
    return _world().reserve(address)


def receive_from(address: str, number: int, into: torch.Tensor) -> None:
    """Copy a tensor that was sent to `address` into another of as many elements.

    Raises:
        ReplicaError: none comes, or one of another size or dtype.
        NotAvailable: there is one replica.
    """
    _launch_collectives()
    _copy(_world().receive(address, number), into, address)


def receive_from_any(addresses: Sequence[str], into: torch.Tensor) -> int:
    """The same from any of several: its position."""
    _launch_collectives()
    which, sent = _world().receive_any(addresses)
    _copy(sent, into, addresses[which])
    return which


def send(value: torch.Tensor, channel_id: int) -> torch.Tensor:
    """Send `value` to the replica that calls recv with this channel; gives it back.

    Raises:
        ReplicaError: nobody receives.
        NotAvailable: there is one replica.
    """
    send_to(f"channel {channel_id}", value)
    return value


def recv(output: torch.Tensor, channel_id: int) -> torch.Tensor:
    """What another replica sends by this channel, with the shape, dtype and device of `output`.

    Raises:
        ReplicaError: nothing is sent, or a tensor of another size or dtype.
        NotAvailable: there is one replica.
    """
    result, address = torch.empty_like(output), f"channel {channel_id}"
    receive_from(address, reserve(address), result)
    return result


def _world() -> replicas.World:
    member = replicas.current()
    if member is None:
        raise NotAvailable("send and recv: there is no other replica to send to, or receive from")
    return member.world


def _launch_collectives() -> None:
    trace = pending.trace(devices.default())
    if trace.state.collective:
        step_barrier.launch(trace.device)


def _copy(sent: torch.Tensor, into: torch.Tensor, address: str) -> None:
    if (sent.numel(), sent.dtype) != (into.numel(), into.dtype):
        raise ReplicaError(
            f"{address}: {sent.dtype} {list(sent.shape)} was sent, and is to be received as "
            f"{into.dtype} {list(into.shape)}"
        )
    with torch.no_grad():
        into.copy_(sent.reshape(into.shape))
