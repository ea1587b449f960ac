"""Ops without a lowering, and shapes that depend on values: on the CPU, counted, warned of once."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch_xla.core.xla_model as xm
import torch_xla.debug.metrics as met
from torch import Tensor
from torch.nn import functional as F

import xla_dynamo
from tests.like_eager.lazy import XLA, assert_lockstep, assert_same
from xla_dynamo.compat.recording import metrics

X = torch.tensor([[3.0, 0.0, 1.0], [0.0, 2.0, 3.0]])

DYNAMIC: dict[str, Callable[[Tensor], object]] = {
    "nonzero": lambda x: x.nonzero(),
    "nonzero tuple": lambda x: x.nonzero(as_tuple=True),
    "where": lambda x: torch.where(x > 1),
    "mask": lambda x: x[x > 1],
    "mask of rows": lambda x: x[torch.tensor([True, False])],
    "mask of columns": lambda x: x[:, (x > 1).any(0)],
    "mask of nothing": lambda x: x[x > 9],
    "mask of bytes": lambda x: x[(x > 1).byte()],
    "mask among indices": lambda x: x[(x > 2).any(1), torch.tensor([2, 0], device=x.device)],
    "masked_select": lambda x: torch.masked_select(x, x > 1),
    "unique": lambda x: torch.unique(x, return_counts=True),
    "unique_consecutive": lambda x: torch.unique_consecutive(x.view(-1)),
    "bincount": lambda x: torch.bincount(x.long().view(-1)),
    "repeat_interleave": lambda x: torch.repeat_interleave(x[0], x[1].long()),
}


@pytest.mark.parametrize("name", DYNAMIC)
def test_shapes_that_depend_on_values_stay_on_the_device(name: str) -> None:
    assert_lockstep(lambda x: DYNAMIC[name](x + 1 - 1), X)  # FallbackWarning is an error
    assert met.executed_fallback_ops() == []


NEGATIVE: dict[str, Callable[[Tensor], Tensor]] = {
    "repeats can not be negative": lambda x: torch.repeat_interleave(x[0], x[1]),
    "bincount only supports 1-d non-negative integral inputs": lambda x: torch.bincount(x[1]),
}


@pytest.mark.parametrize("text", NEGATIVE)
def test_negative_counts_are_refused(text: str) -> None:
    with pytest.raises(RuntimeError, match=text):
        NEGATIVE[text](torch.tensor([[1, 2], [1, -2]]).to(XLA))


VECTORS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "vector @ matrix": lambda v, m: v @ m,
    "vector @ matrices": lambda v, m: v @ m.expand(2, 3, 4),
    "linear": lambda v, m: F.linear(v, m.t()),
    "linear with bias": lambda v, m: F.linear(v, m.t(), m[0]),
    "dimensions in place": lambda v, m: (v[None] * 2).squeeze_(0).unsqueeze_(1).t_().mul_(m.sum()),
}


@pytest.mark.parametrize("name", VECTORS)
def test_products_of_vectors_that_a_barrier_follows_stay_on_the_device(name: str) -> None:
    def step(v: Tensor, m: Tensor) -> Tensor:
        result = VECTORS[name](v, m)
        result.sum().backward()
        if v.is_xla:
            xm.mark_step()  # here the results of all parts are wanted
        return result.detach()

    v = torch.tensor([1.0, -2.0, 3.0], requires_grad=True)
    m = torch.arange(12.0).reshape(3, 4).requires_grad_()
    assert_lockstep(step, v, m)
    assert met.executed_fallback_ops() == []


def _solve(x: Tensor) -> Tensor:
    """An op that runs on the CPU."""
    return torch.linalg.lstsq(x, x).solution


def test_one_warning_that_names_the_line() -> None:
    x = X.to(XLA)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            _solve(x)
    assert len(caught) == 1
    text = str(caught[0].message)
    assert "aten.linalg_lstsq" in text
    assert "test_cpu_fallback.py" in text
    assert "torch.linalg.lstsq(x, x)" in text
    assert metrics.counters["aten::linalg_lstsq"] == 3
    assert met.executed_fallback_ops() == ["aten::linalg_lstsq"]
    assert "aten::linalg_lstsq" in met.metrics_report()


def test_masked_assignment_has_a_known_shape() -> None:
    def assign(x: Tensor) -> Tensor:
        x[x > 1] = -1.0
        x.masked_fill_(x == 0, 5.0)
        return torch.where(x < 0, x * 2, x)

    assert_lockstep(assign, X)


def test_gradients_flow_through() -> None:
    def select(x: Tensor) -> list[Tensor]:
        kept = x[x > 1]
        (kept * kept).sum().backward()
        return [kept.detach(), x.grad]

    assert_lockstep(select, X.clone().requires_grad_())


def test_a_boolean_loss_mask_in_a_training_step() -> None:
    def train(x: Tensor) -> list[Tensor]:
        weight = torch.ones(3, device=x.device, requires_grad=True)
        for _ in range(3):
            scores = x * weight
            loss = F.mse_loss(scores[x > 0], x[x > 0])
            loss = loss + weight.square().sum()
            (grad,) = torch.autograd.grad(loss, weight)
            weight = (weight - 0.1 * grad).detach().requires_grad_()
            xm.mark_step()
        return [weight.detach()]

    assert_lockstep(train, X)


@torch.library.custom_op("compat_tests::cpu_only", mutates_args=())
def cpu_only(x: Tensor) -> Tensor:
    return torch.from_numpy(x.numpy() * 2)


cpu_only.register_fake(torch.empty_like)


@torch.library.custom_op("compat_tests::no_shape", mutates_args=())
def no_shape(x: Tensor) -> Tensor:
    return x[:, 1:].clone()


@pytest.mark.parametrize("op", [cpu_only, no_shape])
def test_ops_of_the_user(op: Any) -> None:
    with pytest.warns(xla_dynamo.FallbackWarning):
        assert_lockstep(lambda x: op(x + 1).sum() * 2, X)
    assert metrics.counters[f"{op._qualname}"] == 1


def test_a_fallback_between_parts_of_a_window_leaves_the_rest_on_the_device() -> None:
    x = X.to(XLA)
    before = (x * 3).relu()
    kept = cpu_only(before)
    after = kept.sum() + before.mean()
    with pytest.warns(xla_dynamo.FallbackWarning):
        assert_same([before, kept, after], [X * 3, X * 6, torch.tensor(58.5)])


def test_repeats_of_a_known_total_stay_on_the_device() -> None:
    repeats = torch.tensor([2, 0, 3])

    def repeat(x: Tensor, repeats: Tensor) -> Tensor:
        return torch.repeat_interleave(x, repeats, dim=1, output_size=5) + 1

    assert_lockstep(repeat, X, repeats)  # FallbackWarning is an error


def test_nothing_is_counted_where_nothing_falls_back() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        y = F.softmax(X.to(XLA) @ X.t().to(XLA), -1)
        y.sort()[0].tolist()
    assert [name for name in metrics.counters if name.startswith("aten::")] in (
        [],
        ["aten::_local_scalar_dense"],
    )


def test_conjugates_inside_an_op_on_the_cpu() -> None:
    torch.manual_seed(0)
    a, b = torch.randn(2, 4, 3, dtype=torch.complex64), torch.randn(2, 4, 3, dtype=torch.complex64)
    want = torch.linalg.lstsq(a, b, driver="gels")
    with pytest.warns(xla_dynamo.FallbackWarning, match="linalg_lstsq"):
        got = torch.linalg.lstsq(a.to("xla:0"), b.to("xla:0"), driver="gels")
    torch.testing.assert_close(got.residuals.cpu(), want.residuals)
    torch.testing.assert_close(got.solution.cpu(), want.solution)


def test_the_reason_for_a_fallback_keeps_no_tensors() -> None:
    """Reasons are kept for the process; exceptions would keep the frames they went through."""
    x = torch.tensor([[4.0, 1.0], [1.0, 3.0]], device=XLA)
    factored = torch.linalg.lu_factor(x + 1, pivot=False)
    with pytest.raises(RuntimeError, match="pivot"), pytest.warns(xla_dynamo.FallbackWarning):
        factored.LU.cpu()
    del factored
    gc.collect()
    assert_same(x + 2, torch.tensor([[6.0, 3.0], [3.0, 5.0]]))


def test_whether_memory_is_pinned_is_known_without_a_look_at_it() -> None:
    """torch.distributed.checkpoint asks it of each tensor."""
    x = torch.ones(2, device="xla")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not x.is_pinned()
