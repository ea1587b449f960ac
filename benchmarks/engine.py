"""One engine trains one model in this process, or evaluates it; a JSON line says what it cost.

Run by `benchmarks.cpu`, a process for each measurement, so that compile caches and peak memory are
its own. It measures in turns with others: as many seconds as each line of its input says. For
torch_xla, which has an environment of its own, only torch and the models in torch are needed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import torch

if not __package__:  # run as a file, in an environment that may not know of this folder
    sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.cpu_problems import PROBLEMS
from benchmarks.torch_models import Problem
from benchmarks.turns import READY

RATE, MOMENTUM = 0.1, 0.9
Step = Callable[[], float]


def _training(backend: str | None) -> Callable[[Problem], Step]:
    """Forward and backward compiled; the optimizer is PyTorch's."""

    def make(problem: Problem) -> Step:
        model, batch = problem.build()
        optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=MOMENTUM)
        forward = torch.compile(model, backend=backend) if backend else model

        def step() -> float:
            optimizer.zero_grad()
            loss = forward(*batch)
            loss.backward()
            optimizer.step()
            return loss.item()

        return step

    return make


def _one_program(problem: Problem) -> Step:
    """The whole step compiled, the optimizer's included, as JAX's is."""
    import xla_dynamo

    model, batch = problem.build()
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=MOMENTUM)
    run = xla_dynamo.training_step(optimizer)(model)
    return lambda: run(*batch).item()


def _saved(problem: Problem) -> Step:
    """The function that another process has saved; the first one compiles and saves it."""
    model, batch = problem.build()
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=MOMENTUM)
    file = Path(os.environ["XLA_DYNAMO_CACHE_DIR"], "saved.pt2")
    if file.exists():
        with file.open("rb") as data:
            forward = torch.compiler.load_compiled_function(data)
    else:
        compiled = torch.compile(model, backend="xla", fullgraph=True)
        forward = compiled.forward.aot_compile((batch, {}))
        forward.save_compiled_function(str(file))

    def step() -> float:
        optimizer.zero_grad()
        loss = forward(model, *batch)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def _inference(backend: str | None) -> Callable[[Problem], Step]:
    """The loss of a batch, without gradients, of the model in eval mode."""

    def make(problem: Problem) -> Step:
        model, batch = problem.build()
        model.eval()
        forward = torch.compile(model, backend=backend) if backend else model

        def step() -> float:
            with torch.no_grad():
                return forward(*batch).item()

        return step

    return make


def _torch_xla(problem: Problem) -> Step:
    """The lazy tensors of torch_xla, as its documentation trains."""
    import torch_xla.core.xla_model as xm  # type: ignore[import-not-found]

    device = xm.xla_device()
    model, batch = problem.build()
    model, batch = model.to(device), tuple(t.to(device) for t in batch)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=MOMENTUM)

    def step() -> float:
        optimizer.zero_grad()
        loss = model(*batch)
        loss.backward()
        xm.optimizer_step(optimizer, barrier=True)
        return loss.item()

    return step


def _lazy(problem: Problem) -> Step:
    """The same script on the lazy device here."""
    import xla_dynamo.compat

    xla_dynamo.compat.install()
    return _torch_xla(problem)


def _jax_training(problem: Problem) -> Step:
    """The hand-written step: forward, backward and optimizer in one jax.jit, state donated."""
    import jax

    from benchmarks import cpu_losses, jax_models

    model, batch = problem.build()
    run = jax_models.training_step(cpu_losses.TRAINING[problem.name], RATE, MOMENTUM)
    state = list(jax_models.state_of(model))
    key, inputs = jax.random.key(0), jax_models.inputs_of(batch)

    def step() -> float:
        nonlocal state
        *state, loss = run(*state, key, *inputs)
        return float(loss)

    return step


def _jax_inference(problem: Problem) -> Step:
    import jax

    from benchmarks import cpu_losses, jax_models

    model, batch = problem.build()
    run = jax_models.evaluation(cpu_losses.EVALUATION[problem.name])
    parameters, buffers, _ = jax_models.state_of(model)
    key, inputs = jax.random.key(0), jax_models.inputs_of(batch)
    return lambda: float(run(parameters, buffers, key, *inputs))


# What is measured -> the engines that do it.
ENGINES: dict[str, dict[str, Callable[[Problem], Step]]] = {
    "training": {
        "xla": _training("xla"),
        "xla step": _one_program,
        "xla lazy": _lazy,
        "jax": _jax_training,
        "eager": _training(None),
        "inductor": _training("inductor"),
        "torch_xla": _torch_xla,
    },
    "inference": {
        "xla": _inference("xla"),
        "jax": _jax_inference,
        "eager": _inference(None),
        "inductor": _inference("inductor"),
    },
    # A first training step, what a second process finds on disk included: see start.py.
    "start": {
        "xla": _training("xla"),
        "xla saved": _saved,
        "xla lazy": _lazy,
        "aot_eager": _training("aot_eager"),
    },
}


def measure(mode: str, engine: str, model: str, turns: Iterable[float]) -> dict[str, object]:
    """Seconds to the end of the first step, milliseconds a step (median), peak resident MB.

    turns: seconds of steps, each.
    """
    start = time.perf_counter()
    step = ENGINES[mode][engine](PROBLEMS[model]())
    losses = [step()]
    first = time.perf_counter() - start
    for _ in range(2):
        losses.append(step())
    times = sorted(taken for seconds in turns for taken in _turn(step, seconds))
    return {
        "mode": mode,
        "engine": engine,
        "problem": model,
        "first_step_seconds": round(first, 3),
        "step_milliseconds": round(times[len(times) // 2] * 1e3, 3) if times else None,
        "peak_megabytes": _peak_megabytes(),
        "losses": losses,
    }


def _turn(step: Step, seconds: float) -> list[float]:
    """How long each step takes of some seconds, of one at least."""
    step()  # what others have put into the processor's caches goes
    times: list[float] = []
    end = time.perf_counter() + seconds
    while not times or time.perf_counter() < end:
        before = time.perf_counter()
        step()
        times.append(time.perf_counter() - before)
    return times


def _asked() -> Iterator[float]:
    """The turns that `benchmarks.turns` gives; it waits for each to be done."""
    while True:
        print(READY, flush=True)
        line = sys.stdin.readline()
        if not line:
            return
        yield float(line)


def _peak_megabytes() -> int:
    """Peak resident memory; getrusage's figure would include the parent's, from before exec."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) // 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("mode", choices=ENGINES)
    parser.add_argument(
        "engine", choices=sorted({engine for engines in ENGINES.values() for engine in engines})
    )
    parser.add_argument("model", choices=PROBLEMS)
    arguments = parser.parse_args()
    row = measure(arguments.mode, arguments.engine, arguments.model, _asked())
    print(json.dumps(row))


if __name__ == "__main__":
    main()
