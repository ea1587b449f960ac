"""Results in the order of eager's under torch.compile: by which flatten is a view, or a copy."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

Step = Callable[[Tensor], Tensor]


def _places(x: Tensor) -> Tensor:
    return torch.arange(6, device=x.device).reshape(2, 3).t() % 2


# Of a tensor of shape (2, 4, 6, 6) in the order of channels_last.
STEPS: dict[str, Step] = {
    "indexed by columns": lambda x: x[_places(x)],
    "indexed within": lambda x: x[:, _places(x)],
    "indexed apart": lambda x: x[_places(x), :, _places(x)],
    "copysign": lambda x: torch.copysign(x, x[0]),
    "floor_divide": lambda x: torch.floor_divide(x, x[0] + 1),
    "batch_norm of rows": lambda x: F.batch_norm(
        x.permute(2, 1, 0, 3).reshape(6, 4, 12).transpose(1, 2), None, None, training=True
    ),
    "shuffled channels": lambda x: torch.channel_shuffle(x, 2),
    "unpooled": lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", STEPS)
def test_a_write_to_what_is_flat_reaches_what_it_does_in_eager(name: str, dynamic: bool) -> None:
    def run(x: Tensor) -> list[Tensor]:
        made = []
        for order in ((0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)):
            y = STEPS[name](x)
            y.movedim((0, 1, 2), order).flatten().add_(100)
            made.append(y)
        return made

    x = torch.arange(288.0).reshape(2, 6, 6, 4).permute(0, 3, 1, 2)
    torch.compiler.reset()
    actual = torch.compile(run, backend="xla", dynamic=dynamic)(x)
    torch.testing.assert_close(actual, run(x))
