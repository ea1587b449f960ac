"""Results that share memory: numbers, strides, memory and what autograd knows, as in eager."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

Program = Callable[[Tensor], list[Tensor]]


def _doubled(x: Tensor) -> Tensor:
    return x * 2


def _complex(x: Tensor) -> Tensor:
    return torch.complex(x, x + 1)


def _turned(x: Tensor) -> Tensor:
    return (x * 2).t().clone(memory_format=torch.preserve_format)


def _many(make: Callable[[Tensor], Tensor], *views: Callable[[Tensor], Tensor]) -> Program:
    def program(x: Tensor) -> list[Tensor]:
        made = make(x)
        return [view(made) for view in views]

    return program


PROGRAMS = {
    "a part is detached": _many(_doubled, lambda y: y[0], lambda y: y[1].detach()),
    "the whole and a detached part": _many(_doubled, lambda y: y, lambda y: y[0].detach()),
    "all are views": _many(_doubled, lambda y: y[0], lambda y: y[1].detach(), lambda y: y.detach()),
    "detached twice": _many(_doubled, Tensor.detach, lambda y: y, Tensor.detach, Tensor.t),
    "turned": _many(_turned, lambda y: y, Tensor.detach, lambda y: y[1:].detach()),
    "conjugate": _many(_complex, lambda z: z, Tensor.conj, lambda z: z.mH),
    "conjugate first": _many(_complex, Tensor.conj, lambda z: z),
    "conjugates only": _many(_complex, Tensor.conj, lambda z: z.conj()[0]),
    "parts of complex": _many(_complex, lambda z: z.real, lambda z: z, lambda z: z.conj().imag),
    "negative first": _many(_complex, lambda z: z.conj().imag, lambda z: z),
    "view_as_real": _many(_complex, torch.view_as_real, lambda z: z[1:], lambda z: z.real[0]),
    "as integers": _many(
        lambda x: (x * 2).detach(),
        lambda y: y.view(torch.int64),
        lambda y: y,
        lambda y: y[1:].view(torch.int32),
    ),
    "turned, as integers": _many(
        lambda x: _turned(x).detach(), lambda y: y.view(torch.int64), lambda y: y[1:]
    ),
}


@pytest.mark.parametrize("differentiated", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_results_share_memory_as_in_eager(name: str, differentiated: bool) -> None:
    program = PROGRAMS[name]
    x = torch.randn(2, 3, dtype=torch.float64, requires_grad=differentiated)
    actual = torch.compile(program, backend="xla", fullgraph=True)(x)
    expected = program(x)
    torch.testing.assert_close(actual, expected, check_stride=True)
    for ours, theirs in zip(actual, expected, strict=True):
        assert ours.requires_grad == theirs.requires_grad
        assert (ours.grad_fn is None) == (theirs.grad_fn is None)
    if any(y.requires_grad for y in expected):
        assert torch.equal(_gradient(actual, x), _gradient(expected, x))
    with torch.no_grad():
        for results in (actual, expected):
            results[-1].fill_(3)  # the others see it
    torch.testing.assert_close(actual, expected)


def _gradient(results: list[Tensor], x: Tensor) -> Tensor:
    weighted = [y.abs().sum() * (i + 1) for i, y in enumerate(results) if y.requires_grad]
    return torch.autograd.grad(sum(weighted, torch.zeros(())), x)[0]
