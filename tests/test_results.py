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
    "the same again": _many(_doubled, lambda y: y, lambda y: y.to(y.dtype), Tensor.contiguous),
    "detached, the same again": _many(_doubled, Tensor.detach, lambda y: y, Tensor.contiguous),
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
    assert _firsts(actual) == _firsts(expected)
    for ours, theirs in zip(actual, expected, strict=True):
        assert ours.requires_grad == theirs.requires_grad
        assert (ours.grad_fn is None) == (theirs.grad_fn is None)
    if any(y.requires_grad for y in expected):
        assert torch.equal(_gradient(actual, x), _gradient(expected, x))
    with torch.no_grad():
        for results in (actual, expected):
            results[-1].fill_(3)  # the others see it
    torch.testing.assert_close(actual, expected)


def _firsts(results: list[Tensor]) -> list[int]:
    """For each result, the first that is the same tensor."""
    return [next(i for i, other in enumerate(results) if other is y) for y in results]


SUMS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "the same": lambda x, y: (x + y) * 2,
    "a clone": lambda x, y: (x + y.clone()) * 2,
    "a view": lambda x, y: (x + y.view(6)) * 2,
    "a view of a view": lambda x, y: (x + y.unsqueeze(0).squeeze(0)) * 2,
    "turned": lambda x, y: (x + y.t()) * 2,
    "what is given": lambda x, y: x + y,
}
SHAPES = {"a view": ((6,), (2, 3)), "turned": ((3, 2), (2, 3))}


@pytest.mark.parametrize("name", SUMS)
def test_gradients_are_changed_one_by_one(name: str) -> None:
    """Autograd keeps a gradient that only it holds, and clipping scales it in place."""

    def gradients(function: Callable[[Tensor, Tensor], Tensor]) -> list[Tensor | None]:
        x, y = (torch.ones(n, requires_grad=True) for n in SHAPES.get(name, ((6,), (6,))))
        function(x, y).sum().backward()
        torch.nn.utils.clip_grad_norm_([x, y], 1.0)
        return [x.grad, y.grad]

    compiled = torch.compile(SUMS[name], backend="xla", fullgraph=True)
    torch.testing.assert_close(gradients(compiled), gradients(SUMS[name]))


def _gradient(results: list[Tensor], x: Tensor) -> Tensor:
    weighted = [y.abs().sum() * (i + 1) for i, y in enumerate(results) if y.requires_grad]
    return torch.autograd.grad(sum(weighted, torch.zeros(())), x)[0]


VIEWS: dict[str, Callable[[Tensor], Tensor]] = {
    "chunk": lambda x: x.chunk(2, 1)[1],
    "diagonal": Tensor.diagonal,
    "expand": lambda x: x.unsqueeze(0).expand(2, x.shape[0], x.shape[1]),
    "flat": lambda x: x.reshape(-1),
    "narrow": lambda x: x.narrow(1, 1, x.shape[1] - 2),
    "select": lambda x: x[1],
    "slice": lambda x: x[:, 1 : x.shape[1] - 1 : 2],
    "strided": lambda x: x.as_strided((2, x.shape[1] // 2), (1, x.shape[0] - 2)),
    "strided from": lambda x: x.as_strided((2, 2), (x.shape[1], 1), x.shape[1] - 1).t(),
    "strided slice": lambda x: x[1:].as_strided((2, x.shape[1] // 2), (1, 2))[1],
    "t": Tensor.t,
    "unfold": lambda x: x.unfold(1, x.shape[1] // 2, 1),
}
LAYOUTS: dict[str, Callable[[int], Tensor]] = {
    "dense": lambda n: torch.arange(4.0 * n).reshape(4, n),
    "turned": lambda n: torch.arange(4.0 * n).reshape(n, 4).t(),
    "gaps": lambda n: torch.arange(8.0 * n).reshape(4, 2 * n)[:, ::2],
    "not from the beginning": lambda n: torch.arange(8.0 * n).reshape(8, n)[3:7],
}


# Another gradient than eager's from AOTAutograd with any backend.
PYTORCHS_OWN = {("strided slice", "turned")}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", VIEWS)
def test_views_of_arguments_of_any_size(name: str, layout: str) -> None:
    """AOTAutograd takes strides and offset of what the graph gives, where sizes are symbolic."""
    view = VIEWS[name]
    compiled = torch.compile(view, backend="xla", fullgraph=True, dynamic=True)
    for n in (6, 8):
        for differentiated in (False, True):
            x = LAYOUTS[layout](n).requires_grad_(differentiated)
            actual, expected = compiled(x), view(x)
            torch.testing.assert_close(actual, expected, check_stride=True)
            own = x.untyped_storage().data_ptr()
            if expected.untyped_storage().data_ptr() == own:  # reshape() may copy
                assert actual.data_ptr() == expected.data_ptr()
            if differentiated and (name, layout) not in PYTORCHS_OWN:
                weights = torch.randn(expected.shape)
                ours, theirs = (torch.autograd.grad(y, x, weights)[0] for y in (actual, expected))
                assert torch.equal(ours, theirs)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_strides_that_no_size_depends_on(layout: str) -> None:
    def program(x: Tensor, stride: tuple[int, int], offset: int) -> list[Tensor]:
        part = torch.as_strided(x, (2, 2), stride, offset)
        return [part, part + 1, torch.roll(x, (offset,), (0,))]

    compiled = torch.compile(program, backend="xla", fullgraph=True, dynamic=True)
    x = LAYOUTS[layout](6)
    for stride, offset in (((1, 3), 5), ((2, 1), 4)):
        actual, expected = compiled(x, stride, offset), program(x, stride, offset)
        torch.testing.assert_close(actual, expected)
        assert actual[0].stride() == stride
        assert actual[0].data_ptr() == expected[0].data_ptr()


def test_views_of_arguments_of_another_dtype() -> None:
    def program(z: Tensor) -> list[Tensor]:
        n = z.shape[0]
        rows = z.narrow(0, 1, n - 1)
        return [torch.view_as_real(rows), rows.real, rows.conj(), rows.conj().imag, rows * 2]

    compiled = torch.compile(program, backend="xla", fullgraph=True, dynamic=True)
    for n in (5, 7):
        z = torch.randn(n, 3, dtype=torch.complex128)
        torch.testing.assert_close(compiled(z), program(z), check_stride=True)
        z[1] = 7
        torch.testing.assert_close(compiled(z), program(z))
