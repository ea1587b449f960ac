"""Collectives and rendezvous among the replicas of a program; here this process is the only one.

They return what torch_xla returns with a world size of 1; those that need a second replica raise
`NotAvailable`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from xla_dynamo.compat.device import step_barrier, torch_patches
from xla_dynamo.compat.recording import devices
from xla_dynamo.errors import NotAvailable

from .._absent import absent
from . import _transfer

REDUCE_SUM = "sum"
REDUCE_MUL = "mul"
REDUCE_AND = "and"
REDUCE_OR = "or"
REDUCE_MIN = "min"
REDUCE_MAX = "max"

_REDUCTIONS = (REDUCE_SUM, REDUCE_MUL, REDUCE_AND, REDUCE_OR, REDUCE_MIN, REDUCE_MAX)
Tensors = torch.Tensor | list[torch.Tensor]


class CollectiveContext:
    """Where a collective runs: one replica of one host (torch_xla 1.8 to 2.0)."""

    def __init__(self, groups: Any = None) -> None:
        self.replica_devcount = self.world_size = 1
        self.requires_interhost_reduce = False
        self.intercore_group: list[list[int]] = []
        self.interhost_group = None


def all_reduce(
    reduce_type: str,
    inputs: Tensors,
    scale: float = 1.0,
    groups: Any = None,
    cctx: Any = None,
    pin_layout: bool = True,
) -> Tensors:
    """The inputs times `scale`: a tensor gives a new one, a list is changed in place.

    torch_xla's documentation has it so; torch_xla itself does not scale for one replica.

    Raises:
        ValueError: an unknown reduce_type.
    """
    _check_reduction(reduce_type)
    if isinstance(inputs, torch.Tensor):
        return inputs.clone() if scale == 1.0 else inputs * scale
    if scale != 1.0:
        with torch.no_grad():
            for tensor in inputs:
                tensor.mul_(scale)
    return inputs


def all_gather(
    value: torch.Tensor,
    dim: int = 0,
    groups: Any = None,
    output: torch.Tensor | None = None,
    pin_layout: bool = True,
    channel_id: int | None = None,
    use_global_device_ids: bool | None = None,
) -> torch.Tensor:
    """The values of all replicas, concatenated along `dim`: `value`, or `output` filled with it."""
    return value if output is None else output.copy_(value)


def all_gather_bucketized(
    input_list: list[torch.Tensor],
    dim: int = 0,
    groups: Any = None,
    output: list[torch.Tensor] | None = None,
    pin_layout: bool = False,
    bucket_cap_mb: int = 160,
) -> list[torch.Tensor]:
    """all_gather of each tensor."""
    outputs = output or [None] * len(input_list)
    return [
        all_gather(value, dim, output=out) for value, out in zip(input_list, outputs, strict=True)
    ]


def all_to_all(
    value: torch.Tensor,
    split_dimension: int,
    concat_dimension: int,
    split_count: int,
    groups: Any = None,
    pin_layout: bool = True,
) -> torch.Tensor:
    """Split, exchange, concatenate: with one replica and split_count 1, `value`.

    Raises:
        NotAvailable: split_count is not 1.
    """
    _check_one("all_to_all", "split_count", split_count)
    return value


def reduce_scatter(
    reduce_type: str,
    input: Tensors,
    scale: float,
    scatter_dim: int,
    shard_count: int,
    groups: Any = None,
    output: Any = None,
    pin_layout: bool = True,
    channel_id: int | None = None,
    use_global_device_ids: bool | None = None,
) -> Tensors:
    """Reduce and keep this replica's shard, scaled: with one replica, `input * scale`.

    Raises:
        NotAvailable: shard_count is not 1.
        ValueError: an unknown reduce_type.
    """
    _check_reduction(reduce_type)
    _check_one("reduce_scatter", "shard_count", shard_count)
    scaled = pytree.tree_map(lambda value: value * scale, input)
    return scaled if output is None else pytree.tree_map(torch.Tensor.copy_, output, scaled)


def reduce_scatter_bucketized(
    reduce_type: str,
    input_list: list[torch.Tensor],
    scale: float,
    scatter_dim: int,
    shard_count: int,
    groups: Any = None,
    output: Any = None,
    pin_layout: bool = False,
    bucket_cap_mb: int = 160,
) -> Tensors:
    """reduce_scatter of each tensor."""
    return reduce_scatter(
        reduce_type, input_list, scale, scatter_dim, shard_count, groups, output, pin_layout
    )


def collective_permute(value: torch.Tensor, pairs: Sequence[Sequence[int]]) -> torch.Tensor:
    """Send along (source, target) pairs: a copy of `value`, or zeros if nobody sends to replica 0.

    Raises:
        NotAvailable: a pair names a replica other than 0.
    """
    others = {ordinal for pair in pairs for ordinal in pair} - {0}
    if others:
        raise NotAvailable(
            f"collective_permute names replicas {sorted(others)}, and there is one, 0: guard the "
            "call by `if xr.world_size() > 1`"
        )
    return value.clone() if pairs else torch.zeros_like(value)


def collective_broadcast(
    tensors: list[torch.Tensor], root_ordinal: int = 0, groups: Any = None, pin_layout: bool = True
) -> None:
    """Overwrite `tensors` by those of the root replica: nothing, the root being this one.

    Raises:
        NotAvailable: the root is another one.
    """
    if root_ordinal != 0:
        raise NotAvailable(f"collective_broadcast from replica {root_ordinal}: there is one, 0")


def broadcast_master_param(model: torch.nn.Module) -> None:
    """Overwrite parameters and buffers by those of replica 0; ends with a barrier."""
    step_barrier.mark_step()


send = absent("xm.send has no other replica to send to: pass the tensor itself on")
recv = absent("xm.recv has no other replica to receive from: use the tensor itself")


def rendezvous(tag: str, payload: bytes = b"", replicas: Sequence[int] = ()) -> list[bytes]:
    """Wait for all replicas, after a barrier; the payload of each, by ordinal.

    Raises:
        TypeError: payload is not bytes.
    """
    if not isinstance(payload, bytes):
        raise TypeError(f"`payload` must be bytes, not {type(payload)}")
    step_barrier.mark_step()
    return [payload]


def xla_rendezvous(
    payload: bytes = b"", ordinals: Sequence[int] | None = None, tag: str | None = None
) -> list[bytes]:
    """`rendezvous` with its arguments in another order."""
    return rendezvous(tag or "", payload, ordinals or ())


def mesh_reduce(tag: str, data: Any, reduce_fn: Callable[[list[Any]], Any]) -> Any:
    """reduce_fn of the list of every replica's `data`, its tensors on the CPU."""
    mine = copy.deepcopy(_transfer.to_cpu(data))
    rendezvous(tag)
    return reduce_fn([mine])


def do_on_ordinals(
    target: Callable[..., Any], data: Any = (), ordinals: Iterable[int] | int = (0,)
) -> Any:
    """target(*data), tensors on the CPU, on the replicas `ordinals`; None elsewhere."""
    chosen = {ordinals} if isinstance(ordinals, int) else set(ordinals)
    running = 0 in chosen
    arguments = _transfer.to_cpu(data, convert=running)
    result = target(*arguments) if running else None
    rendezvous("torch_xla.core.xla_model.do_on_ordinals")
    return result


def set_replication(device: devices.Named, replicas: Sequence[devices.Named] | None) -> None:
    """Make `device` the thread's default; the replicas of one program are not set up here.

    Accelerate, which calls this, then reads from LOCAL_RANK whether this process may print.
    """
    devices.set_default(device)
    torch_patches.set_variable("LOCAL_RANK", "0")


def _check_reduction(reduce_type: str) -> None:
    if reduce_type not in _REDUCTIONS:
        raise ValueError(f"reduce_type {reduce_type!r} is not one of {', '.join(_REDUCTIONS)}")


def _check_one(function: str, argument: str, value: int) -> None:
    if value != 1:
        raise NotAvailable(
            f"{function} with {argument}={value} needs {value} replicas, and there is one: pass "
            f"{argument}=xr.world_size()"
        )
