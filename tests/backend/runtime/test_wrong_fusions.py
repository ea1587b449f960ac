"""Fusions that versions of XLA:CPU compute wrong: the numbers are eager's in every version."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.programs import python
from xla_dynamo.backend.runtime import pjrt, wrong_fusions


def _compiled(
    function: Callable[..., torch.Tensor], **options: object
) -> Callable[..., torch.Tensor]:
    return torch.compile(function, backend="xla", dynamic=False, options=options or None)


@pytest.fixture
def overrides(monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
    """What YNNPACK was limited to in each of XLA's compiles."""
    seen: list[str | None] = []
    usual = pjrt._options

    def options(on, overrides):
        seen.append(overrides.get(wrong_fusions.OPTION))
        return usual(on, overrides)

    monkeypatch.setattr(pjrt, "_options", options)
    return seen


def logits(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return (b * a[:, None]).sum(-1) / 0.1


def products(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return logits(a, b).softmax(-1)


def moved(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return ((b @ a.T) ** 2).sum(0)


@pytest.mark.parametrize(("rows", "width", "others"), [(659, 9, 128), (5051, 5, 10), (11251, 3, 6)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("function", [logits, products])
def test_sums_of_products_of_all_pairs(function, dtype, rows, width, others):
    a, b = torch.randn(rows, width, dtype=dtype), torch.randn(others, width, dtype=dtype)
    torch.testing.assert_close(_compiled(function)(a, b), function(a, b))


def test_the_gradients_of_a_contrastive_loss():
    a, b = (torch.randn(256, 32, requires_grad=True) for _ in range(2))

    def loss(a, b):
        return F.cross_entropy(logits(a, b), torch.arange(256))

    expected = torch.autograd.grad(loss(a, b), (a, b))
    got = torch.autograd.grad(_compiled(loss)(a, b), (a, b))
    torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_points_moved_by_a_matrix(dtype):
    points, matrix = torch.randn(40_001, 3, dtype=dtype), torch.randn(3, 3, dtype=dtype)
    torch.testing.assert_close(_compiled(moved)(points, matrix), moved(points, matrix))
    rows = torch.vmap(lambda point: ((matrix @ point) ** 2).sum())
    torch.testing.assert_close(_compiled(rows)(points), rows(points))


def test_more_than_six_dimensions_end_no_process():
    code = """
        import torch
        a, b = torch.randn(3, 1, 2, 2, 8, 8, 8), torch.randn(3, 1, 2, 2, 8, 8, 8)
        c, d = torch.randn(5, 4, 6), torch.randn(5, 4, 6, 9, 3, 3, 9, 9)

        @torch.compile(backend="xla")
        def sums(a, b, c, d):
            wide = c[..., None, None, None, None, None] * d
            return (a * b).sum(3), wide.sum(2).clamp(min=1e-9).log()

        with torch.no_grad():
            for got, expected in zip(sums(a, b, c, d), sums._torchdynamo_orig_callable(a, b, c, d)):
                torch.testing.assert_close(got, expected)
        print("the same")
    """
    assert "the same" in python(code)


def test_only_such_programs_are_compiled_twice(overrides):
    a, b = torch.randn(300, 9), torch.randn(150, 9)
    _compiled(products)(a, b)
    again = ["LIBRARY_FUSION_TYPE_INDIVIDUAL_DOT"] if wrong_fusions._MIXES_RESULTS else []
    assert overrides == [None, *again]
    overrides.clear()
    block = nn.Sequential(nn.LayerNorm(64), nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64))
    _compiled(block)(torch.randn(300, 64)).softmax(-1).square().mean().backward()
    assert overrides == [None, None]  # forward and backward


def test_a_word_of_the_user_is_left_alone(overrides):
    chosen = {wrong_fusions.OPTION: "LIBRARY_FUSION_TYPE_REDUCE"}
    _compiled(products, compiler_options=chosen)(torch.randn(30, 9), torch.randn(15, 9))
    assert overrides == ["LIBRARY_FUSION_TYPE_REDUCE"]
