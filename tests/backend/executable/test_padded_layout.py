"""Tensors are padded and cut: no program is needed to see it."""

from __future__ import annotations

import pytest
import sympy
import torch

from xla_dynamo.backend.executable import padded_layout
from xla_dynamo.backend.executable.padded_layout import Layout
from xla_dynamo.backend.passes.padding.layouts import Dim, plain, with_factors

pytestmark = pytest.mark.spine
s, t = sympy.symbols("s0 s1", positive=True, integer=True)
REAL, BUCKETS = {s: 3, t: 2}, {s: 4, t: 4}


@pytest.mark.parametrize(
    "dims", [(plain(s), plain(5), plain(t)), (with_factors(s * t, [s, t]), plain(2))]
)
def test_what_is_padded_comes_back(dims: tuple[Dim, ...]) -> None:
    layout = Layout(dims, REAL, BUCKETS)
    x = torch.randn(layout.shape)
    padded = layout.pad(x)
    assert padded.shape == layout.padded
    assert padded.sum() == pytest.approx(x.sum().item(), abs=1e-5)
    for strides in (x.stride(), torch.empty(layout.shape[::-1]).mT.stride()[: x.dim()]):
        back = layout.cut(padded, strides)
        assert torch.equal(back, x)
    assert torch.equal(layout.cut(padded, x.stride()), x)


def test_results_have_the_strides_that_are_asked_for() -> None:
    layout = Layout((plain(s), plain(t)), REAL, BUCKETS)
    x = torch.randn(3, 2)
    assert layout.cut(layout.pad(x), (1, 3)).stride() == (1, 3)
    assert layout.cut(layout.pad(x), (7, 2)).stride() == (2, 1), "it would leave gaps"
    repeated = torch.randn(1, 2).expand(3, 2)
    cut = layout.cut(layout.pad(repeated), (0, 1))
    assert cut.stride() == (0, 1)
    assert torch.equal(cut, repeated)


def test_a_size_of_its_bucket_is_not_copied() -> None:
    x = torch.randn(4, 4)
    assert Layout((plain(s), plain(t)), BUCKETS, BUCKETS).pad(x) is x


@pytest.mark.parametrize(
    ("dtype", "fill"), [(torch.float32, float("nan")), (torch.int32, 2**31 - 1), (torch.bool, True)]
)
def test_poison(monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, fill: object) -> None:
    monkeypatch.setattr(padded_layout, "poison", True)
    padded = Layout((plain(s),), REAL, BUCKETS).pad(torch.zeros(3, dtype=dtype))
    expected = torch.tensor([0, 0, 0, fill]).to(dtype)
    torch.testing.assert_close(padded, expected, equal_nan=True)
