"""Loops that concatenate what they compute: right values, and no program for each step."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
import torch_xla.core.xla_model as xm
import torch_xla.debug.metrics as met
from torch import Tensor, nn

import xla_dynamo
from tests.compat.failing import Odd, even
from tests.like_eager.lazy import XLA, assert_lockstep, assert_same
from xla_dynamo.compat.execution import automatic_barriers, growing_results
from xla_dynamo.compat.recording import trace

pytestmark = pytest.mark.usefixtures("counted_from_zero")
X = torch.arange(12.0).reshape(4, 3)


def barrier(x: Tensor) -> None:
    if x.is_xla:
        xm.mark_step()


def evaluate(module: nn.Module, x: Tensor, steps: int = 20) -> list[Tensor]:
    """The predictions and labels of a loop, and their accuracy."""
    predictions = labels = None
    with torch.no_grad():
        for step in range(steps):
            output = module(x + step).argmax(1)
            label = (x.sum(1) > step).long()
            predictions = output if predictions is None else torch.cat([predictions, output])
            labels = label if labels is None else torch.cat((labels, label), dim=0)
            barrier(x)
    assert predictions is not None
    assert labels is not None
    return [predictions, labels, (predictions == labels).double().mean()]


def test_an_evaluation_compiles_few_programs() -> None:
    torch.manual_seed(0)
    xla_dynamo.reset_metrics()
    assert_lockstep(evaluate, nn.Linear(3, 2), X)
    # Steps that join nothing, which is all but the second; that one; the accuracy.
    assert met.counter_value("UncachedCompile") == len(xla_dynamo.compiles()) == 3
    assert met.counter_value("xla::cat") is not None


LISTS: dict[str, Callable[[list[Tensor]], Tensor]] = {
    "cat": lambda results: torch.cat(results),
    "cat of columns": lambda results: torch.cat(results, dim=-1),
    "stack": lambda results: torch.stack(results),
    "stack in the middle": lambda results: torch.stack(results, 1),
    "stack last": lambda results: torch.stack(results, dim=-1),
    "hstack": lambda results: torch.hstack(results),
    "vstack": lambda results: torch.vstack(results),
    "vstack of rows": lambda results: torch.vstack([x[0] for x in results[-3:]]),
    "stack of losses": lambda results: torch.stack([*results]),
}


@pytest.mark.parametrize("is_read", [True, False], ids=["read", "kept"])
@pytest.mark.parametrize("name", LISTS)
def test_a_list_that_grows_is_joined_in_every_step(name: str, is_read: bool) -> None:
    def loop(module: nn.Module, x: Tensor) -> Tensor:
        results: list[Tensor] = []
        with torch.no_grad():
            for step in range(12):
                output = module(x + step)
                results.append(output.mean() if "losses" in name else output)
                joined = LISTS[name](results)
                barrier(x)
                assert not is_read or torch.isfinite(joined.cpu()).all()
        return joined

    torch.manual_seed(0)
    xla_dynamo.reset_metrics()
    assert_lockstep(loop, nn.Linear(3, 2), X)
    # The first step, which joins one; every other; `vstack of rows` of as many rows as there are.
    assert len(xla_dynamo.compiles()) <= (4 if "rows" in name else 2)


def test_columns_and_probabilities_that_are_parts_of_results() -> None:
    """Each is a view with gaps; what they are joined to has none."""

    def loop(x: Tensor) -> list[object]:
        positive: list[Tensor] = []
        for step in range(6):
            positive.append((x * step).softmax(1)[:, 1])
            joined, rows = torch.cat(positive), torch.stack(positive)
            barrier(x)
        return [joined, rows, joined.stride(), rows.stride()]

    xla_dynamo.reset_metrics()
    assert_lockstep(loop, X)
    assert len(xla_dynamo.compiles()) <= 2


METERS: dict[str, Callable[[Tensor], object]] = {
    "mean": lambda joined: joined.mean().item(),
    "of several ops": lambda joined: ((joined > 0.5).float().mean() * 2).sqrt().item(),
    "best so far": lambda joined: joined.max(0).values.sum().item(),
    "in place": lambda joined: joined.mul_(2).sub_(1).sum().item(),
    "branch": lambda joined: bool((joined.sum() > 3).any()),
    "columns": lambda joined: joined.flatten()[::2].std(0, unbiased=False).cpu(),
}


@pytest.mark.parametrize("name", METERS)
@pytest.mark.parametrize("join", [torch.cat, torch.stack], ids=lambda join: join.__name__)
def test_a_running_metric_of_a_list(name: str, join: Callable[[list[Tensor]], Tensor]) -> None:
    """It is read in every step: on the device for three sizes of the list, then on the host."""

    def loop(module: nn.Module, x: Tensor) -> list[object]:
        results: list[Tensor] = []
        told: list[object] = []
        with torch.no_grad():
            for step in range(14):
                results.append(module(x + step).sigmoid())
                barrier(x)
                told.append(METERS[name](join(results)))
        return told

    torch.manual_seed(0)
    module = nn.Linear(3, 2)
    xla_dynamo.reset_metrics()
    expected, actual = loop(module, X), loop(copy.deepcopy(module).to(XLA), X.to(XLA))
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-6)
    assert len(xla_dynamo.compiles()) <= 8


def test_what_the_host_computed_goes_on_on_the_device() -> None:
    """A mean that is kept, logged in a list of its own, and multiplied with what is there."""

    def loop(module: nn.Module, x: Tensor) -> list[object]:
        losses: list[Tensor] = []
        means: list[Tensor] = []
        total = x.new_zeros(())
        for step in range(12):
            loss = module(x + step).square().mean()
            loss.backward()
            losses.append(loss.detach())
            means.append(torch.stack(losses).mean())
            total = total + means[-1] * loss.detach()
            barrier(x)
        return [total, torch.stack(means), means[-1].view(1).expand(3)]

    torch.manual_seed(0)
    xla_dynamo.reset_metrics()
    assert_lockstep(loop, nn.Linear(3, 2), X)
    assert len(xla_dynamo.compiles()) <= 9


def test_a_list_that_a_layer_takes_stays_on_the_device() -> None:
    def loop(module: nn.Module, x: Tensor) -> Tensor:
        history: list[Tensor] = []
        for step in range(6):
            history.append(x + step)
            barrier(x)
            y = module(torch.stack(history))
        return y

    xla_dynamo.reset_metrics()
    assert_lockstep(loop, nn.Linear(3, 2), X)
    assert met.counter_value("aten::linear") is None


def test_a_list_that_is_joined_with_another_dtype_or_size_is_eagers() -> None:
    def loop(x: Tensor) -> list[Tensor]:
        results = [x * 1]
        for step in range(4):
            results.append(x + step)
            torch.cat(results)
            torch.stack(results)
            barrier(x)
        more = torch.cat([*results, x.double()])
        with pytest.raises(RuntimeError, match="equal size"):
            torch.stack([*results, x[:2]])
        return [more, torch.cat([*results, x[:2]])]

    assert_lockstep(loop, X)


def test_dense_blocks_join_what_they_keep_in_one_program() -> None:
    """A list that grows within a step is joined there; steps repeat."""

    def loop(x: Tensor) -> Tensor:
        features = [x]
        for _ in range(3):
            features.append(torch.cat(features, 1).sum(1, keepdim=True))
        barrier(x)
        return features[-1]

    xla_dynamo.reset_metrics()
    for shift in range(3):
        assert_lockstep(loop, X + shift)
    assert len(xla_dynamo.compiles()) == 1


USES: dict[str, Callable[[Tensor], object]] = {
    "read": lambda x: x,
    "an op": lambda x: x * 2,
    "twice": lambda x: x + x,
    "a view": lambda x: x[2:5],
    "a write": lambda x: x.add_(1),
    "a write to a part": lambda x: x[1].zero_(),
    "dimensions": lambda x: (x.shape, x.stride(), x.t().is_contiguous()),
    "one more": lambda x: torch.cat([x, x[:1]]),
    "another dimension": lambda x: torch.cat([x, x], dim=1),
    "an op that fails": lambda x: _refused(x),
}


def _refused(x: Tensor) -> None:
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        torch.mm(x, x.new_ones(1, 1))


@pytest.mark.parametrize("dim", [0, -1])
@pytest.mark.parametrize("name", USES)
def test_what_grew_is_used(name: str, dim: int) -> None:
    def loop(x: Tensor) -> list[object]:
        grown = x * 1
        for step in range(6):
            grown = torch.cat([grown, x + step], dim)
            barrier(x)
        used = USES[name](grown)
        barrier(x)
        return [grown, used if isinstance(used, Tensor | tuple) else None]

    assert_lockstep(loop, X)


def test_many_parts_become_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growing_results, "_PARTS", 4)

    def loop(x: Tensor) -> Tensor:
        grown = x[:0]
        for step in range(15):
            grown = torch.cat([grown, x[:2] * step])
            barrier(x)
        return grown

    assert_lockstep(loop, X)
    assert (met.counter_value("UncachedCompile") or 0) <= 4
    sent, read = (met.metric_data(f"Transfer{way}DeviceTime") for way in ("To", "From"))
    assert sent is not None
    assert read is not None
    assert sent[0] > 2  # the input, and the parts that became one
    assert read[0] > 2


def test_a_loop_without_barriers_compiles_few_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "FIRST_LOOK", 96)
    monkeypatch.setattr(automatic_barriers, "NEXT_LOOK", 48)
    xm.mark_step()

    def loop(x: Tensor) -> Tensor:
        grown = x * 1
        for step in range(120):
            grown = torch.cat([grown, (x + step).sin() * 2])
        return grown

    with pytest.warns(UserWarning, match="no barrier came"):
        assert_lockstep(loop, X)
    # The beginning, a part that joins, every part after it, and the end.
    assert met.counter_value("UncachedCompile") == 4
    assert (met.counter_value("TrimIrGraph") or 0) > 5


def test_gradients() -> None:
    def loop(x: Tensor) -> Tensor:
        grown = x * 1
        for step in range(5):
            grown = torch.cat([grown, x * step])
            barrier(x)
        (grown * torch.arange(float(len(grown)), device=x.device)[:, None]).sum().backward()
        return grown.detach()

    assert_lockstep(loop, X.clone().requires_grad_())


def test_what_cannot_be_joined_is_eagers_error() -> None:
    def loop(x: Tensor) -> None:
        grown = x * 1
        for _ in range(4):
            grown = torch.cat([grown, x])
            barrier(x)
        torch.cat([grown, x[:, :2]])

    with pytest.raises(RuntimeError, match="Sizes of tensors must match"):
        loop(X.to(XLA))


def test_a_part_that_failed_raises_when_the_whole_is_read() -> None:
    x = X.to(XLA)
    grown = x * 1
    for _ in range(4):
        grown = torch.cat([grown, x])
        xm.mark_step()
    grown = torch.cat([grown, even(x + torch.eye(4, 3, device=XLA))])  # the sum is odd
    with pytest.raises(Odd), pytest.warns(xla_dynamo.FallbackWarning):
        xm.mark_step()
    with pytest.raises(Odd):
        grown.cpu()
    assert_same(x, X)
