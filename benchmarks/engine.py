"""One engine trains one model in this process; a JSON line says what it cost.

Run by `benchmarks.cpu`, a process for each measurement, so that compile caches and peak memory are
its own. For torch_xla, which has an environment of its own, only torch and torch_models are needed.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))
import torch_models  # type: ignore[import-not-found]

RATE, MOMENTUM = 0.1, 0.9
Step = Callable[[], float]


def _eager(problem: torch_models.Problem) -> Step:
    return _compiled(problem, None)


def _inductor(problem: torch_models.Problem) -> Step:
    return _compiled(problem, "inductor")


def _xla(problem: torch_models.Problem) -> Step:
    return _compiled(problem, "xla")


def _compiled(problem: torch_models.Problem, backend: str | None) -> Step:
    """Forward and backward compiled; the optimizer is PyTorch's."""
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


def _torch_xla(problem: torch_models.Problem) -> Step:
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


def _lazy(problem: torch_models.Problem) -> Step:
    """The same script on the lazy device here."""
    import xla_dynamo.compat

    xla_dynamo.compat.install()
    return _torch_xla(problem)


def _jax(problem: torch_models.Problem) -> Step:
    """The hand-written step: forward, backward and optimizer in one jax.jit, state donated."""
    import jax
    import jax_models  # type: ignore[import-not-found]

    model, batch = problem.build()
    run = jax_models.training_step(jax_models.LOSSES[problem.name], RATE, MOMENTUM)
    state = list(jax_models.state_of(model))
    key, inputs = jax.random.key(0), jax_models.inputs_of(batch)

    def step() -> float:
        nonlocal state
        *state, loss = run(*state, key, *inputs)
        return float(loss)

    return step


ENGINES = {
    "eager": _eager,
    "inductor": _inductor,
    "xla": _xla,
    "xla lazy": _lazy,
    "torch_xla": _torch_xla,
    "jax": _jax,
}


def measure(engine: str, problem: torch_models.Problem, seconds: float) -> dict[str, object]:
    """Seconds to the end of the first step, milliseconds a step (median), peak resident MB."""
    start = time.perf_counter()
    step = ENGINES[engine](problem)
    losses = [step()]
    first = time.perf_counter() - start
    for _ in range(2):
        losses.append(step())
    times: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 5:
        begin = time.perf_counter()
        step()
        times.append(time.perf_counter() - begin)
    return {
        "engine": engine,
        "problem": problem.name,
        "first_step_seconds": round(first, 3),
        "step_milliseconds": round(sorted(times)[len(times) // 2] * 1e3, 3),
        "peak_megabytes": _peak_megabytes(),
        "losses": losses,
    }


def _peak_megabytes() -> int:
    """Peak resident memory; getrusage's figure would include the parent's, from before exec."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) // 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("engine", choices=ENGINES)
    parser.add_argument("problem", choices=("mnist", "resnet18", "gpt"))
    parser.add_argument("--seconds", type=float, default=5.0)
    arguments = parser.parse_args()
    problem = getattr(torch_models, arguments.problem)()
    print(json.dumps(measure(arguments.engine, problem, arguments.seconds)))


if __name__ == "__main__":
    main()
