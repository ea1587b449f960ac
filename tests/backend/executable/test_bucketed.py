"""options={"bucket": ...} through XLA, with padding that spoils whatever reads it."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import xla_dynamo
from tests.backend.odd_backward import Odd
from xla_dynamo.backend.executable import padded_layout
from xla_dynamo.backend.executable.bucketed import Bucketed


@pytest.fixture(autouse=True)
def _poisoned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(padded_layout, "poison", True)


def compiled(function: Callable[..., Any], bucket: Any = "powers_of_two", **options: Any) -> Any:
    return torch.compile(function, backend="xla", options={"bucket": bucket, **options})


def batch(n: int, *rest: int, **bounds: int) -> Tensor:
    x = torch.randn(n, *rest, dtype=torch.float64)
    torch._dynamo.mark_dynamic(x, 0, **bounds)
    return x


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 5)).double()

    def forward(self, x: Tensor) -> Tensor:
        y = self.layers(x)
        return F.cross_entropy(y, y.detach().argmax(1)) + y.var()


def step(model: Any, run: Any, x: Tensor) -> list[Tensor]:
    torch.manual_seed(1)
    model.zero_grad()
    loss = run(x)
    loss.backward()
    return [loss.detach(), *(p.grad.clone() for p in model.parameters())]


def test_training_with_dropout_draws_the_numbers_of_the_exact_program() -> None:
    model = Classifier()
    given = [batch(n, 3) for n in (5, 8, 2, 9)]
    padded = [step(model, compiled(model), x) for x in given]
    assert len(xla_dynamo.compiles()) == 4, "forward and backward, for 8 and 16"
    torch.compiler.reset()
    exact = torch.compile(model, backend="xla")
    for x, found in zip(given, padded, strict=True):
        torch.testing.assert_close(found, step(model, exact, x), rtol=1e-12, atol=1e-14)


def test_compiles_name_bucket_and_range() -> None:
    run = compiled(torch.sin, [4, 16])
    run(batch(7))
    assert xla_dynamo.compiles()[0].reason.endswith("dimension 0: bucket 16 (5..16)")


def test_sizes_that_recur_and_are_their_buckets_need_no_masks() -> None:
    model = Classifier()
    model.layers[1].p = 0.0
    exact = copy.deepcopy(model)
    run = compiled(model)
    for n, programs in ((5, 2), (8, 2), *[(8, None)] * 20, (8, 4), (5, 4), (8, 4), (6, 4)):
        x = batch(n, 3)
        torch.testing.assert_close(step(model, run, x), step(exact, exact, x))
        if programs is not None:
            assert len(xla_dynamo.compiles()) == programs, n


def test_exact_sizes_are_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of an op that is refused; and no more are kept than max_executables allows."""
    asked = []
    run_ = Bucketed.run
    monkeypatch.setattr(Bucketed, "run", lambda *given: asked.append(1) or run_(*given))
    run = compiled(lambda x: x.median(0).values, max_executables=2)
    with pytest.warns(xla_dynamo.BucketWarning):
        run(batch(5, 3))
    for n, lookups in ((5, 2), (5, 2), (6, 3), (5, 3), (6, 3), (7, 4), (6, 5), (6, 5), (7, 5)):
        x = batch(n, 3)
        torch.testing.assert_close(run(x), x.median(0).values)
        assert len(asked) == lookups, n
    assert len(xla_dynamo.compiles()) == 3


def test_mark_dynamic_bounds_buckets() -> None:
    run = compiled(lambda x: x.cumsum(0))
    for n in (9, 11):
        x = batch(n, min=2, max=12)
        torch.testing.assert_close(run(x), x.cumsum(0))
    (record,) = xla_dynamo.compiles()
    assert "bucket 12 " in record.reason
    assert "float64[12]" in record.shapes


def test_two_forwards_before_their_backwards() -> None:
    weight = torch.randn(3, 3, dtype=torch.float64, requires_grad=True)
    run = compiled(lambda x: (x @ weight).softmax(0).square().sum())
    found = []
    for function in (run, lambda x: (x @ weight).softmax(0).square().sum()):
        weight.grad = None
        torch.manual_seed(0)
        losses = [function(batch(n, 3)) for n in (5, 12)]
        for loss in losses:
            loss.backward()
        found.append(weight.grad)
    torch.testing.assert_close(*found)


def test_results_of_many_threads_are_kept() -> None:
    weight = torch.randn(3, 3, dtype=torch.float64)
    run = compiled(lambda x, w: (x @ w).tanh())
    given = [batch(n, 3) for n in (5, 7, 8, 6)]
    for x in given:
        run(x, weight)

    def train(x: Tensor) -> list[tuple[Tensor, Tensor]]:
        found = []
        for scale in range(1, 20):
            y = (x * scale).requires_grad_()
            torch._dynamo.mark_dynamic(y, 0)
            result = run(y, weight)
            result.square().sum().backward()
            assert y.grad is not None
            found.append((result.detach(), y.grad))
        return found

    with ThreadPoolExecutor(4) as threads:
        kept = list(threads.map(train, given))
    for x, found in zip(given, kept, strict=True):
        for scale, (result, grad) in enumerate(found, 1):
            expected = (x * scale @ weight).tanh()
            torch.testing.assert_close(result, expected)
            slope = 2 * expected * (1 - expected.square())
            torch.testing.assert_close(grad, slope @ weight.t())


def test_backward_that_refuses_what_forward_padded() -> None:
    """From then on, both get exact sizes."""
    run = compiled(lambda x: Odd.apply(x * 2))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for n in (5, 6):
            x = batch(n, 3)
            y = x.clone().requires_grad_()
            torch._dynamo.mark_dynamic(y, 0)
            run(y).sum().backward()
            slope = torch.ones_like(x) + (x * 2).sin().median(0).values
            torch.testing.assert_close(y.grad, 2 * slope)
    named = [w for w in caught if w.category is xla_dynamo.BucketWarning]
    assert len(named) == 1
    assert "aten.median.dim" in str(named[0].message)


def test_results_that_are_views_stay_views() -> None:
    def function(x: Tensor) -> tuple[Tensor, ...]:
        y = x.sin()
        return x[1:], y, y[1:], y.t()

    x = batch(5, 6)
    want, got = function(x), compiled(function)(x)
    for ours, theirs in zip(got, want, strict=True):
        assert ours.stride() == theirs.stride()
        torch.testing.assert_close(ours, theirs)
    got[1].fill_(7)
    assert (got[2] == 7).all()
    assert (got[3] == 7).all()
    assert got[0].untyped_storage().data_ptr() == x.untyped_storage().data_ptr()


def test_arguments_that_are_written_to() -> None:
    buffers = [torch.zeros(3, dtype=torch.float64) for _ in range(2)]

    def function(x: Tensor, total: Tensor) -> Tensor:
        total += x.sum(0)
        return x.mul_(2).amax(0)

    run = compiled(function)
    for n in (5, 7):
        x = batch(n, 3)
        y = x.clone()
        torch._dynamo.mark_dynamic(y, 0)
        torch.testing.assert_close(run(x, buffers[0]), function(y, buffers[1]))
        torch.testing.assert_close(x, y)
    torch.testing.assert_close(*buffers)


def test_off_by_default() -> None:
    run = torch.compile(lambda x: x.cumsum(0), backend="xla")
    for n in (5, 6):
        run(batch(n))
    assert len(xla_dynamo.compiles()) == 2


def test_a_copy_of_a_model_has_programs_of_its_own() -> None:
    model = Classifier().eval()
    other = copy.deepcopy(model)
    x = batch(5, 3)
    torch.testing.assert_close(compiled(model)(x), compiled(other)(x))


def test_backward_that_refuses_a_dimension_of_two() -> None:
    """What forward saved is padded in both, and its exact size differs from call to call."""
    run = compiled(lambda x: Odd.apply(x * 2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", xla_dynamo.BucketWarning)
        for n, m in ((5, 3), (6, 3), (6, 4), (5, 4), (5, 9)):
            y = batch(n, m).requires_grad_()
            torch._dynamo.mark_dynamic(y, 0)
            torch._dynamo.mark_dynamic(y, 1)
            run(y).sum().backward()
            slope = torch.ones(n, m) + (y.detach() * 2).sin().median(0).values
            torch.testing.assert_close(y.grad, 2 * slope)
