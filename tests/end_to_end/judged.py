"""A program of torch-mlir's suite, run in eager and behind a door -> the outcome of a sweep."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._dynamo import exc
from torch.utils import _pytree as pytree

import xla_dynamo
from xla_dynamo.errors import XlaDynamoError

from ..operators import accuracy
from ..operators.randomness import assert_same_distribution
from ..operators.sweep import Outcome
from .suite import Call, calls, copied, module_of

# Opens a method of a module.
Opens = Callable[[Callable[..., Any]], Callable[..., Any]]
# How often random programs are run, and how many numbers of each result are looked at.
_DRAWS, _NUMBERS = 32, 4096
# The backend of torch.compile that is the same road without XLA.
_PYTORCH = "aot_eager"


def outcome_of(program: Any, door: str) -> Outcome:
    """Run a program through "compile" or "lazy", and compare results, arguments and buffers."""
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            made = calls(program)
            want = _run(program, made)
            random = any(_differs(_run(program, made, seed=s), want) for s in (2, 3, 4))
        except Exception as error:
            return Outcome("absent", f"eager: {_words(error)}")
        through = functools.partial(_lazy if door == "lazy" else _compiled, program, made)
        xla_dynamo.reset_metrics()
        try:
            got = through(seed=1)
        except Exception as error:
            return _refused(program, made, want, error, door)
        fallbacks = [n for n in xla_dynamo.counters() if n.startswith("fallback")]
        differs = _differs_in_law(through, program, made) if random else _differs(got, want)
        if differs and not random and _is_rounding(program, made, got, want):
            differs = ""
    if differs:
        same = (
            door == "compile"
            and not random
            and not _differs(got, _compiled(program, made, 1, _PYTORCH))
        )
        return (
            Outcome("declined", f"as aot_eager: {differs}") if same else Outcome("wrong", differs)
        )
    return Outcome("declined", f"on the CPU: {fallbacks}") if fallbacks else Outcome("right")


def _run(
    program: Any,
    made: Sequence[Call],
    seed: int = 1,
    opens: Opens = lambda f: f,
    wide: bool = False,
) -> list[Any]:
    """Results and arguments after each call, then the module's state."""
    module = module_of(program)
    module = module.double() if wide else module
    torch.manual_seed(seed)
    opened: dict[str, Callable[..., Any]] = {}
    seen: list[Any] = []
    for path, args in made:
        given = accuracy.widened(copied(args)) if wide else copied(args)
        if path not in opened:
            opened[path] = opens(functools.reduce(getattr, path.split("."), module))
        seen.append(copied((opened[path](*given), given)))
    return [*seen, _tensors(module)]


def _tensors(module: torch.nn.Module) -> list[torch.Tensor]:
    """What of a module's state is a tensor; that of a quantized one has dtypes, too."""
    leaves = pytree.tree_leaves(dict(module.state_dict()))
    return [copied(leaf) for leaf in leaves if isinstance(leaf, torch.Tensor)]


def _compiled(
    program: Any, made: Sequence[Call], seed: int, backend: str = "xla", fullgraph: bool = True
) -> list[Any]:
    torch.compiler.reset()
    opens = functools.partial(torch.compile, backend=backend, fullgraph=fullgraph)
    return _run(program, made, seed, opens)


def _lazy(program: Any, made: Sequence[Call], seed: int) -> list[Any]:
    from xla_dynamo.compat.recording import pending

    there = torch.device("xla:0")
    module = module_of(program).to(there)
    torch.manual_seed(seed)
    seen: list[Any] = []
    try:
        with there:  # programs make tensors, too
            for path, args in made:
                given = pytree.tree_map_only(torch.Tensor, lambda t: t.to(there), copied(args))
                seen.append((functools.reduce(getattr, path.split("."), module)(*given), given))
        seen.append(_tensors(module))
        return pytree.tree_map_only(torch.Tensor, lambda t: t.detach().cpu(), seen)
    except Exception:
        pending.forget()  # what could not run would be tried again with what comes next
        raise


def _refused(program: Any, made: Sequence[Call], want: Any, error: Exception, door: str) -> Outcome:
    """The outcome of a program that raises: does the error explain, does a graph break help?"""
    cause: BaseException = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    says_so = isinstance(cause, XlaDynamoError) or " on an xla device " in str(cause)
    if says_so or door == "lazy":
        return Outcome("declined" if says_so else "crash", _words(cause))
    try:
        broken = _compiled(program, made, seed=1, fullgraph=False)
    except Exception as other:
        theirs = _fails_without_xla(program, made, fullgraph=False)
        return Outcome("declined" if theirs else "crash", _words(other))
    differs = _differs(broken, want)
    clear = isinstance(error, exc.Unsupported | exc.UserError | exc.TorchRuntimeError)
    clear = clear or _fails_without_xla(program, made, fullgraph=True)
    if differs:
        return Outcome("wrong", f"with a graph break: {differs}")
    return Outcome("declined" if clear else "crash", f"with a graph break right: {_words(error)}")


def _fails_without_xla(program: Any, made: Sequence[Call], fullgraph: bool) -> bool:
    try:
        _compiled(program, made, 1, _PYTORCH, fullgraph)
    except Exception:
        return True
    return False


def _differs(got: Any, want: Any) -> str:
    """What differs at the default tolerances; empty if nothing."""
    try:
        torch.testing.assert_close(got, want, equal_nan=True)
    except (AssertionError, TypeError, ValueError) as error:
        return " ".join(str(error).split())[:300]
    return ""


def _differs_in_law(through: Any, program: Any, made: Sequence[Call]) -> str:
    seeds = iter(range(10**6))

    def some(run: Callable[..., list[Any]]) -> Any:
        seen = run(seed=next(seeds))
        return pytree.tree_map_only(torch.Tensor, lambda t: t.flatten()[:_NUMBERS].clone(), seen)

    eager = functools.partial(_run, program, made)
    try:
        assert_same_distribution(lambda: some(through), lambda: some(eager), draws=_DRAWS)
    except AssertionError as error:
        return str(error)
    return ""


def _is_rounding(program: Any, made: Sequence[Call], got: Any, want: Any) -> bool:
    try:
        return accuracy.is_rounding(got, want, _run(program, made, wide=True))
    except Exception:  # an op that takes no float64
        return False


def _words(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:400]
