"""Programs -> those on which a door disagrees with eager, and how.

Results, inputs after the run and gradients count: shapes and dtypes, numbers to 1e-9 in float64,
exactly for integers and bools. Where both raise, they agree.
"""

from __future__ import annotations

import collections
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeGuard

import torch
from torch import Tensor

import xla_dynamo

from .doors import CAPTURED, DECOMPOSED, DOORS, TRACED, Door, Seen, eager, with_zeros, written_last
from .program import Program
from .sensitivity import difference, moves

_TOLERANCE = 1e-9
_SINGLE = 1e-5  # where float32 takes part: its own steps round there


@dataclass(frozen=True)
class Disagreement:
    """`program` through `door` is not what eager gives; `text` says how."""

    program: Program
    door: str
    text: str


@dataclass
class Tally:
    """What was run; `sensitive` counts results that rounding decides, which agree by
    definition; `alike` disagreements that call what a reported one calls;
    `of_pytorch` those that PyTorch has without XLA: mostly torch.compile(backend="aot_eager");
    `declined` programs on which the lazy door raises an error that says what to do instead."""

    graphs: int = 0
    raising: int = 0
    gradients: int = 0
    sensitive: int = 0
    alike: int = 0
    of_pytorch: int = 0
    declined: int = 0
    fallbacks: collections.Counter[str] = field(default_factory=collections.Counter)


def check(programs: Sequence[Program], door: str, tally: Tally | None = None) -> list[Disagreement]:
    """Those of `programs` on which `door` disagrees with eager. They run together first."""
    tally = Tally() if tally is None else tally
    expected = [_attempt(eager, program) for program in programs]
    right = [program for program, seen in zip(programs, expected, strict=True) if _ran(seen)]
    before = collections.Counter(xla_dynamo.counters())
    try:
        together = dict(zip(map(id, right), DOORS[door](right), strict=True)) if right else {}
    except Exception:
        together = {}
    after = collections.Counter(xla_dynamo.counters())
    tally.fallbacks += collections.Counter(
        {name: n for name, n in (after - before).items() if name.startswith("fallback")}
    )
    found = []
    for program, want in zip(programs, expected, strict=True):
        actual = together.get(id(program))
        if actual is None or compare(program, actual, want, tally) is not None:
            actual = _attempt(DOORS[door], program)
        text = compare(program, actual, want, Tally())
        traced_alike = bool(text) and _same_without_xla(program, door, actual, want)
        if text and (traced_alike or _loses_gradients(actual)):
            tally.of_pytorch += 1
        elif text and _declines(actual):
            tally.declined += 1
        elif text:
            found.append(Disagreement(program, door, text))
        tally.graphs += 1
        tally.gradients += program.gradient
        tally.raising += not _ran(want)
    return found


Outcome = Seen | Exception


def _ran(outcome: Outcome) -> TypeGuard[Seen]:
    return isinstance(outcome, Seen)


def _attempt(door: Door, program: Program) -> Outcome:
    try:
        return door([program])[0]
    except Exception as error:
        return error.with_traceback(None)  # whose frames would keep tensors


def _same_without_xla(program: Program, door: str, actual: Outcome, expected: Outcome) -> bool:
    """Whether PyTorch's tracing gives `actual` with PyTorch's kernels too: then it is to blame.

    Where it does not run at all, what it makes of inputs that are written to may be to blame. An
    error is PyTorch's too where its own decompositions end in the same one; and so is what becomes
    of a graph that raises as Dynamo captured it (`expected` says that eager ran).
    """
    if door not in TRACED:
        return False
    if not _ran(actual) and str(_attempt(DECOMPOSED[door], program)) == str(actual):
        return True
    references = [_attempt(TRACED[door], program)]
    if not _ran(references[0]) and not _ran(_attempt(CAPTURED[door], program)):
        return _ran(expected)
    if _ran(actual) and not _ran(references[0]):
        references = [_attempt(run, program) for run in (with_zeros, written_last)]
    return any(compare(program, actual, seen, Tally()) is None for seen in references)


def _declines(actual: Outcome) -> bool:
    """Whether the lazy door says that it cannot do what eager does, and what to do."""
    return isinstance(actual, RuntimeError) and " on an xla device" in str(actual)


def _loses_gradients(actual: Outcome) -> bool:
    """Whether PyTorch fails where on the CPU it silently gives no gradient.

    That is: a view of a parameter that is itself a view, used after the parameter was updated.
    """
    return isinstance(actual, RuntimeError) and "new_fn INTERNAL ASSERT" in str(actual)


def compare(program: Program, actual: Outcome, expected: Outcome, tally: Tally) -> str | None:
    """What differs, or None."""
    if not _ran(actual) or not _ran(expected):
        if _ran(actual) == _ran(expected):
            return None
        who, error = ("it", actual) if _ran(expected) else ("eager", expected)
        if who == "eager" and isinstance(error, NotImplementedError):
            return None  # the CPU has no such kernel: products of bools
        return f"only {who} raises: {type(error).__name__}: {error}"
    tolerance = _SINGLE if program.single else _TOLERANCE
    if len(actual.gradients) != len(expected.gradients):  # after a write one more may require it
        return f"{len(actual.gradients)} gradients, eager has {len(expected.gradients)}"
    for number, (ours, theirs) in enumerate(zip(actual.reached, expected.reached, strict=False)):
        if not torch.equal(ours, theirs):
            return f"a later write to an input or a result changes others of tensor {number}"
    pairs = _pairs(program, actual, expected)
    differing = {
        name: text for name, a, b in pairs if (text := _differs(a, b, tolerance)) is not None
    }
    if not differing:
        return None
    spreads = moves(program, expected)
    for name, a, spread in _pairs(program, actual, spreads):
        want = next(b for other, _, b in pairs if other == name)
        if name in differing and a is not None and want is not None and spread is not None:
            excused = a.shape == want.shape and a.dtype == want.dtype
            if excused and not bool((difference(a, want) > spread + tolerance).any()):
                tally.sensitive += 1
                del differing[name]
    return next((f"{name}: {text}" for name, text in differing.items()), None)


_Pair = tuple[str, Tensor | None, Tensor | None]


def _pairs(program: Program, actual: Seen, expected: Seen) -> list[_Pair]:
    """Named tensors of two runs."""
    kinds: list[tuple[str, Sequence[Tensor | None], Sequence[Tensor | None]]] = [
        ("result", actual.results, expected.results),
        ("input", actual.inputs, expected.inputs),
        ("gradient", actual.gradients, expected.gradients),
    ]
    return [
        (f"{kind} {number}", a, b)
        for kind, ours, theirs in kinds
        for number, (a, b) in enumerate(zip(ours, theirs, strict=True))
    ]


def _differs(actual: Tensor | None, expected: Tensor | None, tolerance: float) -> str | None:
    if actual is None or expected is None:
        # An input without influence: None, or zeros where autograd was not told.
        other = expected if actual is None else actual
        return "a gradient on one side only" if other is not None and other.any() else None
    if actual.dtype is not expected.dtype or actual.shape != expected.shape:
        ours, theirs = (f"{x.dtype} {tuple(x.shape)}" for x in (actual, expected))
        return f"{ours}, eager has {theirs}"
    bound = tolerance if expected.is_floating_point() else 0
    try:
        torch.testing.assert_close(actual, expected, rtol=bound, atol=bound, equal_nan=True)
    except AssertionError as error:
        text = " ".join(str(error).split())
        return (
            f"{text} {actual.flatten().tolist()[:12]}, eager has {expected.flatten().tolist()[:12]}"
        )
    return None
