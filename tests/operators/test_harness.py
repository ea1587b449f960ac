"""The sweep's own judgement: doors that are wrong, refuse, raise or die must be told apart."""

from __future__ import annotations

import itertools
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.testing._internal.opinfo.core import SampleInput
from torch.utils import _pytree as pytree

from tests.like_eager.lazy import Laid
from tests.operators import values
from tests.operators.accuracy import is_rounding
from tests.operators.alternatives import check, gradients
from tests.operators.cases import Case, cases, samples, shard
from tests.operators.doors import Function, bucketed, compiled
from tests.operators.pool import Worker
from tests.operators.randomness import assert_same_distribution
from tests.operators.shard import Shard
from tests.operators.sweep import Outcome, Run, outcome_of, same_without_padding
from tests.operators.together import right_together
from xla_dynamo import UnsupportedOp

ADD = Case("add", "float32", "forward")


def eager(function: Function) -> Function:
    return function


def changing(change: Any) -> Any:
    """A door behind which every result tensor is changed."""

    def door(function: Function) -> Function:
        return lambda found: pytree.tree_map_only(torch.Tensor, change, function(found))

    return door


def raising(error: Exception) -> Any:
    def door(function: Function) -> Function:
        def opened(found: Any) -> Any:
            raise error

        return opened

    return door


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_eager_is_right(direction: str) -> None:
    outcome = outcome_of(Case("linalg.svd", "float32", direction), eager, 8)
    assert (outcome.outcome, outcome.samples, outcome.failed) == ("right", 8, 0)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda t: t + 1e-3, "not close"),
        (lambda t: t.double(), "dtype"),
        (lambda t: t.unsqueeze(0), "shape"),
    ],
)
def test_changed_results_are_wrong(change: Any, told: str) -> None:
    outcome = outcome_of(ADD, changing(change), 4)
    assert (outcome.outcome, outcome.failed) == ("wrong", 4)
    assert told in outcome.reason


def test_other_strides_of_undefined_values_are_wrong() -> None:
    case = Case("empty_strided", "float32", "forward")
    outcome = outcome_of(case, changing(lambda t: torch.zeros(t.shape, dtype=t.dtype)), None)
    assert outcome.outcome == "wrong"


def test_changed_gradients_are_wrong() -> None:
    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, value: torch.Tensor) -> torch.Tensor:
            return value.clone()

        @staticmethod
        def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
            return 2 * gradients[0]

    outcome = outcome_of(Case("mul", "float64", "backward"), changing(Doubled.apply), 4)
    assert outcome.outcome == "wrong"
    assert outcome.reason.count("gradient 0")


def test_a_refusal_is_declined() -> None:
    outcome = outcome_of(ADD, raising(UnsupportedOp("no adders here")), 4)
    assert (outcome.outcome, outcome.reason) == ("declined", "no adders here")


def test_any_other_error_is_a_crash() -> None:
    outcome = outcome_of(ADD, raising(IndexError("7")), 4)
    assert outcome.outcome == "crash"
    assert "IndexError: 7" in outcome.reason


def test_a_failing_sample_is_found_in_its_group() -> None:
    def door(function: Function) -> Function:
        def opened(found: Any) -> Any:
            if any(first.dim() == 0 for first, _, _ in found):
                raise IndexError("0-d")
            return function(found)

        return opened

    outcome = outcome_of(Case("cumsum", "float32", "forward"), door, None)
    assert outcome.samples > outcome.failed == 1
    assert "float32[]" in outcome.reason


def test_random_operators_are_told_by_their_distribution() -> None:
    case = Case("normal.number_mean", "float32", "forward")
    assert outcome_of(case, eager, 4).outcome == "right"
    assert outcome_of(case, changing(lambda t: t + 1), 4).outcome == "wrong"


def test_a_constant_is_not_a_distribution() -> None:
    fixed = torch.rand(50)
    with pytest.raises(AssertionError, match="differ in distribution"):
        assert_same_distribution(lambda: fixed, lambda: torch.rand(50))


def test_rounding_is_what_is_as_near_to_float64_as_eager() -> None:
    truth = torch.tensor([1.0, 0.0], dtype=torch.float64)
    want = torch.tensor([1.0, 4e-5])
    assert is_rounding(torch.tensor([1.0, -8e-5]), want, truth)
    assert not is_rounding(torch.tensor([1.0, 2e-4]), want, truth)
    assert not is_rounding(torch.tensor([float("nan"), 0.0]), want, truth)


def test_rounding_is_what_a_unit_in_the_last_place_of_the_inputs_changes() -> None:
    truth = torch.tensor([1.0], dtype=torch.float64)
    near = [truth + 5e-5, truth + 3e-6]
    assert is_rounding(torch.tensor([1 + 1e-4]), torch.tensor([1.0]), truth, near)
    assert not is_rounding(torch.tensor([1 + 1e-4]), torch.tensor([1.0]), truth)
    # Beside a step nothing is in proportion.
    for beside in ([truth + 1, truth], [truth + 1, truth + 1]):
        assert not is_rounding(torch.tensor([2.0]), torch.tensor([1.0]), truth, beside)


@pytest.mark.parametrize("op", ["sin", "nn.functional.linear"])
def test_a_gradient_beyond_rounding_is_wrong(op: str) -> None:
    def door(function: Function) -> Function:
        def scaled(leaf: torch.Tensor) -> torch.Tensor:
            return leaf.detach() + (leaf - leaf.detach()) * 1.01 if leaf.requires_grad else leaf

        return lambda found: pytree.tree_map_only(torch.Tensor, scaled, function(found))

    assert outcome_of(Case(op, "float32", "backward"), eager, 4).outcome == "right"
    assert outcome_of(Case(op, "float32", "backward"), door, 4).outcome == "wrong"


def test_elements_that_share_memory_have_gradients_of_their_own() -> None:
    host, grad = torch.ones(2, 3, requires_grad=True), torch.randn(2, 3)
    laid = Laid.apply(host, (1, 0))
    assert isinstance(laid, torch.Tensor)
    assert laid.stride() == (1, 0)
    assert torch.equal(torch.autograd.grad(laid, host, grad)[0], grad)


@pytest.mark.parametrize("op", ["linalg.eigh", "linalg.svd", "linalg.qr", "linalg.eig"])
def test_other_signs_are_as_valid_but_other_vectors_are_not(op: str) -> None:
    case = Case(op, "float64", "forward")
    sample = next(s for s in samples(case, None) if s.input.shape == (5, 5))
    want = tuple(case_results(op, sample))
    flipped = {"linalg.svd": (-want[0], want[1], -want[-1]), "linalg.qr": (-want[0], -want[1])}
    check(op, sample, type_of(op, flipped.get(op, (want[0], -want[1]))), type_of(op, want))
    with pytest.raises(AssertionError):
        check(op, sample, type_of(op, (*want[:-1], want[-1].flip(-1))), type_of(op, want))


@pytest.mark.parametrize("op", ["mode", "kthvalue"])
def test_any_position_of_the_selected_value_is_as_valid(op: str) -> None:
    args = (1,) if op == "mode" else (2, 1)
    sample = SampleInput(torch.tensor([[2.0, 1.0, 2.0], [3.0, 3.0, 4.0]]), args=args)
    want = getattr(torch, op)(sample.input, *args)
    check(op, sample, (want.values, torch.tensor([0, 1])), (want.values, torch.tensor([2, 0])))
    with pytest.raises(AssertionError):
        check(op, sample, (want.values, torch.tensor([1, 1])), tuple(want))


def test_the_largest_are_as_many_elements() -> None:
    sample = SampleInput(torch.tensor([2.0, 1.0, 2.0, 2.0]), args=(2,))
    want = torch.topk(sample.input, 2)
    check("topk", sample, (want.values, torch.tensor([3, 0])), (want.values, torch.tensor([0, 2])))
    with pytest.raises(AssertionError, match="comes twice"):
        check("topk", sample, (want.values, torch.tensor([3, 3])), tuple(want))


def case_results(op: str, sample: Any) -> Any:
    function = getattr(torch.linalg, op.removeprefix("linalg."))
    return function(sample.input, *sample.args, **sample.kwargs)


def type_of(op: str, parts: tuple[torch.Tensor, ...]) -> Any:
    return vars(torch.return_types)["linalg_svd"](parts) if op == "linalg.svd" else parts


def test_an_unstable_sort_may_exchange_equal_elements_only() -> None:
    x = torch.tensor([2.0, 1.0, 2.0])
    first, second = torch.tensor([1, 0, 2]), torch.tensor([1, 2, 0])
    check("argsort", SampleInput(x), second, first)
    check("sort", SampleInput(x), (x[first], second), (x[first], first))
    for wrong in ([0, 1, 2], [1, 0, 0]):
        with pytest.raises(AssertionError):
            check("argsort", SampleInput(x), torch.tensor(wrong), first)
    with pytest.raises(AssertionError):
        check("argsort", SampleInput(x, kwargs={"stable": True}), second, first)


@pytest.mark.parametrize("dim", [0, -1])
def test_gradients_of_equal_elements_follow_their_positions(dim: int) -> None:
    x = torch.tensor([[2.0, 1.0, 2.0], [3.0, 3.0, 3.0]])
    sample = SampleInput(x, args=(dim,))
    (eager,) = values.backward(values.caller(torch.sort), [sample_of(x, dim)])
    assert gradients("sort", sample, eager, eager) is eager.gradients
    places = eager.results[1].flip(dim) if dim else eager.results[1]
    other = values.Values((eager.results[0], places), None, None)
    (moved,) = gradients("sort", sample, other, eager)
    assert moved is not None
    (cotangent,) = values.cotangents([eager.results[0]])
    assert torch.equal(moved.gather(dim, places), cotangent)


def test_gradients_of_equal_elements_whose_positions_are_not_told() -> None:
    x, sample = torch.tensor([2.0, 1.0, 2.0]), SampleInput(torch.tensor([2.0, 1.0, 2.0]))
    want = values.Values(x, None, (torch.tensor([5.0, 6.0, 7.0]),))
    for found, is_right in (([7.0, 6.0, 5.0], True), ([6.0, 5.0, 7.0], False)):
        got = values.Values(x, None, (torch.tensor(found),))
        (expected,) = gradients("msort", sample, got, want)
        assert torch.equal(torch.tensor(found), torch.as_tensor(expected)) is is_right


def sample_of(x: torch.Tensor, dim: int) -> SampleInput:
    return SampleInput(x.clone().requires_grad_(), args=(dim,))


def test_a_dead_worker_is_a_crash_and_the_next_one_runs() -> None:
    worker = Worker("compile", timeout=60, command=[sys.executable, "-c", DIES])
    outcome = worker.run(ADD, 4)
    assert outcome.outcome == "crash"
    assert signal.SIGSEGV.name in outcome.reason
    worker.command = None
    try:
        assert worker.run(ADD, 4).outcome == "right"
    finally:
        worker.stop()


DIES = "import os; input(); os.kill(os.getpid(), 11)"


def test_a_stuck_worker_is_a_crash() -> None:
    worker = Worker("compile", timeout=0.5, command=["sleep", "60"])
    outcome = worker.run(ADD, 4)
    assert (outcome.outcome, "no answer" in outcome.reason) == ("crash", True)


def test_cases_in_one_graph_are_told_apart() -> None:
    found = [Case(op, "float32", "forward") for op in ("add", "uniform", "empty", "sin", "mean")]

    def door(function: Function) -> Function:
        def opened(packed: Any) -> Any:
            *others, last = function(packed)
            return [*others, last + 1]

        return opened

    assert right_together(found, eager, 2) == [found[0], found[3], found[4]]
    assert right_together(found, door, 2) == [found[0], found[3]]
    assert right_together(found, raising(IndexError("7")), 2) == []
    assert right_together(found[1:3], eager, 2) == []


def test_what_is_not_right_in_its_graph_runs_alone() -> None:
    class Alone(Worker):
        together: Sequence[Case] = ()
        ran: Sequence[Case] = ()

        def right_together(self, cases: Sequence[Case], limit: int) -> list[Case]:
            self.together = cases
            return [case for case in cases if case.op != "sin"]

        def run(self, case: Case, limit: int | None) -> Outcome:
            self.ran = (*self.ran, case)
            return Outcome("wrong", "a sign") if case.op == "sin" else Outcome("right")

    found = [Case(op, "float32", "forward") for op in ("add", "sin", "mean")]
    worker = Alone("compile", timeout=1)
    runner = Shard(worker, found, 2)
    runner.assert_as_recorded(found[0])
    with pytest.raises(AssertionError, match="a sign"):
        runner.assert_as_recorded(found[1])
    runner.assert_as_recorded(found[2])
    assert (worker.together, worker.ran) == (found, (found[1],))


def test_shards_are_all_cases_once() -> None:
    everything = cases(["float32"], ["forward"])
    parts = [shard(everything, f"{number}/7") for number in range(1, 8)]
    assert sorted(itertools.chain(*parts)) == sorted(everything)
    with pytest.raises(ValueError, match=r"must lie in 1\.\.7"):
        shard(everything, "8/7")


def test_padding_is_not_to_blame_for_what_exact_sizes_give_too() -> None:
    run = Run(Case("sin", "float32", "forward"), bucketed, torch.sin)
    (sample,) = samples(run.case, 1)
    (got,) = run.run(compiled(values.caller(run.op)), [sample])
    assert same_without_padding(run, sample, got)
    assert run.rounded == 1
    other = replace(got, results=pytree.tree_map(lambda x: x * (1 + 1e-6), got.results))
    assert not same_without_padding(run, sample, other)
