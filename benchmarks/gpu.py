"""Training steps on this machine's GPU, engine against engine: `python -m benchmarks.gpu`.

All engines take turns in one process. Prints a Markdown table: seconds to the end of the first
step, milliseconds a step, those that the host needs to queue one, and the ratio to eager's step.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

import xla_dynamo

from . import torch_models
from .torch_models import Problem

RATE, MOMENTUM = 0.1, 0.9
PROBLEMS: dict[str, tuple[Callable[[], Problem], torch.dtype]] = {
    "mnist": (lambda: torch_models.mnist(64), torch.float32),
    "resnet18": (lambda: torch_models.resnet18(64, 224), torch.float32),
    "gpt": (lambda: torch_models.gpt(8, 4, 256, 4, 256), torch.float32),
    "gpt wide": (lambda: torch_models.gpt(8, 6, 768, 12, 1024, 32768), torch.bfloat16),
}


@dataclass(frozen=True)
class Engine:
    """step: queues a training step. finish: returns when all steps are done."""

    step: Callable[[], object]
    finish: Callable[[], object]


def _on_cuda(problem: Problem, dtype: torch.dtype, backend: str | None) -> Engine:
    model, batch = problem.build()
    model, batch = model.to("cuda", dtype), [_cast(t, dtype).to("cuda") for t in batch]
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=MOMENTUM)
    forward = torch.compile(model, backend=backend) if backend else model

    def step() -> None:
        optimizer.zero_grad()
        forward(*batch).backward()
        optimizer.step()

    return Engine(step, torch.cuda.synchronize)


def _one_program(problem: Problem, dtype: torch.dtype) -> Engine:
    model, batch = problem.build()
    model, batch = model.to("cuda", dtype), [_cast(t, dtype).to("cuda") for t in batch]
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=MOMENTUM)

    @xla_dynamo.training_step(optimizer)
    def step(*batch: torch.Tensor) -> torch.Tensor:
        return model(*batch)

    return Engine(lambda: step(*batch), torch.cuda.synchronize)


def _lazy(problem: Problem, dtype: torch.dtype) -> Engine:
    import xla_dynamo.compat

    xla_dynamo.compat.install()
    import torch_xla.core.xla_model as xm  # type: ignore[import-not-found]

    device = xm.xla_device()
    model, batch = problem.build()
    model, batch = model.to(device, dtype), [_cast(t, dtype).to(device) for t in batch]
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=MOMENTUM)

    def step() -> None:
        optimizer.zero_grad()
        model(*batch).backward()
        xm.optimizer_step(optimizer, barrier=True)

    return Engine(step, xm.wait_device_ops)


def _jax(problem: Problem, dtype: torch.dtype) -> Engine:
    import jax
    import jax.numpy as jnp

    from . import jax_models

    model, batch = problem.build()
    run = jax_models.training_step(jax_models.LOSSES[problem.name], RATE, MOMENTUM)
    narrow = jnp.bfloat16 if dtype is torch.bfloat16 else jnp.float32

    def cast(x: jax.Array) -> jax.Array:
        return x.astype(narrow) if x.dtype == jnp.float32 else x

    state = list(jax.tree.map(cast, jax_models.state_of(model)))
    key, inputs = jax.random.key(0), jax.tree.map(cast, jax_models.inputs_of(batch))

    def step() -> None:
        state[:] = run(*state[:3], key, *inputs)[:3]

    return Engine(step, lambda: jax.block_until_ready(state))


def _cast(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return tensor.to(dtype) if tensor.is_floating_point() else tensor


ENGINES: dict[str, Callable[[Problem, torch.dtype], Engine]] = {
    "eager": lambda problem, dtype: _on_cuda(problem, dtype, None),
    "inductor": lambda problem, dtype: _on_cuda(problem, dtype, "inductor"),
    "xla": lambda problem, dtype: _on_cuda(problem, dtype, "xla"),
    "training_step": _one_program,
    "xla lazy": _lazy,
    "jax": _jax,
}


def _round(engine: Engine, steps: int) -> tuple[float, float]:
    """Milliseconds a step, and those until the host has queued it."""
    engine.finish()
    start = time.perf_counter()
    for _ in range(steps):
        engine.step()
    queued = time.perf_counter()
    engine.finish()
    return (time.perf_counter() - start) / steps * 1e3, (queued - start) / steps * 1e3


def measure(name: str, engines: list[str], steps: int, rounds: int) -> None:
    """Print the rows of one model."""
    make, dtype = PROBLEMS[name]
    running: dict[str, tuple[Engine, float]] = {}
    for engine in engines:
        start = time.perf_counter()
        try:
            made = ENGINES[engine](make(), dtype)
            made.step()
            made.finish()
        except Exception as error:
            print(f"| {name} | {engine} | failed: {str(error).splitlines()[0][:120]} | | | |")
            continue
        running[engine] = made, time.perf_counter() - start
        _round(made, 3)
    times: dict[str, list[tuple[float, float]]] = {engine: [] for engine in running}
    for _ in range(rounds):
        for engine, (made, _) in running.items():
            times[engine].append(_round(made, steps))
    medians = {e: [statistics.median(x) for x in zip(*t, strict=True)] for e, t in times.items()}
    base = medians.get("eager", [float("nan")])[0]
    for engine, (step, queued) in medians.items():
        print(
            f"| {name} | {engine} | {running[engine][1]:.1f} | {step:.2f} | {queued:.2f} "
            f"| {step / base:.2f} |",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--problem", choices=PROBLEMS, action="append")
    parser.add_argument("--engine", choices=ENGINES, action="append")
    parser.add_argument("--steps", type=int, default=20, help="steps in a timed round")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    print("| model | engine | first step, s | step, ms | queued, ms | step / eager's |")
    print("|---|---|--:|--:|--:|--:|")
    for problem in arguments.problem or PROBLEMS:
        measure(problem, arguments.engine or list(ENGINES), arguments.steps, arguments.rounds)


if __name__ == "__main__":
    main()
