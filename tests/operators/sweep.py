"""One case -> its outcome: its samples run behind a door, in groups, and compared with eager.

Samples are run in groups, one graph each. A group that raises is halved until the samples at fault
are alone; comparing tells them apart at once.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._dynamo import exc
from torch.utils import _pytree as pytree

import xla_dynamo
from xla_dynamo.errors import UnsupportedOp

from . import accuracy, resized, values
from .alternatives import UNDEFINED, check, gradients, invariant
from .cases import Case, operators, samples
from .doors import TRACED, Door, broken, bucketed, bucketed_for, compiled, traced
from .lowered_by import Ways, watch
from .randomness import assert_same_distribution
from .values import Values

GROUP = 32
_STOP = 3  # lone failures of one kind after which a case's other samples are left unrun
SEVERITY = ("right", "declined", "wrong", "crash")


@dataclass(frozen=True)
class Outcome:
    """What became of a case: the worst of its samples, and why.

    outcome: "right"; "declined" (a clear error, or a counted fallback to the CPU); "wrong";
        "crash" (an error that explains nothing to a user, or a dead process); "absent" where
        eager runs none of the samples.
    reason: of the worst, the first; empty where right.
    samples, failed: how many were run, and how many of them were not right.
    rounded: how many are right by the float64 answer only (`accuracy`), not by eager's.
    ways: how the operators of the graphs were lowered.
    """

    outcome: str
    reason: str = ""
    samples: int = 0
    failed: int = 0
    rounded: int = 0
    ways: dict[str, list[str]] = field(default_factory=dict)
    seconds: float = 0.0


@dataclass
class Run:
    """A case on its way through a door, and what went wrong."""

    case: Case
    door: Door
    op: Callable[..., Any]
    failures: list[tuple[str, str]] = field(default_factory=list)
    ways: Ways = field(default_factory=Ways)
    tried: int = 0
    rounded: int = 0
    group: int = GROUP

    @property
    def run(self) -> Callable[..., list[Values]]:
        return values.forward if self.case.direction == "forward" else values.backward

    def fail(self, outcome: str, reason: str) -> None:
        self.failures.append((outcome, " ".join(reason.split())[:600]))

    def hopeless(self) -> bool:
        return len(self.failures) >= _STOP


def outcome_of(case: Case, door: Door, limit: int | None, group: int = GROUP) -> Outcome:
    """Run a case on at most `limit` of its samples (None: all), `group` in a graph."""
    start = time.monotonic()
    run = Run(case, door, operators()[case.op].op, group=group)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        steady, random = expected(run, samples(case, limit))
        if door is bucketed:
            for pair in steady:
                _at_sizes(run, *pair)
        else:
            for first in range(0, len(steady), group):
                _group(run, steady[first : first + group])
        _random_samples(run, random)
    seconds = round(time.monotonic() - start, 2)
    if not run.tried:
        return Outcome("absent", "eager runs none of the samples", seconds=seconds)
    worst = max(run.failures, key=lambda f: SEVERITY.index(f[0]), default=("right", ""))
    ways = run.ways.as_dict()
    failed = len(run.failures)
    return Outcome(*worst, run.tried, failed, run.rounded, ways, seconds)


_Pair = tuple[Any, Values]


def expected(run: Run, found: Sequence[Any]) -> tuple[list[_Pair], list[Any]]:
    """Samples with eager's values, and those that eager answers with random numbers."""
    steady: list[_Pair] = []
    random = []
    for sample in found:
        try:
            first = _eager(run, sample, seed=1)
            repeated = _repeats(run, sample, first, seeds=2)
        except Exception:
            continue  # eager has no answer to compare with
        if repeated:
            steady.append((sample, first))
        else:
            random.append(sample)
    if random:  # a draw of few numbers comes twice by chance
        again = [(s, w) for s, w in steady if _repeats(run, s, w, seeds=12)]
        kept = {id(s) for s, _ in again}
        random += [s for s, _ in steady if id(s) not in kept]
        steady = again
    return steady, random


def _eager(run: Run, sample: Any, seed: int) -> Values:
    torch.manual_seed(seed)
    return run.run(values.caller(run.op), [sample])[0]


def _repeats(run: Run, sample: Any, first: Values, seeds: int) -> bool:
    if run.case.op in UNDEFINED:
        return True
    others = (_eager(run, sample, seed) for seed in range(2, seeds + 1))
    return all(_identical(run, sample, first, other) for other in others)


def _identical(run: Run, sample: Any, first: Values, second: Values) -> bool:
    try:
        check(run.case.op, sample, second.results, first.results)
        values.assert_same(second.gradients, first.gradients)
    except AssertionError:
        return False
    return True


def _group(run: Run, pairs: Sequence[_Pair]) -> None:
    """Run a group behind the door, or, if that raises, its halves."""
    if run.hopeless():
        return
    chosen = [sample for sample, _ in pairs]
    announce(*chosen)
    xla_dynamo.reset_metrics()
    with warnings.catch_warnings(record=True) as caught, watch(run.ways):
        warnings.simplefilter("always")
        try:
            found = run.run(run.door(values.caller(run.op)), chosen)
        except Exception as error:
            if len(pairs) == 1:
                _refused(run, pairs[0], error)
                return
            found = None
    if found is None or (len(pairs) > 1 and "fallback.graph" in xla_dynamo.counters()):
        middle = len(pairs) // 2
        _group(run, pairs[:middle])
        _group(run, pairs[middle:])
        return
    run.tried += len(pairs)
    _note_fallbacks(run, caught)
    for (sample, want), got in zip(pairs, found, strict=True):
        try:
            compare(run, sample, got, want)
        except AssertionError as error:
            run.fail("wrong", f"{describe(sample)}: {error}")


def _at_sizes(run: Run, sample: Any, want: Values) -> None:
    """Run one compiled function on a sample, and on it at other sizes that eager takes."""
    if run.hopeless():
        return
    sizes = resized.sizes_of(sample)
    opened = bucketed_for(resized.buckets_of(sizes))(values.caller(run.op))
    before = len(run.failures)
    xla_dynamo.reset_metrics()
    for pair in ((sample, want), *expected(run, list(resized.others(sample)))[0]):
        _sized(run, opened, *pair)
        if len(run.failures) > before:
            return


def _sized(run: Run, opened: Any, sample: Any, want: Values) -> None:
    announce(sample)
    with warnings.catch_warnings(record=True) as caught, watch(run.ways):
        warnings.simplefilter("always")
        try:
            (got,) = run.run(opened, [sample])
        except Exception as error:
            _refused(run, (sample, want), error)
            return
    run.tried += 1
    _note_fallbacks(run, caught)
    try:
        compare(run, sample, got, want)
    except AssertionError as error:
        if not same_without_padding(run, sample, got):
            run.fail("wrong", f"{describe(sample)}: {error}")


def same_without_padding(run: Run, sample: Any, got: Values) -> bool:
    """Whether `got` is to the bit what the program for these very sizes gives.

    Its distance from eager is then that of XLA's arithmetic, which is for another door to judge.
    """
    (exact,) = run.run(compiled(values.caller(run.op)), [sample])
    ours, theirs = (pytree.tree_leaves((v.results, v.gradients)) for v in (got, exact))
    same = len(ours) == len(theirs) and all(map(_is_equal, ours, theirs))
    run.rounded += same
    return same


def _is_equal(ours: Any, theirs: Any) -> bool:
    if not isinstance(ours, torch.Tensor) or not isinstance(theirs, torch.Tensor):
        return ours is theirs or bool(ours == theirs)
    return ours.dtype == theirs.dtype and torch.allclose(ours, theirs, 0, 0, equal_nan=True)


def compare(run: Run, sample: Any, got: Values, want: Values) -> None:
    """Raise AssertionError unless `got` is as right as eager's `want`."""
    try:
        check(run.case.op, sample, got.results, want.results)
        if run.case.op not in UNDEFINED:
            values.assert_same(got.arguments, want.arguments)
        if got.gradients is not None and want.gradients is not None:
            wanted = gradients(run.case.op, sample, got, want)
            values.assert_same_gradients(got.gradients, wanted)
    except AssertionError:
        if run.case.op in UNDEFINED or not _is_rounding(run, sample, got, want):
            raise
        run.rounded += 1


def _is_rounding(run: Run, sample: Any, got: Values, want: Values) -> bool:
    try:
        truth = _widened(run, sample)
        if _rounds(got, want, truth):
            return True
        near = [_widened(run, sample, noise) for noise in accuracy.NOISES]
    except Exception:
        return False  # not in float64
    return _rounds(got, want, truth, near)


def _widened(run: Run, sample: Any, noise: float = 0.0) -> Values:
    """Eager's answer in float64, to arguments with `noise`."""

    def widened(samples: Sequence[values.Arguments]) -> list[Any]:
        return values.caller(run.op)(accuracy.widened(samples, noise))

    return run.run(widened, [sample])[0]


def _rounds(got: Values, want: Values, truth: Values, near: Sequence[Values] = ()) -> bool:
    close = [values.results for values in near]
    slopes = [values.gradients or () for values in near]
    return accuracy.is_rounding(got.results, want.results, truth.results, close) and (
        accuracy.sequence_is_rounding(
            got.gradients or (), want.gradients or (), truth.gradients or (), slopes
        )
    )


def _random_samples(run: Run, found: Sequence[Any]) -> None:
    """Compare distributions, one sample at a time: each is drawn many times."""
    for sample in found:
        if run.hopeless():
            return
        function = values.caller(run.op)
        announce(sample)
        xla_dynamo.reset_metrics()
        with warnings.catch_warnings(record=True) as caught, watch(run.ways):
            warnings.simplefilter("always")
            torch.manual_seed(3)
            try:
                _same_distribution(run, sample, run.door(function), function)
            except AssertionError as error:
                run.fail("wrong", f"{describe(sample)}: {error}")
            except Exception as error:
                _refused(run, (sample, None), error)
                continue
        run.tried += 1
        _note_fallbacks(run, caught)


def _same_distribution(run: Run, sample: Any, opened: Any, function: Any) -> None:
    def draw(source: Any) -> Callable[[], Any]:
        def once() -> Any:
            drawn = run.run(source, [sample])[0]
            return invariant(run.case.op, drawn.results), drawn.gradients or ()

        return once

    assert_same_distribution(draw(opened), draw(function))


def _note_fallbacks(run: Run, caught: Sequence[warnings.WarningMessage]) -> None:
    texts = [str(w.message) for w in caught if issubclass(w.category, xla_dynamo.FallbackWarning)]
    short = [text.split(" It runs on the CPU")[0] for text in texts]
    exact = [str(w.message) for w in caught if issubclass(w.category, xla_dynamo.BucketWarning)]
    if exact:
        places = sorted(set(map(_without_place, exact)))
        run.fail("declined", "exact sizes: " + "; ".join(places))
    if short:
        run.fail("declined", "on the CPU: " + "; ".join(sorted(set(map(_without_line, short)))))


def _without_line(text: str) -> str:
    """Drop the line from "aten.x.default at y.py:1 (code) is not compiled": it is the sweep's."""
    for separator in (" is not compiled for XLA. ", " runs on the CPU: "):
        op, found, rest = text.partition(separator)
        if found:
            return op.split(" at ")[0] + ": " + rest.split(" Each time, this waits")[0]
    return text


def _without_place(text: str) -> str:
    """Drop the line and the dimensions, which are the sweep's, from a BucketWarning."""
    op, _, reason = text.partition(" has no padded form: ")
    return f"{op.split(' (at ')[0]}: {reason.split('. Compiled for')[0]}"


def _refused(run: Run, pair: tuple[Any, Values | None], error: Exception) -> None:
    """A lone sample raised: whether that is a clear refusal, and whose."""
    run.tried += 1
    sample, want = pair
    if isinstance(_root(error), UnsupportedOp):
        run.fail("declined", str(_root(error)))
    elif isinstance(error, exc.Unsupported):
        run.fail(*_graph_break(run, sample, want, error))
    else:
        theirs = _raises(run, TRACED[run.door], sample) if run.door in TRACED else None
        told = f"{describe(sample)}: {type(error).__name__}: {error}"
        if theirs is not None and type(theirs) is type(error):
            run.fail("declined", f"PyTorch cannot trace it (aot_eager fails too): {told}")
        else:
            run.fail("crash", told)


def _root(error: BaseException) -> BaseException:
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def _raises(run: Run, door: Door, sample: Any) -> Exception | None:
    try:
        run.run(door(values.caller(run.op)), [sample])
    except Exception as error:
        return error
    return None


def _graph_break(run: Run, sample: Any, want: Values | None, error: Exception) -> tuple[str, str]:
    """Dynamo refuses one graph: without fullgraph=True, the values must still be eager's."""
    why = f"Dynamo breaks the graph: {str(error).split('Developer debug')[0]}"
    if want is None:
        return "declined", why
    try:
        got = run.run(broken(values.caller(run.op)), [sample])[0]
        compare(run, sample, got, want)
    except AssertionError as wrong:
        return "wrong", f"with a graph break: {describe(sample)}: {wrong}"
    except Exception as crash:
        theirs = _raises(run, traced, sample)
        return "declined" if theirs is not None else "crash", f"{why}; then {crash}"
    return "declined", why


def announce(*found: Any) -> None:
    """Say what runs: the last words of a process that dies of it."""
    print(f"\nrunning {describe(found[0])} and {len(found) - 1} more", file=sys.stderr, flush=True)


def describe(sample: Any) -> str:
    """The sample in a line: "(f32[5, 5], f32[5], alpha=2)"."""
    parts = [_leaf(sample.input), *map(_leaf, sample.args)]
    parts += [f"{key}={_leaf(value)}" for key, value in sample.kwargs.items()]
    return f"({', '.join(parts)})"[:300]


def _leaf(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        dtype = str(value.dtype).removeprefix("torch.")
        strided = value.layout is torch.strided and value.is_contiguous()
        return f"{dtype}{list(value.shape)}" + ("" if strided else " not contiguous")
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_leaf, value)) + "]"
    return repr(value)
