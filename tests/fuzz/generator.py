"""Drawn numbers -> random programs that eager PyTorch runs.

A program grows step by step: a template is drawn and filled, eager runs the step at once, and what
eager refuses is dropped. So the generator knows every shape and dtype, and no rules about them. The
numbers come from a seed, which gives the same program everywhere, or from hypothesis, which shrinks
them.
"""

from __future__ import annotations

import random
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

from .holes import LARGEST_OF_LARGE, Unfit, fill
from .literals import Kind, literal
from .program import Program, differentiable, namespace, weights
from .shapes import Draw, chance, one_of
from .templates import ERRORS, FAMILIES, WRITES

_HUGE = 1e4  # beyond this, the results of a tame program have lost their digits
_TRIES = 3  # drawn steps for one that eager takes


@dataclass
class _Growing:
    """A program in the making, and its tensors in eager."""

    draw: Draw
    gradient: bool
    single: bool
    tame: bool
    families: Sequence[str]
    large: bool
    inputs: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    scope: dict[str, Any] = field(default_factory=lambda: namespace() | {"device": "cpu"})

    @property
    def tensors(self) -> dict[str, Tensor]:
        return {name: value for name, value in self.scope.items() if isinstance(value, Tensor)}

    def chance(self, percent: int) -> bool:
        return chance(self.draw, percent)

    def run(self, line: str) -> bool:
        """Run a statement in eager; False if it raises, or says that it soon will."""
        if self.large and not _fits_into_memory(line, self.scope):
            return False
        trial = dict(self.scope)
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("error", ".* on expanded tensors is deprecated")
                exec(line, trial)
        except (RuntimeError, IndexError, ValueError, TypeError, NotImplementedError, UserWarning):
            return False
        self.scope = trial
        return True

    def fits(self) -> bool:
        """False once a tame program has numbers that are not."""
        return not self.tame or all(map(_is_tame, self.tensors.values()))

    def start_again(self) -> None:
        """Run what was kept once more: a step that was not kept may have changed tensors."""
        self.scope = namespace() | {"device": "cpu"}
        for line in [*self.inputs, *self.lines]:
            exec(line, self.scope)


_DRAWN = st.integers(0, 2**20)


@st.composite
def programs(
    draw: Callable[[Any], int], families: Sequence[str] = tuple(FAMILIES), large: bool = False
) -> Program:
    """Programs as hypothesis draws and shrinks them."""
    return build(lambda count: draw(_DRAWN) % count, families, large=large)


def from_seed(
    seed: int, families: Sequence[str] = tuple(FAMILIES), large: bool = False
) -> tuple[Program, list[int]]:
    """A program, and the numbers that hypothesis would have to draw for it."""
    numbers = random.Random(seed)
    drawn: list[int] = []

    def draw(count: int) -> int:
        drawn.append(numbers.randrange(2**20))
        return drawn[-1] % count

    return build(draw, families, large=large), drawn


def build(draw: Draw, families: Sequence[str], most: int = 12, *, large: bool = False) -> Program:
    """A program of at most `most` steps of some of the `FAMILIES`; one named twice is drawn twice
    as often. With `large`, of tensors of up to half a million elements."""
    growing = _Growing(
        draw,
        gradient=one_of(draw, (False, True)),
        single=one_of(draw, (False, False, False, True)),
        tame=one_of(draw, (True, True, True, True, False)),
        families=families,
        large=large,
    )
    with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
        warnings.simplefilter("ignore")
        _add_input(growing)
        while len(growing.inputs) < 4 and draw(3):
            _add_input(growing)
        inputs = tuple(growing.inputs)
        raises = _add_steps(growing, most)
        results = _results(growing)
        if raises:  # what is not returned need not be computed
            results += (growing.lines[-1].split(" = ")[0],)
        single = growing.single or any(t.dtype is torch.float32 for t in growing.tensors.values())
        program = Program(inputs, tuple(growing.lines), results, single=single)
        if growing.gradient and not raises and _differentiable(program):
            return replace(program, gradient=True)
        return replace(program, inputs=_plain(inputs))


def _add_input(growing: _Growing) -> None:
    draw = growing.draw
    name = f"x{len(growing.inputs)}"
    bases = [n for n, tensor in growing.tensors.items() if not tensor.requires_grad]
    if bases and growing.chance(12):
        only = {n: growing.tensors[n] for n in bases}
        view = fill(draw, one_of(draw, _INPUT_VIEWS), only, growing.single)
        if growing.run(f"{name} = {view}"):
            growing.inputs.append(f"{name} = {view}")
            return
    kind = Kind(growing.single, growing.tame, growing.gradient, growing.large)
    line = f"{name} = {literal(growing.draw, kind)}"
    exec(line, growing.scope)
    growing.inputs.append(line)


_INPUT_VIEWS = ["{x}[:]", "{x}.reshape(-1)", "{x}.flatten()[1:]", "{x}.unsqueeze({newd})"]


def _add_steps(growing: _Growing, most: int) -> bool:
    """Add steps; True if eager raises on the last one, which ends the program."""
    # One decision before each step, so that the numbers of a step can be taken out.
    while len(growing.lines) < most and growing.draw(10):
        if growing.chance(1):
            line = _step(growing, ERRORS)
            if line is not None and not growing.run(line):
                growing.lines.append(line)
                return True
            growing.start_again()
        for _ in range(_TRIES):
            family = one_of(growing.draw, growing.families)
            line = _step(growing, FAMILIES[family])
            if line is not None and growing.run(line) and growing.fits():
                growing.lines.append(line)
                break
            growing.start_again()
    return False


def _step(growing: _Growing, templates: list[str]) -> str | None:
    template = one_of(growing.draw, templates)
    tensors = growing.tensors
    if templates is WRITES:  # eager writes to what windows share one by one, in no set order
        tensors = {name: tensor for name, tensor in tensors.items() if not _overlaps(tensor)}
    try:
        text = fill(growing.draw, template, tensors, growing.single)
    except Unfit:
        return None
    if templates is not WRITES:
        return f"t{len(growing.tensors)} = {text}"
    return text if _ordered(text, tensors) else None


def _fits_into_memory(line: str, scope: dict[str, Any]) -> bool:
    """Whether a step runs without numbers, and what it makes is not too large."""
    trial = {
        name: value.detach().to("meta") if isinstance(value, Tensor) else value
        for name, value in scope.items()
    } | {"device": "meta"}
    try:
        exec(line, trial)
    except Exception:  # what depends on numbers, too
        return False
    made = [value for value in trial.values() if isinstance(value, Tensor)]
    return all(tensor.numel() <= LARGEST_OF_LARGE for tensor in made)


def _ordered(text: str, tensors: dict[str, Tensor]) -> bool:
    """Whether what a step writes does not depend on the order in which eager reads and writes."""
    names = dict.fromkeys(re.findall(r"\b[tx]\d+[vw]?\b", text))
    named = [tensors[name] for name in names if name in tensors]  # others are made here
    if ".clone()" not in text and any(map(_partly_share, named, named[1:] + named[:1])):
        return False
    repeated = any(0 in tensor.stride() for tensor in named)
    return not (repeated and ".tril_" in text)  # which alone does not refuse such memory


def _partly_share(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors may have some elements in common, but are not the same view."""
    if one.untyped_storage().data_ptr() != other.untyped_storage().data_ptr():
        return False
    views = [(t.data_ptr(), t.shape, t.stride()) for t in (one, other)]
    return one.numel() > 0 and other.numel() > 0 and views[0] != views[1]


def _overlaps(tensor: Tensor) -> bool:
    """Whether windows onto memory share elements; those of expand() do not count."""
    shape = [
        n if step else min(n, 1) for n, step in zip(tensor.shape, tensor.stride(), strict=True)
    ]
    reach = sum((n - 1) * step for n, step in zip(shape, tensor.stride(), strict=True))
    if 0 in shape:
        return False
    places = torch.arange(1 + reach).as_strided(shape, tensor.stride())
    return places.unique().numel() < places.numel()


def _results(growing: _Growing) -> tuple[str, ...]:
    """What no step uses, and some of the others."""
    text = "\n".join(growing.lines)
    made = [name for name in growing.tensors if name.startswith("t")]
    last = [name for name in made if len(re.findall(rf"\b{name}\b", text)) == 1]
    others = [name for name in growing.tensors if name not in last and growing.chance(20)]
    return tuple(last + others)


def _differentiable(program: Program) -> bool:
    """Whether eager's backward pass runs: in-place steps may have spoilt it."""
    functions = program.functions()
    inputs = functions.inputs("cpu")
    try:
        results = functions.run(*inputs)
        roots, leaves = differentiable(results), differentiable(inputs)
        torch.autograd.grad(roots, leaves, weights(roots), allow_unused=True)
    except RuntimeError:
        return False
    return bool(roots)


def _plain(inputs: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(line.removesuffix(".requires_grad_()") for line in inputs)


def _is_tame(tensor: Tensor) -> bool:
    values = tensor.detach()
    if not values.numel() or values.dtype is torch.bool:
        return True
    return bool(values.isfinite().all()) and values.double().abs().max().item() <= _HUGE
