"""The gradients of a tensor's pieces are put side by side, where they are all of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import xla_dynamo

WHOLE: dict[str, Callable[[Tensor], Tensor]] = {
    "selected": lambda x: x[0] * x[1].sin() - x[2],
    "in another order": lambda x: x[-1] * x[1].sin() - x[0],
    "of the last dimension": lambda x: x[..., 0] * x[..., 1] + x[..., 2] * x[..., 3],
    "halves": lambda x: torch.cat([-x[..., 2:], x[..., :2].exp()], -1),
    "halves of unequal size": lambda x: x[:, :1] + x[:, 1:].sin(),
}
PARTS: dict[str, Callable[[Tensor], Tensor]] = {
    "a piece is left out": lambda x: x[0] * x[1].sin(),
    "pieces overlap": lambda x: x[:2] * x[1:].sin(),
    "two dimensions": lambda x: x[0].sum() * x[:, 0].sin() + x[1:].sum(),
    "every second": lambda x: x[..., ::2] * x[..., 1::2].sin(),
    "one of the sums is read twice": lambda x: torch.stack([x[0], x[1], x[2]]) * x,
}


def gradients(program: Callable[[Tensor], Tensor], **options: object) -> int:
    """Compare the gradient with eager's, twice; how many graphs were changed."""
    compiled = torch.compile(program, backend="xla", options={"disk_cache": False, **options})
    x = torch.randn(3, 5, 4, generator=torch.Generator().manual_seed(0))
    ours, eager = (x.clone().requires_grad_() for _ in range(2))
    for _ in range(2):
        compiled(ours).square().sum().backward()
        program(eager).square().sum().backward()
    torch.testing.assert_close(ours.grad, eager.grad)
    return xla_dynamo.passes()["join_piece_gradients"].changed


@pytest.mark.parametrize("program", WHOLE.values(), ids=WHOLE)
def test_gradients_of_all_pieces_are_joined(program: Callable[[Tensor], Tensor]) -> None:
    assert gradients(program) == 1


@pytest.mark.parametrize("program", PARTS.values(), ids=PARTS)
def test_gradients_of_others_are_added(program: Callable[[Tensor], Tensor]) -> None:
    assert gradients(program) == 0


def test_attention_projects_with_joined_gradients() -> None:
    torch.manual_seed(0)
    layer = nn.MultiheadAttention(16, 4, batch_first=True)
    compiled = torch.compile(layer, backend="xla", options={"disk_cache": False})
    x = torch.randn(2, 5, 16)
    wanted, got = (
        torch.autograd.grad(f(x, x, x, need_weights=False)[0].square().sum(), layer.in_proj_weight)
        for f in (layer, compiled)
    )
    torch.testing.assert_close(got, wanted)
    assert xla_dynamo.passes()["join_piece_gradients"].changed == 1
