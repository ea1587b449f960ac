"""Process groups of torch.distributed as groups of all replicas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch.distributed as dist

from xla_dynamo.errors import NotAvailable

from .torch_private import resolve_process_group


def groups_of(group: Any) -> tuple[list[int], int]:
    """The group of a name (or itself) among groups of all: see `ops.collectives`.

    Raises:
        NotAvailable: it is no part of a regular mesh of all ranks.
    """
    found = resolve_process_group(group) if isinstance(group, str) else group
    groups = mesh_of(dist.get_process_group_ranks(found), dist.get_world_size())
    return [rank for each in groups for rank in each], len(groups[0])


def mesh_of(ranks: Sequence[int], count: int) -> list[list[int]]:
    """Groups of all `count` ranks, one of them `ranks`: those of a dimension of a mesh.

    All replicas have one program, which names the groups of all.

    Raises:
        NotAvailable: there are no such groups.
    """
    size, first = len(ranks), ranks[0]
    stride = ranks[1] - first if size > 1 else 1
    block = size * stride
    if stride > 0 and count % block == 0:
        starts = [base + i for base in range(0, count, block) for i in range(stride)]
        groups = [list(range(start, start + block, stride)) for start in starts]
        if list(ranks) in groups:
            return groups
    raise NotAvailable(
        f"a process group of ranks {list(ranks)} is no row or column of a regular mesh of {count}"
    )
