"""Products by groups of rows (mixtures of experts), as torch_xla.experimental.custom_kernel has.

The sizes of groups are data: each group's product is computed for all rows, and rows pick theirs.
"""

from __future__ import annotations

from typing import Any

import torch


def gmm(
    lhs: torch.Tensor,
    rhs: torch.Tensor,
    group_sizes: torch.Tensor,
    tiling: Any = None,
    group_offset: torch.Tensor | None = None,
    transpose_rhs: bool = False,
) -> torch.Tensor:
    """The rows of each group times its matrix: (m, k), (groups, k, n) -> (m, n).

    rhs may have some of the groups only, from `group_offset` on. Rows of no group of it are zero.
    """
    matrices = rhs.mT if transpose_rhs else rhs
    group = _groups(group_sizes, lhs.shape[0], group_offset)
    out = lhs.new_zeros(lhs.shape[0], matrices.shape[2])
    for index, matrix in enumerate(matrices.unbind()):
        out = torch.where((group == index)[:, None], (lhs @ matrix).to(out.dtype), out)
    return out


def tgmm(
    lhs: torch.Tensor,
    rhs: torch.Tensor,
    group_sizes: torch.Tensor,
    tiling: Any = (512, 512, 512),
    group_offset: torch.Tensor | None = None,
    num_actual_groups: int | None = None,
) -> torch.Tensor:
    """Of each group, its columns times its rows: (k, m), (m, n) -> (groups, k, n)."""
    count = group_sizes.shape[0] if num_actual_groups is None else num_actual_groups
    group = _groups(group_sizes, rhs.shape[0], group_offset)
    parts = [
        lhs.masked_fill(group != index, 0) @ rhs.masked_fill((group != index)[:, None], 0)
        for index in range(count)
    ]
    return torch.stack(parts)


def gmm_backward(
    grad: torch.Tensor,
    lhs: torch.Tensor,
    rhs: torch.Tensor,
    group_sizes: torch.Tensor,
    tiling: Any = (512, 512, 512),
) -> tuple[torch.Tensor, torch.Tensor]:
    """The gradients of gmm for lhs and rhs."""
    return gmm(grad, rhs.mT, group_sizes), tgmm(lhs.t(), grad, group_sizes)


def _groups(sizes: torch.Tensor, rows: int, offset: torch.Tensor | None) -> torch.Tensor:
    """The group of each row, counted from `offset`; as many as there are for rows of none."""
    row = torch.arange(rows, device=sizes.device)
    group = (row[:, None] >= sizes.cumsum(0)).sum(1)
    return group if offset is None else group - offset
