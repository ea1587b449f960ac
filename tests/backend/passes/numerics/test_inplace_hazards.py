"""Writes to parts of a tensor that they read elsewhere give what eager gives."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import xla_dynamo
import xla_dynamo.compat  # registers the device xla

ELSEWHERE: dict[str, Callable[[Tensor], Tensor]] = {
    "rows backwards": lambda v: v[:2].add_(v[:2].flip(0)),
    "rows rolled": lambda v: v[:2].add_(torch.roll(v[:2], 1)),
    "rows as columns": lambda v: v[:2].add_(v[:2].t().clone()),
    "a row backwards": lambda v: v[0].add_(v[0].flip(0)),
    "a row by its sum": lambda v: v[0].div_(v[0].sum()),
    "a running sum": lambda v: v[:2].copy_(v[:2].cumsum(0)),
    "rows of the other shape": lambda v: v[:2].mul_(v.flatten()[1:5].view(2, 2).clone()),
    "a part of a part": lambda v: v[:3][1:].add_(v[:3][1:].flip(1)),
    "one after another": lambda v: v[:2].add_(v[:2].flip(0)).mul_(v[1:3].clone()),
}
IN_LINE: dict[str, Callable[[Tensor], Tensor]] = {
    "a number": lambda v: v[:2].add_(1),
    "a function": lambda v: v[:2].copy_(v[:2].sin() * v[:2]),
    "a part of a part": lambda v: v[:2][1].mul_(3),
    "a part in another dim": lambda v: v[:3][:, 1].add_(2),
    "other numbers": lambda v: v[1].copy_(torch.arange(2.0, device=v.device)),
}
BASES: dict[str, Callable[[Tensor], Tensor]] = {
    "an argument": lambda x: x.view(4, 2),
    "a copy": lambda x: x.clone().view(4, 2),
    "a product with one": lambda x: (x * 1).view(4, 2),
    "a function": lambda x: x.cos().view(4, 2),
    "a transposed view": lambda x: x.view(2, 4).t(),
}


def _run(base: str, write: Callable[[Tensor], Tensor], x: Tensor) -> tuple[Tensor, ...]:
    x = x.clone()
    v = BASES[base](x)
    write(v)
    return x, v.clone(), v + 1


@pytest.mark.parametrize("base", BASES)
@pytest.mark.filterwarnings("ignore::xla_dynamo.RecompileWarning")
def test_both_doors_give_what_eager_gives(base: str) -> None:
    x = torch.tensor([3.0, 0.0, -4.0, 1.0, -2.0, -2.5, 7.0, 5.0])
    for name, write in {**ELSEWHERE, **IN_LINE}.items():
        expected = _run(base, write, x)
        compiled = torch.compile(_run, backend="xla")(base, write, x)
        lazy = _run(base, write, x.to("xla"))
        for actual in (compiled, tuple(result.cpu() for result in lazy)):
            for ours, theirs in zip(actual, expected, strict=True):
                assert torch.equal(ours, theirs) or torch.allclose(ours, theirs), name


def _kept_apart(write: Callable[[Tensor], Tensor]) -> int:
    """How many sources are computed first in the program of a write to a view of an argument."""

    def step(x: Tensor) -> Tensor:
        write(x.view(4, 2))
        return x + 1

    with xla_dynamo.capture() as seen:
        torch.compile(step, backend="xla")(torch.arange(8.0))
    return seen[0].fx.count("xla_dynamo.materialize.default]")


@pytest.mark.parametrize("name", ELSEWHERE)
def test_what_is_read_elsewhere_is_computed_first(name: str) -> None:
    assert _kept_apart(ELSEWHERE[name])


@pytest.mark.parametrize("name", IN_LINE)
def test_what_depends_on_itself_alone_is_one_loop(name: str) -> None:
    assert _kept_apart(IN_LINE[name]) == 0
