"""Single ops against the same ops by hand in JAX, on the CPU: `python -m benchmarks.operators`.

Each torch function of operator_cases.py is compiled by torch.compile(backend="xla") with its
gradients; what is timed are the executables alone, on arrays that are on the device already, beside
that of jax.jit of the hand-written function, both on one client. (benchmarks/overhead.py measures
what a call costs beyond that.) Results are compared before anything is timed. Both sides take turns
in one process, and the least time of each is its time: other load on the machine only ever adds.
Rewrites docs/speed.md and the summary in docs/benchmarks.md, and appends to
benchmarks/operator_results.jsonl.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import random
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import jax
import numpy as np
import torch
from rich.progress import track

from xla_dynamo.backend.runtime import pjrt, transfers

from . import operator_page
from .operator_cases import Case, Index, cases
from .operator_page import LIMIT, Result

OUTPUT = Path("benchmarks/operator_results.jsonl")
# Seconds of measuring: of every case, and at most, of one above the limit.
SECONDS, MOST_SECONDS = 0.8, 2.5
# How often a case above the limit is measured again.
REPEATS = 4
# glibc's mallopt.
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4
Call = Callable[[], object]


def measure(case: Case) -> Result:
    """Compile both sides, compare their results, time them.

    Raises:
        AssertionError: the results differ.
        UnsupportedOp: the op is not compiled.
    """
    torch.manual_seed(0)
    inputs = [_tensor(spec) for spec in case.inputs]
    ours, result, cotangent = _ours(case, inputs)
    theirs, expected = _theirs(case, inputs, cotangent)
    for mine, other in zip(result, expected, strict=True):
        scale = float(np.abs(other).max(initial=1e-30))
        np.testing.assert_allclose(mine / scale, other / scale, atol=2e-5, err_msg=str(case))
    return Result(case.family, case.name, _what(case), *least_milliseconds(ours, theirs))


def _what(case: Case) -> str:
    if not case.gradients:
        return "forward"
    return (
        "forward and gradients"
        if case.with_forward
        else "gradient of " + ", ".join(str(position + 1) for position in case.gradients)
    )


def _tensor(spec: tuple[int, ...] | Index) -> torch.Tensor:
    if not isinstance(spec, Index):
        return torch.randn(spec)
    if spec.step:
        return torch.arange(spec.shape[0], dtype=spec.dtype) * spec.step
    return torch.randint(spec.below, spec.shape, dtype=spec.dtype)


def _flat(results: Any) -> list[Any]:
    return list(results) if isinstance(results, (tuple, list)) else [results]


def _ours(
    case: Case, inputs: list[torch.Tensor]
) -> tuple[Call, list[np.ndarray], torch.Tensor | None]:
    """The executables as one call, the results, and the gradient of the output that was given."""
    torch.compiler.reset()
    options = {"fallback": "error", "disk_cache": False}
    compiled = torch.compile(case.torch, backend="xla", options=options, dynamic=False)
    for position in case.gradients:
        inputs[position].requires_grad_()
    with _launches() as made:
        results = [r for r in _flat(compiled(*inputs)) if r is not None]
        cotangent = None
        if case.gradients:
            cotangent = torch.randn(results[0].shape)
            wanted = [inputs[position] for position in case.gradients]
            gradients = list(torch.autograd.grad(results[0], wanted, cotangent))
            results = [results[0], *gradients] if case.with_forward else gradients
    used = made if case.with_forward else made[-1:]

    def call() -> None:
        for executable, arrays in used:
            jax.block_until_ready(executable(*arrays))

    return call, [r.detach().numpy() for r in results], cotangent


@contextmanager
def _launches() -> Iterator[list[tuple[Any, list[jax.Array]]]]:
    """What is launched inside the block: each executable with its arguments."""
    made: list[tuple[Any, list[jax.Array]]] = []
    original = pjrt.Executable.__call__

    def remember(self: pjrt.Executable, *arrays: jax.Array) -> list[jax.Array]:
        made.append((self, list(arrays)))
        return original(self, *arrays)

    pjrt.Executable.__call__ = remember  # type: ignore[method-assign]
    try:
        yield made
    finally:
        pjrt.Executable.__call__ = original  # type: ignore[method-assign]


def _theirs(
    case: Case, inputs: list[torch.Tensor], cotangent: torch.Tensor | None
) -> tuple[Call, list[np.ndarray]]:
    """What jax.jit makes of it, compiled for the client that the other side runs on."""
    device = pjrt.device("cpu")
    tensors = [tensor.detach() for tensor in inputs]
    if not case.same_integers:
        tensors = [t if t.is_floating_point() else t.int() for t in tensors]
    arrays = [transfers.to_array(tensor, device) for tensor in tensors]
    if cotangent is not None:
        arrays.append(transfers.to_array(cotangent, device))
    shapes = [jax.ShapeDtypeStruct(array.shape, array.dtype) for array in arrays]
    with jax.enable_x64(case.same_integers):
        lowered = jax.jit(_differentiated(case), keep_unused=True).lower(*shapes)
    taken, given = (
        [(tuple(a.shape), a.dtype) for a in jax.tree.leaves(side)]
        for side in (arrays, lowered.out_info)
    )
    executable = pjrt.compile(lowered.compiler_ir("stablehlo"), device, taken, given, {})
    results = [np.asarray(r) for r in executable(*arrays)]
    return lambda: jax.block_until_ready(executable(*arrays)), results


def _differentiated(case: Case) -> Callable[..., Any]:
    """The JAX function, or what it and its gradients are: XLA drops what is not asked for."""
    if not case.gradients:
        return case.jax

    def gradients(*arguments: jax.Array) -> Any:
        *inputs, cotangent = arguments

        def of_wanted(*wanted: jax.Array) -> jax.Array:
            filled = dict(zip(case.gradients, wanted, strict=True))
            return _flat(case.jax(*(filled.get(i, x) for i, x in enumerate(inputs))))[0]

        out, pull = jax.vjp(of_wanted, *(inputs[i] for i in case.gradients))
        return [out, *pull(cotangent)] if case.with_forward else list(pull(cotangent))

    return gradients


def least_milliseconds(ours: Call, theirs: Call) -> tuple[float, float]:
    """The least time of each, taking turns; longer where the first seems above the limit."""
    calls = (ours, theirs)
    best = [min(_time(call, 1) for _ in range(2)) for call in calls]
    counts = [max(1, int(2.0 / milliseconds)) for milliseconds in best]
    start, turns, places = time.perf_counter(), 0, random.Random(0)
    while (
        turns < 5
        or (spent := time.perf_counter() - start) < SECONDS
        or (best[0] > (LIMIT - 0.05) * best[1] and spent < MOST_SECONDS)
    ):
        for side in (0, 1) if turns % 2 else (1, 0):
            # Where results lie decides how fast some loops are: move them, for either side's best.
            shift = bytearray(places.randrange(1 << 10, 1 << 16, 64))
            best[side] = min(best[side], _time(calls[side], counts[side]))
            del shift
        turns += 1
    return best[0], best[1]


def _time(call: Call, count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - start) / count * 1e3


def _keep_freed_memory() -> None:
    """Results take memory that was used before: else the kernel's zeroing of pages is measured."""
    libc = ctypes.CDLL(None)
    for parameter, value in ((_M_MMAP_MAX, 0), (_M_TRIM_THRESHOLD, 2**31 - 1)):
        libc.mallopt(parameter, value)


def run(pattern: str = "") -> list[Result]:
    """Measure the cases whose "family: name, what" has a match of `pattern`.

    Those above the limit are measured again, later: something else may have been busy meanwhile.
    """
    _keep_freed_memory()
    named = {f"{case.family}: {case.name}, {_what(case)}": case for case in cases()}
    chosen = [case for name, case in named.items() if re.search(pattern, name)]
    results = [measure(case) for case in track(chosen, description="measuring")]
    for _ in range(REPEATS):
        for place, result in enumerate(results):
            if result.ratio > LIMIT:
                results[place] = operator_page.least(result, measure(chosen[place]))
    return results


def measure_all(output: Path, pattern: str = "") -> None:
    """Measure, append to `output`, print; without a `pattern`, rewrite the pages."""
    results = run(pattern)
    lines = [{**asdict(result), "ratio": round(result.ratio, 3)} for result in results]
    with output.open("a") as file:
        file.writelines(f"{json.dumps(line)}\n" for line in lines)
    print(operator_page.table(results))
    if not pattern:
        operator_page.publish(results, os.cpu_count() or 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--match", default="", metavar="PATTERN", help="only these; no page")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    arguments = parser.parse_args()
    measure_all(arguments.output, arguments.match)


if __name__ == "__main__":
    main()
