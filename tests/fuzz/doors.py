"""Programs -> what one can see of a run of them: in eager, compiled for XLA, on the lazy device."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from tests.like_eager.compiled import door as compiled_by
from tests.like_eager.lazy import forget_pending
from xla_dynamo.backend.executable import padded_layout

from .program import Program, differentiable, weights


@dataclass(frozen=True)
class Seen:
    """What a run shows, on the CPU and detached.

    inputs are taken after the run, which may have changed them; gradients are those of the results
    by the inputs that require it, None where a result does not depend on the input. reached says
    which elements later writes change, to the inputs and then to the results; on the CPU only.
    """

    results: list[Tensor]
    inputs: list[Tensor]
    gradients: list[Tensor | None]
    reached: list[Tensor] = field(default_factory=list)


# Several programs in one run; what one of them raises is raised.
Door = Callable[[Sequence[Program]], list[Seen]]


def eager(programs: Sequence[Program]) -> list[Seen]:
    return _run(programs, "cpu")


def with_zeros(programs: Sequence[Program]) -> list[Seen]:
    """As `eager`, but an input that was written to has gradients: zeros, as in AOTAutograd.

    Their product with an infinite derivative is nan, where eager does not look.
    """
    return _run(programs, "cpu", written="zeros")


def written_last(programs: Sequence[Program]) -> list[Seen]:
    """As `eager`, but only its views depend on an input that was written to.

    AOTAutograd's graphs compute what is to be written, and the writing comes after them.
    """
    return _run(programs, "cpu", written="last")


def compiled(backend: str, *, dynamic: bool) -> Door:
    """All programs in one function under torch.compile, sizes as symbols where `dynamic`."""

    def door(programs: Sequence[Program]) -> list[Seen]:
        return _run(programs, "cpu", compiled_by(backend, dynamic=dynamic))

    return door


def bucket(programs: Sequence[Program]) -> list[Seen]:
    """Sizes as symbols, with three elements behind each dimension, which spoil what reads them."""
    padded_layout.poison = True
    options = {"bucket": _wider}
    return _run(programs, "cpu", compiled_by("xla", dynamic=True, options=options))


def _wider(size: int) -> int:
    return size + 3


def lazy(programs: Sequence[Program]) -> list[Seen]:
    """All programs in one trace of the device xla:0."""
    try:
        return _run(programs, "xla:0")
    except Exception:
        forget_pending()
        raise


DOORS: dict[str, Door] = {
    "compile": compiled("xla", dynamic=False),
    "lazy": lazy,
    "symbolic": compiled("xla", dynamic=True),
    "bucket": bucket,
}


def _without_xla(backend: str) -> dict[str, Door]:
    return {
        "compile": compiled(backend, dynamic=False),
        "symbolic": compiled(backend, dynamic=True),
        "bucket": compiled(backend, dynamic=True),
    }


# The same with PyTorch's own kernels for the graphs: what is PyTorch's mistake shows here too.
TRACED = _without_xla("aot_eager")
# Dynamo's graphs as they are, op by op.
CAPTURED = _without_xla("eager")
# And with PyTorch's own decompositions, which leave it to the partitioner what backward saves.
DECOMPOSED = _without_xla("aot_eager_decomp_partition")

_Run = Callable[[list[list[Tensor]]], list[list[Tensor]]]
_Written = Literal["eager", "zeros", "last"]


def _run(
    programs: Sequence[Program],
    device: str,
    compiler: Callable[[_Run], _Run] = lambda run: run,
    *,
    written: _Written = "eager",
) -> list[Seen]:
    functions = [program.functions() for program in programs]

    def run(groups: list[list[Tensor]]) -> list[list[Tensor]]:
        return [f.run(*group) for f, group in zip(functions, groups, strict=True)]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of PyTorch's; fallbacks are counted, see `runner`
        groups = [f.inputs(device) for f in functions]
        results = compiler(run)(groups)
        gradients = _gradients(programs, groups, results, written)
    seen = [
        Seen(_host(ours), _host(group), [None if g is None else g.cpu() for g in derived])
        for ours, group, derived in zip(results, groups, gradients, strict=True)
    ]
    if device == "cpu":
        for one, ours, group in zip(seen, results, groups, strict=True):
            one.reached.extend(_reached(group, ours + group) + _reached(ours, group))
    return seen


def _reached(written: Sequence[Tensor], watched: Sequence[Tensor]) -> list[Tensor]:
    """Which elements of `watched` change when something is written to all of `written`."""
    before = _host(watched)
    with torch.no_grad():
        for tensor in written:
            # An expanded tensor is not written to.
            with contextlib.suppress(RuntimeError):
                tensor.logical_not_() if tensor.dtype is torch.bool else tensor.fill_(123)
    return [
        x.detach().ne(old) & ~(x.isnan() & old.isnan())
        for x, old in zip(watched, before, strict=True)
    ]


def _gradients(
    programs: Sequence[Program],
    groups: list[list[Tensor]],
    results: list[list[Tensor]],
    written: _Written,
) -> list[list[Tensor | None]]:
    """By the inputs of each program; one backward pass for all of them.

    `written` is what becomes of inputs that are no leaves any more: "zeros" differentiates them
    too, by zero, and by those of "last" only their views are differentiated.
    """
    pairs = [
        (differentiable(ours), differentiable(group)) if program.gradient else ([], [])
        for program, group, ours in zip(programs, groups, results, strict=True)
    ]
    roots = [root for mine, _ in pairs for root in mine]
    leaves = [leaf for _, mine in pairs for leaf in mine]
    if not roots or not leaves:
        return [[None for _ in mine] for _, mine in pairs]
    seeds = weights(roots)
    if written == "zeros":
        changed = [leaf for leaf in leaves if not leaf.is_leaf]
        roots, seeds = roots + changed, seeds + [torch.zeros_like(x) for x in changed]
    last = written == "last"
    found = torch.autograd.grad(roots, leaves, seeds, allow_unused=True, retain_graph=last)
    if last:
        found = [
            gradient if leaf.is_leaf else _through_views(leaf, roots, seeds)
            for gradient, leaf in zip(found, leaves, strict=True)
        ]
    flat = iter(found)
    return [[next(flat) for _ in mine] for _, mine in pairs]


def _through_views(
    written: Tensor, roots: Sequence[Tensor], seeds: Sequence[Tensor]
) -> Tensor | None:
    """The gradient by an input that was written to of the results that are views of it."""
    memory = written.untyped_storage().data_ptr()
    pairs = zip(roots, seeds, strict=True)
    views = [(root, seed) for root, seed in pairs if root.untyped_storage().data_ptr() == memory]
    if not views:
        return None
    mine, given = zip(*views, strict=True)
    (found,) = torch.autograd.grad(mine, written, given, allow_unused=True, retain_graph=True)
    return found


def _host(tensors: list[Tensor]) -> list[Tensor]:
    # Copies: an input or a result may be a view that a later download would show changed.
    return [tensor.detach().cpu().clone() for tensor in tensors]
