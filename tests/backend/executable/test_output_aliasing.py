"""Results that share memory in eager: a write to one is seen in the others, on either device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from unittest import mock

import pytest
import torch
from torch import Tensor

import xla_dynamo.compat  # noqa: F401  (the xla device)
from xla_dynamo.backend.graph import memory_layout

Program = Callable[[Tensor], Sequence[Tensor]]


def _between_programs(x: Tensor) -> Sequence[Tensor]:
    s = x + 1
    part = s[1:]
    return part, s[:2], part.nonzero()


PROGRAMS: dict[str, Program] = {
    "a tensor and its part": lambda x: _views(x + 1, lambda s: s, lambda s: s[:1]),
    "equal parts": lambda x: _views(torch.stack([x, x], -1), lambda s: s[:, 1], lambda s: s[:, 1]),
    "parts": lambda x: _views(x + 1, lambda s: s[1:], lambda s: s[:2]),
    "a part of a part": lambda x: _views(x + 1, lambda s: s[:2], lambda s: s[:2][:1]),
    "of a transposed product": lambda x: _views(
        (x[:, None] * x).t(), lambda s: s[1:], lambda s: s.diagonal(), lambda s: s[0]
    ),
    "of a list": lambda x: _views(
        torch.stack([x, x]).split(2, 1), lambda s: s[0][:, 1:], lambda s: s[0][:1], lambda s: s[1]
    ),
    "of another dtype": lambda x: _views(
        torch.complex(x, x), lambda s: s.real[:2], lambda s: s[1:], lambda s: s.conj().imag[1:]
    ),
    "of other bits": lambda x: _views(x.view(torch.int32) + 0, lambda s: s[1:], lambda s: s[:2]),
    "of several programs": _between_programs,
}


def _views(whole: object, *views: Callable[..., Tensor]) -> Sequence[Tensor]:
    return [view(whole) for view in views]


@pytest.mark.parametrize("written", [0, 1])
@pytest.mark.parametrize("differentiated", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("device", ["cpu", "xla:0"])
def test_a_write_to_one_result(name: str, device: str, differentiated: bool, written: int) -> None:
    def run(program: Program, device: str) -> list[Tensor]:
        x = torch.arange(3.0).to(device)
        results = program(x.requires_grad_(differentiated and "bits" not in name))
        with torch.no_grad():
            results[written].fill_(7)
        return [result.detach().cpu() for result in results]

    program = PROGRAMS[name]
    expected = run(program, "cpu")
    assert all(map(torch.equal, run(torch.compile(program, backend="xla"), device), expected))


def test_a_write_to_one_of_what_is_expanded() -> None:
    def expanded(x: Tensor) -> Sequence[Tensor]:
        return _views((x + 1).expand(2, 3), lambda s: s[0, 1:], lambda s: s[1, :2])

    compiled = torch.compile(expanded, backend="xla")
    first, second = compiled(torch.arange(3.0))
    first.fill_(7)
    assert second.tolist() == [1.0, 7.0]
    first, second = compiled(torch.arange(3.0, device="xla:0"))
    with pytest.raises(RuntimeError, match=r"cannot be written to through detach\(\) or .data"):
        first.fill_(7)
    assert (first.tolist(), second.tolist()) == ([2.0, 3.0], [1.0, 2.0])


def test_parts_without_common_elements_are_apart() -> None:
    """XLA computes each of them alone, also where what lies between their ends is shared."""

    @torch.compile(backend="xla", fullgraph=True)
    def halves(x: Tensor) -> Sequence[Tensor]:
        return (x + 1).chunk(2, -1)

    first, second = halves(torch.zeros(2, 4))
    assert first.is_contiguous()
    assert first.untyped_storage().nbytes() == first.nbytes
    assert first.untyped_storage().data_ptr() != second.untyped_storage().data_ptr()


def test_overlap() -> None:
    whole = torch.zeros(4, 6)
    assert not memory_layout.overlap([whole[:2], whole[2:]])
    assert not memory_layout.overlap([whole[:, :3], whole[:, 3:]])
    assert not memory_layout.overlap([whole[:0], whole])
    assert memory_layout.overlap([whole[:, :4], whole[:, 3:]])
    assert memory_layout.overlap([whole[1].expand(3, 6), whole[:, 5]])
    complexes = torch.zeros(4, dtype=torch.complex64)
    assert not memory_layout.overlap([complexes.real, complexes.imag])
    assert memory_layout.overlap([complexes[1:3], complexes.imag[2:]])
    with mock.patch.object(memory_layout, "_FEW", 10):  # as in large memory
        assert memory_layout.overlap([whole[:, :3], whole[:, 3:]])
        assert not memory_layout.overlap([whole[:2], whole[2:]])
