"""Strides of tensors of the device where shape inference and eager's kernels differ: the latter."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.like_eager.lazy import XLA, assert_lockstep, assert_same

# Of a column that is a row in memory, with strides (1, 3) where those of its shape are (1, 1).
OF_A_COLUMN: dict[str, Callable[[Tensor], Tensor]] = {
    "a number added": lambda x: x + 0,
    "itself added": lambda x: x + x,
    "a comparison": lambda x: x < 1,
    "a remainder": lambda x: x % 2,
    "an integer remainder": lambda x: x.long() % 2,
    "an integer divided": lambda x: x.long() // 2,
    "an integer divided by itself": lambda x: x.long() // x.long().clamp(min=1),
    "a power": lambda x: x**2,
    "a power of integers": lambda x: torch.pow(x.long() + 1, torch.tensor([2], device=x.device)),
    "relu6": lambda x: F.relu6(x),
    "smooth_l1_loss": lambda x: F.smooth_l1_loss(x, x + 1, reduction="none"),
    "nan_to_num": lambda x: x.nan_to_num(0.0),
    "masked_fill": lambda x: x.masked_fill(x > 0, 1.0),
    "triu": lambda x: x.triu(),
    "flip": lambda x: x.flip(0),
    "written in place": lambda x: (x + 0).mul_(2),
    "a view with more dimensions": lambda x: x.view(1, 3, 1, 1),
    "reshaped": lambda x: x.reshape(1, 3, 1),
    "indexed": lambda x: x[None, ..., None],
    "broadcast": lambda x: (x + 0) * x.new_ones(1, 4),
    "kron": lambda x: torch.kron(x, x + 0),
    "kron with columns": lambda x: torch.kron(x.new_ones(2, 3).t(), x + 0),
    "matmul": lambda x: torch.matmul(x.new_ones(2, 2), x[:2].reshape(1, 2, 1).expand(2, 2, 1)),
    "matmul of rows": lambda x: torch.matmul(x.new_ones(2, 2), x.new_ones(2, 2, 1)),
    "einsum": lambda x: torch.einsum("...i,...i->...", x.t()[None], x.new_ones(2, 1, 3)),
}


@pytest.mark.parametrize("name", OF_A_COLUMN)
def test_dimensions_of_one(name: str) -> None:
    expected, actual = (
        OF_A_COLUMN[name](torch.arange(3.0).reshape(1, 3).to(device).t()) for device in ("cpu", XLA)
    )
    assert actual.stride() == expected.stride()
    assert_same(actual, expected)


def test_kron_of_any_two_orders_in_memory() -> None:
    """Which raises in eager, too, for tensors whose product has no view as a matrix."""

    def strides(device: Any) -> list[Any]:
        rows = [
            torch.ones(shape, device=device)
            for shape in ((1, 2), (2, 1), (2, 3), (3, 2, 2), (4,), (), (1, 2, 1, 3), (0, 2))
        ]
        turned = [x.transpose(0, -1) for x in rows if x.dim() > 1]
        given = [y for x in (*rows, *turned) for y in (x, x + 0)]
        return [_strides_or_error(x, y) for x, y in itertools.product(given, repeat=2)]

    assert strides(XLA) == strides("cpu")


def _strides_or_error(x: Tensor, y: Tensor) -> Any:
    try:
        made = torch.kron(x, y)
    except RuntimeError as error:
        return str(error)[:40]
    return made.shape, made.stride()


@pytest.mark.parametrize("dims", [(0,), (1,), (2,), (0, 1), (0, 2)], ids=str)
@pytest.mark.parametrize("order", list(itertools.permutations(range(3))), ids=str)
def test_results_of_indexing_are_in_the_order_of_the_indices(
    dims: tuple[int, ...], order: tuple[int, ...]
) -> None:
    """So that flatten is of them what it is of eager's: a view, or a copy."""

    def chain(x: Tensor) -> list[Tensor]:
        y = x.permute(order)
        index = torch.zeros(3, 2, dtype=torch.int64, device=x.device).t()
        picked = y[tuple(index if dim in dims else slice(None) for dim in range(3))]
        seen.append(picked.stride())
        picked.flatten().add_(1)
        return [picked]

    seen: list[tuple[int, ...]] = []
    assert_lockstep(chain, torch.arange(24.0).reshape(2, 3, 4))
    assert seen[0] == seen[1]


IN_ANOTHER_ORDER: dict[str, Callable[[Tensor], Tensor]] = {
    "a mask": lambda x: x[x[:, 0, 0] > 0],
    "a mask of inner dimensions": lambda x: x[:, x[0] > 3],
    "a mask of an inner dimension": lambda x: x[:, :, x[0, 0] > 3],
    "a mask and an index": lambda x: x[x[:, 0, 0] > 0, 1],
    "nonzero": lambda x: x.nonzero(),
    "argwhere of rows": lambda x: torch.argwhere(x[0, 0]),
    "nll_loss of images": lambda x: F.nll_loss(x[None], x[0, None].long() % 2, reduction="none"),
    "replicated around": lambda x: F.pad(
        x.new_ones(1, 2, 3, 3, 3).to(memory_format=torch.channels_last_3d), (1,) * 6, "replicate"
    ),
    "shuffled channels": lambda x: torch.channel_shuffle(
        x.new_ones(1, 6, 4, 4).to(memory_format=torch.channels_last), 3
    ),
    "normal": lambda x: torch.normal(x, x.abs()) * 0,
}


@pytest.mark.parametrize("name", IN_ANOTHER_ORDER)
def test_of_transposed_tensors(name: str) -> None:
    expected, actual = (
        IN_ANOTHER_ORDER[name](torch.arange(24.0).reshape(2, 3, 4).to(device).permute(2, 1, 0))
        for device in ("cpu", XLA)
    )
    assert actual.stride() == expected.stride()
    assert_same(actual, expected)
