"""Collectives among replicas, recorded as ops of the step; alone, what torch_xla gives for one.

Replicas are the threads of a DataParallel, or the processes of xmp.spawn: see recording.replicas.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from xla_dynamo.compat.device import step_barrier
from xla_dynamo.compat.kernels.manual_sharding import Map, group_size, is_manual, through
from xla_dynamo.compat.recording import replicas
from xla_dynamo.errors import NotAvailable

REDUCE_SUM = "sum"
REDUCE_MUL = "mul"
REDUCE_AND = "and"
REDUCE_OR = "or"
REDUCE_MIN = "min"
REDUCE_MAX = "max"

_REDUCTIONS = (REDUCE_SUM, REDUCE_MUL, REDUCE_AND, REDUCE_OR, REDUCE_MIN, REDUCE_MAX)
Tensors = torch.Tensor | list[torch.Tensor]
ops = torch.ops.xla_dynamo
aten = torch.ops.aten


class CollectiveContext:
    """Where a collective runs (torch_xla 1.8 to 2.0)."""

    def __init__(self, groups: Any = None) -> None:
        self.replica_devcount = self.world_size = replicas.size()
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
    """Reduce over each group of replicas, times `scale`: a tensor gives a new one, a list is
    changed in place.

    groups: lists of ordinals, of equal length; default: one of all replicas.

    Raises:
        ValueError: an unknown reduce_type, or groups that do not name each replica once.
    """
    _check_reduction(reduce_type)
    if isinstance(inputs, torch.Tensor):
        sum_up = functools.partial(_reduced, reduce_type, groups=groups)
        result = _linear(inputs, sum_up, sum_up if reduce_type == REDUCE_SUM else None)
        # torch_xla's documentation has it so; torch_xla itself does not scale for one replica.
        return result.clone() if scale == 1.0 else result * scale
    reduced = _all_reduced(reduce_type, inputs, groups)
    with torch.no_grad():  # lists as one: a model has hundreds of gradients
        if reduced is not inputs:
            scaled = reduced if scale == 1.0 else aten._foreach_mul.Scalar(reduced, scale)
            aten._foreach_copy_.default(inputs, scaled)
        elif scale != 1.0:
            aten._foreach_mul_.Scalar(inputs, scale)
    return inputs


def _reduced(kind: str, input: torch.Tensor, groups: Any) -> torch.Tensor:
    return _all_reduced(kind, [input], groups)[0]


def _linear(value: torch.Tensor, there: Map, back: Map | None) -> torch.Tensor:
    """What a collective makes of a value, and its transpose of the gradient of a shard.

    No gradient flows among replicas, as in torch_xla: see functions.py.
    """
    return through(value, there, back) if is_manual(value) else there(value)


def _all_reduced(kind: str, inputs: Sequence[torch.Tensor], groups: Any) -> Sequence[torch.Tensor]:
    """The inputs themselves where there is one replica, else new tensors, through which no
    gradient flows."""
    count = group_size(inputs[0]) if inputs else 1
    if count == 1:
        return inputs
    given = [tensor.detach() if tensor.requires_grad else tensor for tensor in inputs]
    if count != replicas.size():  # of shards XLA takes one at a time, and joins them itself
        return [ops.all_reduce([each], kind, *flat(groups, count))[0] for each in given]
    return ops.all_reduce(given, kind, *flat(groups, count))


def all_gather(
    value: torch.Tensor,
    dim: int = 0,
    groups: Any = None,
    output: torch.Tensor | None = None,
    pin_layout: bool = True,
    channel_id: int | None = None,
    use_global_device_ids: bool | None = None,
) -> torch.Tensor:
    """The values of a group of replicas, concatenated along `dim`; `output` is filled with it.

    A 0-d value gives one of 1 dimension.
    """
    count = group_size(value)
    if count > 1:
        every = flat(groups, count)
        value = _linear(
            value.unsqueeze(0) if value.dim() == 0 else value,
            lambda x: ops.all_gather(x.detach(), dim, *every),
            lambda g: ops.reduce_scatter(g, REDUCE_SUM, dim, *every),
        )
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
        all_gather(value, dim, groups, out) for value, out in zip(input_list, outputs, strict=True)
    ]


def all_to_all(
    value: torch.Tensor,
    split_dimension: int,
    concat_dimension: int,
    split_count: int,
    groups: Any = None,
    pin_layout: bool = True,
) -> torch.Tensor:
    """Part i of `value` along `split_dimension` goes to replica i of the group, which concatenates
    what it gets along `concat_dimension`.

    Raises:
        NotAvailable: split_count is not the number of replicas in a group.
    """
    count = group_size(value)
    ranks, group = flat(groups, count)
    _check_count("all_to_all", "split_count", split_count, group)
    if count == 1:
        return value
    there, back = (split_dimension, concat_dimension), (concat_dimension, split_dimension)
    return _linear(
        value,
        lambda x: ops.all_to_all(x.detach(), *there, ranks, group),
        lambda g: ops.all_to_all(g, *back, ranks, group),
    )


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
    """This replica's part along `scatter_dim` of the reduced input, times `scale`.

    Raises:
        NotAvailable: shard_count is not the number of replicas in a group.
        ValueError: an unknown reduce_type.
    """
    _check_reduction(reduce_type)
    given = [input] if isinstance(input, torch.Tensor) else input
    count = group_size(given[0]) if given else replicas.size()
    ranks, group = flat(groups, count)
    _check_count("reduce_scatter", "shard_count", shard_count, group)

    def part(value: torch.Tensor) -> torch.Tensor:
        if count > 1:
            value = _linear(
                value,
                lambda x: ops.reduce_scatter(x.detach(), reduce_type, scatter_dim, ranks, group),
                None
                if reduce_type != REDUCE_SUM
                else lambda g: ops.all_gather(g, scatter_dim, ranks, group),
            )
        return value * scale

    if isinstance(input, torch.Tensor):
        return part(input) if output is None else output.copy_(part(input))
    made = [part(value) for value in input]
    if output is None:
        return made
    return [target.copy_(value) for target, value in zip(output, made, strict=True)]


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
    """Send along (source, target) pairs: what this replica gets, or zeros.

    Raises:
        NotAvailable: a pair names a replica that does not exist.
    """
    named = [ordinal for pair in pairs for ordinal in pair]
    count = group_size(value)
    others = set(named) - set(range(count))
    if others:
        raise NotAvailable(
            f"collective_permute names replicas {sorted(others)}, and there are "
            f"{count}, from 0 on: guard the call by `if xr.world_size() > 1`"
        )
    if count > 1:
        back = [ordinal for source, target in pairs for ordinal in (target, source)]
        return _linear(
            value,
            lambda x: ops.collective_permute(x.detach(), named),
            lambda g: ops.collective_permute(g, back),
        )
    return value.clone() if pairs else torch.zeros_like(value)


def collective_broadcast(
    tensors: list[torch.Tensor], root_ordinal: int = 0, groups: Any = None, pin_layout: bool = True
) -> None:
    """Overwrite `tensors` by those of the replica `root_ordinal` (of each group).

    Raises:
        NotAvailable: there is no such replica.
    """
    if not 0 <= root_ordinal < replicas.size():
        raise NotAvailable(
            f"collective_broadcast from replica {root_ordinal}: there are {replicas.size()}"
        )
    broadcast_from(tensors, replicas.rank() == root_ordinal, groups)


def broadcast_from(tensors: list[torch.Tensor], is_root: bool, groups: Any) -> None:
    """Overwrite `tensors` by those of the replica in each group that is its root."""
    if replicas.size() == 1 or not tensors:
        return
    # The one thing that differs between replicas is a value: they have one program.
    root = torch.tensor(is_root, device="cpu").to(tensors[0].device)
    own = [torch.where(root, each.detach(), torch.zeros_like(each)) for each in tensors]
    with torch.no_grad():
        for tensor, value in zip(tensors, _all_reduced(REDUCE_SUM, own, groups), strict=True):
            tensor.copy_(value)


def broadcast_master_param(model: torch.nn.Module) -> None:
    """Overwrite parameters and buffers by those of replica 0; ends with a barrier."""
    collective_broadcast([*model.parameters(), *model.buffers()])
    step_barrier.mark_step()


def flat(groups: Any, count: int | None = None) -> tuple[list[int], int]:
    """Groups as one list of replicas, and their size: see backend.ops.collectives.

    count: of replicas, or of devices that have shards; default: all replicas.
    """
    every = list(range(replicas.size() if count is None else count))
    if not groups:
        return every, len(every)
    ranks = list(_ordinals(groups))
    sizes = {len(group) for group in groups}
    if len(sizes) != 1 or sorted(ranks) != every:
        raise ValueError(
            f"groups {groups} are not lists of equal length that name each of {len(every)} "
            "replicas once"
        )
    return ranks, sizes.pop()


def _ordinals(groups: Any) -> Iterator[int]:
    for group in groups:
        yield from map(int, group)


def _check_reduction(reduce_type: str) -> None:
    if reduce_type not in _REDUCTIONS:
        raise ValueError(f"reduce_type {reduce_type!r} is not one of {', '.join(_REDUCTIONS)}")


def _check_count(function: str, argument: str, value: int, group: int) -> None:
    if value != group:
        there = "there is one" if group == 1 else f"the group has {group}"
        raise NotAvailable(
            f"{function} with {argument}={value} needs {value} replicas, and {there}: pass "
            f"{argument}=xr.world_size()"
        )
