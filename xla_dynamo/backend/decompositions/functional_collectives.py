"""PyTorch's functional collectives, as Dynamo and DTensor leave them in graphs, as our ops.

They name a process group; ours name replicas, all of them, as all have one program.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed
from torch import Tensor

from xla_dynamo.backend.graph.process_groups import groups_of
from xla_dynamo.errors import NotAvailable

ops = torch.ops.xla_dynamo
c10d = torch.ops._c10d_functional
# PyTorch's names of reductions.
_KINDS = {
    "sum": "sum",
    "avg": "sum",
    "product": "mul",
    "min": "min",
    "max": "max",
    "band": "and",
    "bor": "or",
}


def _kind(reduction: str) -> str:
    kind = _KINDS.get(reduction.lower())
    if kind is None:
        raise NotAvailable(f"{reduction} is no reduction of XLA: use sum, avg, min, max, ...")
    return kind


def _scaled(reduced: Tensor, reduction: str, size: int) -> Tensor:
    return reduced / size if reduction.lower() == "avg" else reduced


def _all_reduce_coalesced(inputs: Sequence[Tensor], reduction: str, group: Any) -> list[Tensor]:
    ranks, size = groups_of(group)
    if size == 1:
        return [x.clone() for x in inputs]
    reduced = ops.all_reduce(list(inputs), _kind(reduction), ranks, size)
    return [_scaled(x, reduction, size) for x in reduced]


def _all_reduce(x: Tensor, reduction: str, group: Any) -> Tensor:
    return _all_reduce_coalesced([x], reduction, group)[0]


def _all_gather(x: Tensor, count: int, group: Any) -> Tensor:
    ranks, size = groups_of(group)
    return x.clone() if size == 1 else ops.all_gather(x, 0, ranks, size)


def _all_gather_coalesced(inputs: Sequence[Tensor], count: int, group: Any) -> list[Tensor]:
    return [_all_gather(x, count, group) for x in inputs]


def _reduce_scatter(x: Tensor, reduction: str, count: int, group: Any) -> Tensor:
    ranks, size = groups_of(group)
    if size == 1:
        return x.clone()
    part = ops.reduce_scatter(x, _kind(reduction), 0, ranks, size)
    return _scaled(part, reduction, size)


def _reduce_scatter_coalesced(
    inputs: Sequence[Tensor], reduction: str, count: int, group: Any
) -> list[Tensor]:
    return [_reduce_scatter(x, reduction, count, group) for x in inputs]


def _all_to_all(
    x: Tensor, output_sizes: Sequence[Any], input_sizes: Sequence[Any], group: Any
) -> Tensor:
    ranks, size = groups_of(group)
    if len({*output_sizes, *input_sizes}) > 1:
        raise NotAvailable("all_to_all of parts of several sizes: pad them to one size.")
    return x.clone() if size == 1 else ops.all_to_all(x, 0, 0, ranks, size)


def _broadcast(x: Tensor, source: int, group: Any) -> Tensor:
    ranks, size = groups_of(group)
    if size == 1:
        return x.clone()
    place = ops.own_part(torch.arange(size, device=x.device), 0, ranks, size)
    own = torch.where(place == source, x, torch.zeros_like(x))
    return ops.all_reduce([own], "sum", ranks, size)[0]


FUNCTIONAL_COLLECTIVES: dict[Any, Callable[..., Any]] = {
    c10d.all_reduce.default: _all_reduce,
    c10d.all_reduce_coalesced.default: _all_reduce_coalesced,
    c10d.all_gather_into_tensor.default: _all_gather,
    c10d.all_gather_into_tensor_coalesced.default: _all_gather_coalesced,
    c10d.reduce_scatter_tensor.default: _reduce_scatter,
    c10d.reduce_scatter_tensor_coalesced.default: _reduce_scatter_coalesced,
    c10d.all_to_all_single.default: _all_to_all,
    c10d.broadcast.default: _broadcast,
    c10d.wait_tensor.default: lambda x: x.view_as(x),
}
