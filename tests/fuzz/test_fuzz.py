"""A few dozen random programs through both doors, the fuzzer's own promises, and what it found."""

from __future__ import annotations

import runpy
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.fuzz import script
from tests.fuzz.doors import (
    CAPTURED,
    DECOMPOSED,
    DOORS,
    TRACED,
    Seen,
    eager,
    with_zeros,
    written_last,
)
from tests.fuzz.found import FOUND
from tests.fuzz.generator import from_seed
from tests.fuzz.hunt import hunt, shrink
from tests.fuzz.program import Program
from tests.fuzz.runner import Disagreement, Tally, check, compare
from tests.fuzz.sensitivity import moves

GRAPHS = 32  # through each door
FIRST = 192  # seed
PRELUDE = "x = torch.tensor([3.0, -1.0, 2.0], dtype=torch.float64, device=device)"


LARGE = 8  # more, of large tensors


PROGRAMS = [from_seed(seed)[0] for seed in range(FIRST, FIRST + GRAPHS)]


# Graphs of symbolic sizes take longest: the long lane runs them through buckets.
ALL_DOORS = [pytest.param(d, marks=[pytest.mark.slow] * (d == "bucket")) for d in sorted(DOORS)]


@pytest.mark.parametrize("door", ALL_DOORS)
def test_agrees_with_eager(door: str) -> None:
    tally = Tally()
    for start in range(0, GRAPHS, 8):
        found = check(PROGRAMS[start : start + 8], door, tally)
        assert not found, script.text(found[0])
    assert tally.graphs == GRAPHS
    assert tally.gradients
    assert not tally.fallbacks


@pytest.mark.parametrize("door", ["compile", "lazy"])
def test_agrees_with_eager_about_large_tensors(door: str) -> None:
    tally = Tally()
    programs = [from_seed(seed, large=True)[0] for seed in range(FIRST, FIRST + LARGE)]
    assert any("5051" in program.text() for program in programs)
    found = check(programs, door, tally)
    assert not found, script.text(found[0])
    assert tally.graphs == LARGE
    assert tally.gradients


def test_programs_are_of_all_kinds() -> None:
    text = "\n".join(program.text() for program in PROGRAMS)
    for part in ("float64", "int64", "torch.bool", "float32", "reshape((0", ", 1", "_("):
        assert part in text, part
    assert {program.gradient for program in PROGRAMS} == {True, False}


def test_a_seed_gives_the_same_program() -> None:
    assert [from_seed(seed)[0] for seed in range(FIRST, FIRST + GRAPHS)] == PROGRAMS


def test_a_disagreement_is_shrunk(monkeypatch: pytest.MonkeyPatch) -> None:
    """To the step that makes it and few others: how few is a matter of hypothesis's luck."""

    def pretend(programs: list[Program], door: str) -> list[Disagreement]:
        return [Disagreement(p, door, "made up") for p in programs if "torch.flip(" in p.text()]

    monkeypatch.setattr("tests.fuzz.hunt.check", pretend)
    made = [from_seed(seed) for seed in range(400)]
    program, drawn = next((p, d) for p, d in made if pretend([p], "lazy") and len(p.steps) == 6)
    small = shrink(Disagreement(program, "lazy", "made up"), drawn).program
    assert len(small.inputs) <= 2
    assert len(small.steps) < len(program.steps) / 2


def test_a_hunt_reports_the_first_of_its_kind(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Every batch goes through each door, and a file holds it as long as it runs."""
    running, reported, runs = tmp_path / "running.py", [], []

    def pretend(programs: list[Program], door: str, tally: Tally) -> list[Disagreement]:
        assert all(program.text() in running.read_text() for program in programs)
        runs.append((door, len(programs)))
        return [Disagreement(program, door, "made up") for program in programs]

    small = Program((PRELUDE,), ("y = x",), ("y",))  # calls what all others call: nothing
    monkeypatch.setattr("tests.fuzz.hunt.check", pretend)
    monkeypatch.setattr("tests.fuzz.hunt.shrink", lambda found, *_: replace(found, program=small))
    tallies = {door: Tally() for door in sorted(DOORS)}
    count = hunt(20, FIRST, tallies, reported.append, batch=8, running=running)
    assert runs == [(door, size) for size in (8, 8, 4) for door in sorted(DOORS)]
    assert count == len(reported) == sum(20 - tally.alike for tally in tallies.values())
    assert all(tally.alike for tally in tallies.values())
    assert not running.exists()


@pytest.mark.parametrize("door", sorted(DOORS))
def test_wrong_numbers_are_found(door: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A door that is off in the tenth digit, and one that raises, disagree."""
    program = Program((PRELUDE,), ("y = x * 3",), ("y",))
    right = DOORS[door]
    assert check([program], door) == []

    def off(programs: list[Program]) -> list[Seen]:
        seen = right(programs)
        return [Seen([r * (1 + 3e-9) for r in s.results], s.inputs, s.gradients) for s in seen]

    monkeypatch.setitem(DOORS, door, off)
    assert "not close" in check([program], door)[0].text

    def fails(programs: list[Program]) -> list[Seen]:
        raise RuntimeError("no")

    monkeypatch.setitem(DOORS, door, fails)
    assert check([program], door)[0].text == "only it raises: RuntimeError: no"
    raising = Program((PRELUDE,), ("y = x.view(7)",), ("y",))
    assert check([raising], door) == []


@pytest.mark.parametrize(
    "steps",
    [
        ("y = x.unfold(0, 1, 1)", "y.detach().mul_(2)"),
        ("z = x[None] * 2", "y = z[:]", "z.t_()"),
    ],
)
def test_an_error_that_says_what_to_do_is_counted(steps: tuple[str, ...]) -> None:
    program = Program((PRELUDE + ".requires_grad_()",), steps, ("y",))
    tally = Tally()
    assert check([program], "lazy", tally) == []
    assert tally.declined == 1
    assert check([program], "compile", tally) == []
    assert tally.declined == 1


def _assert_pytorchs(program: Program) -> None:
    """That torch.compile differs from eager, for PyTorch's reasons, and lazy tensors do not."""
    tally = Tally()
    assert check([program], "compile", tally) == []
    assert check([program], "lazy", tally) == []
    assert tally.of_pytorch == 1


def test_zeros_that_autograd_makes_up_are_pytorchs() -> None:
    """AOTAutograd differentiates written inputs, by zero: nan where the derivative is infinite."""
    inputs = (
        "w = torch.ones(2, dtype=torch.float64, device=device)",
        "v = w[:]",
        "x = torch.zeros(2, dtype=torch.float64, device=device).requires_grad_()",
    )
    program = Program(inputs, ("v.mul_(x.sqrt())", "y = x @ x"), ("y",), gradient=True)
    assert eager([program])[0].gradients[2].isfinite().all()
    assert with_zeros([program])[0].gradients[2].isnan().all()
    _assert_pytorchs(program)


def test_what_depends_on_an_input_that_is_written_to_is_pytorchs() -> None:
    """AOTAutograd's graph computes what is to be written to x: its results do not depend on x."""
    inputs = (
        "x = torch.tensor([0.1, 0.4], dtype=torch.float64, device=device)",
        "y = torch.tensor([1.5, 0.5], dtype=torch.float64, device=device).requires_grad_()",
    )
    program = Program(inputs, ("x *= y", "z = torch.asin(x.tanh())"), ("z",), gradient=True)
    by_x, by_y = eager([program])[0].gradients
    unseen, same = written_last([program])[0].gradients
    assert by_x.all()
    assert unseen is None
    assert same.equal(by_y)
    _assert_pytorchs(program)


def test_a_saved_input_that_a_graph_break_changes_is_pytorchs() -> None:
    """t_() of an input runs in eager, after a graph of which backward saved that input."""
    inputs = (
        "x = torch.tensor(3, dtype=torch.int32, device=device)",
        "y = torch.ones(2, 3, dtype=torch.float64, device=device).requires_grad_()",
    )
    steps = ("t = torch.log2(x)", "m = F.mse_loss(t, t)", "z = torch.addcmul(m, m, y)", "x.t_()")
    program = Program(inputs, steps, ("z",), gradient=True)
    assert TRACED["compile"]([program])
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        DECOMPOSED["compile"]([program])
    _assert_pytorchs(program)


def test_a_graph_that_raises_as_captured_is_pytorchs() -> None:
    """Dynamo has the sizes of before t_(): its graph has an index that is out of range."""
    inputs = ("x = torch.ones(2, 1, dtype=torch.float64, device=device)",)
    steps = (
        "y = torch.neg(x)",
        "y.t_()",
        "z = y.index_put((torch.arange(2, device=x.device) % y.shape[0],), y, accumulate=True)",
    )
    program = Program(inputs, steps, ("z",))
    assert eager([program])[0].results[0].tolist() == [[-3, -3]]
    with pytest.raises(IndexError):
        CAPTURED["compile"]([program])
    _assert_pytorchs(program)


def test_a_view_of_an_input_that_is_written_to_depends_on_it() -> None:
    inputs = (
        "x = torch.tensor([[0.1, 0.4]], dtype=torch.float64, device=device)",
        "y = torch.tensor(1.5, dtype=torch.float64, device=device).requires_grad_()",
    )
    steps = ("x.mul_(y)", "z = x.reshape(2)", "a = x @ x.mT")
    program = Program(inputs, steps, ("z", "a"), gradient=True)
    by_x, _ = eager([program])[0].gradients
    by_view, _ = written_last([program])[0].gradients
    assert by_view.tolist() == [[-1, 1]]
    assert not by_x.equal(by_view)
    _assert_pytorchs(program)


def test_what_rounding_decides_is_no_disagreement() -> None:
    """A comparison of numbers that are equal up to rounding; the numbers themselves count."""
    program = Program((PRELUDE,), ("y = x.sin() ** 2 + x.cos() ** 2", "z = y == 1"), ("y", "z"))
    seen = eager([program])[0]
    spread = moves(program, seen)
    assert spread.results[0].max().item() < 1e-12
    assert spread.results[1].any()
    undecided = spread.results[1] > 0
    other = Seen([seen.results[0], seen.results[1] ^ undecided], seen.inputs, [])
    tally = Tally()
    assert compare(program, other, seen, tally) is None
    assert tally.sensitive == 1
    wrong = Seen([seen.results[0] + 1e-8, seen.results[1]], seen.inputs, [])
    assert compare(program, wrong, seen, tally) is not None


def test_the_sign_of_a_zero_that_a_product_gives_is_rounding() -> None:
    """Eager's own kernels differ in it; elementwise, the sign of a zero counts."""
    inputs = ("x = torch.full((2, 1, 3), -0.0, dtype=torch.float64, device=device)",)
    ones = "y = torch.ones((2, 4, 1), dtype=x.dtype, device=x.device)"
    for step, alike in (("z = y @ x", True), ("z = y * x[:, :1]", False)):
        program = Program(inputs, (ones, step, "w = torch.atan2(z, z)"), ("z", "w"))
        (seen,) = eager([program])
        zero = -seen.results[0]
        other = Seen([zero, zero.atan2(zero)], seen.inputs, [])
        assert (compare(program, other, seen, Tally()) is None) == alike


def test_which_of_two_zeros_is_the_maximum_is_rounding() -> None:
    x = "x = torch.tensor([0.0, 0.0, -0.0, 1.0], dtype=torch.float64, device=device)"
    steps = ("y = torch.maximum(x, -x)", "z = torch.signbit(y)")
    program = Program((x,), steps, ("y", "z"))
    (seen,) = eager([program])
    for signs, alike in (([1, 0, 1, 0], True), ([0, 0, 0, 1], False)):
        other = Seen([seen.results[0], torch.tensor(signs) > 0], seen.inputs, [])
        assert (compare(program, other, seen, Tally()) is None) == alike


def test_which_side_of_zero_a_difference_inside_an_op_is_on_is_rounding() -> None:
    inputs = ("x = torch.tensor([-1.0], dtype=torch.float64, device=device).requires_grad_()",)
    for step, alike in (("y = torch.logaddexp2(x, x)", True), ("y = torch.add(x, 1)", False)):
        program = Program(inputs, (step, "z = y.abs()"), ("z",), gradient=True)
        (seen,) = eager([program])
        (gradient,) = seen.gradients
        assert gradient is not None
        other = Seen(seen.results, seen.inputs, [gradient.new_full((1,), 0.25)])
        assert (compare(program, other, seen, Tally()) is None) == alike


@pytest.mark.parametrize("step", ["z = y.floor()", "z = y.logical_not()", "z = y == 0"])
def test_the_sign_of_the_middle_of_linspace_is_rounding(step: str) -> None:
    make = "y = torch.linspace(-1, 1, 11, dtype=x.dtype, device=x.device)"
    program = Program((PRELUDE,), (make, step), ("z",))
    (seen,) = eager([program])
    for place, alike in ((5, True), (4, False)):
        other = seen.results[0].double().clone()
        other[place] = 1 - other[place].abs()
        changed = Seen([other.to(seen.results[0].dtype)], seen.inputs, [])
        assert (compare(program, changed, seen, Tally()) is None) == alike


def test_memory_that_is_not_shared_is_a_disagreement() -> None:
    step = "y = x.view(-1) if not torch.compiler.is_compiling() else x.view(-1).clone()"
    program = Program((PRELUDE,), (step,), ("y",))
    (seen,), (other,) = eager([program]), DOORS["compile"]([program])
    text = compare(program, other, seen, Tally())
    assert text == "a later write to an input or a result changes others of tensor 0"


# Steps that eager and a door do differently, if only because they ask who runs them.
_COMPILED = "y = x.exp() * (1 + torch.compiler.is_compiling())"
DIFFERENT = {
    "compile": _COMPILED,
    "symbolic": _COMPILED,
    "bucket": _COMPILED,
    "lazy": "y = x.exp() * (1 + (x.device.type == 'xla'))",
}


@pytest.mark.parametrize("door", sorted(DOORS))
def test_the_script_shows_the_disagreement_by_itself(door: str, tmp_path: Path) -> None:
    inputs = (PRELUDE + ".requires_grad_()",)
    for step in ("y = x.exp()", "y = x.view(7)"):  # both raise on the second
        program = Program(inputs, (step,), ("y",), gradient=True)
        runpy.run_path(str(script.write(Disagreement(program, door, "it says"), tmp_path)))
    program = Program(inputs, (DIFFERENT[door],), ("y",), gradient=True)
    path = script.write(Disagreement(program, door, "it says"), tmp_path)
    with pytest.raises(AssertionError, match="not close"):
        runpy.run_path(str(path))


@pytest.mark.parametrize("door", ALL_DOORS)
@pytest.mark.parametrize("name", FOUND)
def test_found(name: str, door: str) -> None:
    assert check([FOUND[name]], door) == []
