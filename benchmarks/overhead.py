"""What a call costs beyond its arithmetic: `python -m benchmarks.overhead`.

A two-layer MLP of 16 units against backend="aot_eager", 200 tensors in and out against a jax.jit
function of 200 arrays, and a training step of 50 layers against JAX's, in one process. Times are
the least of many rounds, engines taking turns, so that other load on the machine does not favour
one.
"""

from __future__ import annotations

import time
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import torch
from torch import nn
from torch.fx import Graph

import xla_dynamo

ROUNDS, CALLS = 100, 20


def least_microseconds(calls: Mapping[str, Callable[[], object]]) -> dict[str, float]:
    """Microseconds a call, for each engine."""
    best = dict.fromkeys(calls, float("inf"))
    for call in calls.values():
        for _ in range(20):
            call()
    for _ in range(ROUNDS):
        for name, call in calls.items():
            start = time.perf_counter()
            for _ in range(CALLS):
                call()
            best[name] = min(best[name], (time.perf_counter() - start) / CALLS * 1e6)
    return best


def mlp() -> dict[str, dict[str, float]]:
    """Inference, training forward, and forward with backward, for each backend."""
    model = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4))
    x = torch.randn(8, 16)
    backends = ("xla", "aot_eager", "eager")
    compiled = {backend: _fresh(model, backend) for backend in backends}

    def inference(run: Callable[..., torch.Tensor]) -> Callable[[], object]:
        def call() -> object:
            with torch.no_grad():
                return run(x)

        return call

    forward = {name: lambda run=run: run(x) for name, run in compiled.items()}
    training = {name: lambda run=run: run(x).sum().backward() for name, run in compiled.items()}
    return {
        "MLP inference": least_microseconds({n: inference(r) for n, r in compiled.items()}),
        "MLP forward": least_microseconds(forward),
        "MLP forward and backward": least_microseconds(training),
    }


def _fresh(model: nn.Module, backend: str) -> Callable[..., torch.Tensor]:
    """A compiled function of its own code object: Dynamo keeps graphs by code, not by backend."""
    namespace: dict[str, Callable[..., torch.Tensor]] = {}
    exec(compile("def run(x): return model(x)", backend, "exec"), {"model": model}, namespace)
    return torch.compile(namespace["run"], backend=backend)


def many_arguments(count: int = 200) -> dict[str, dict[str, float]]:
    """`count` tensors of 16 elements in, as many out."""
    tensors = [torch.randn(16) for _ in range(count)]
    arrays = [jnp.ones(16) for _ in range(count)]
    jitted = jax.jit(lambda *arguments: [a + 1 for a in arguments])

    def all_plus_one(*arguments: torch.Tensor) -> list[torch.Tensor]:
        return [a + 1 for a in arguments]

    backends = {name: torch.compile(all_plus_one, backend=name) for name in ("xla",)}
    calls: dict[str, Callable[[], object]] = {
        "jax.jit": lambda: jax.block_until_ready(jitted(*arrays)),
        **{name: lambda run=run: run(*tensors) for name, run in backends.items()},
    }
    calls["xla, without Dynamo"] = _launch_of(backends["xla"], tensors)
    return {f"{count} tensors in and out": least_microseconds(calls)}


def training_step(layers: int = 50) -> dict[str, dict[str, float]]:
    """Forward, backward and SGD of `layers` layers of 16 units, for a batch of 32."""
    x, y = torch.randn(32, 16), torch.randn(32, 16)

    def compiled_step(whole: bool, backend: str | None) -> Callable[[], object]:
        parts = [part for _ in range(layers) for part in (nn.Linear(16, 16), nn.Tanh())]
        model = nn.Sequential(*parts)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

        def loss(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return (model(x) - y).square().mean()

        if whole:
            step = xla_dynamo.training_step(optimizer)(loss)
            return lambda: step(x, y)
        forward = loss if backend is None else torch.compile(_fresh_loss(loss), backend=backend)

        def call() -> None:
            optimizer.zero_grad()
            forward(x, y).backward()
            optimizer.step()

        return call

    calls = {
        "jax.jit": _jax_step(layers, x.numpy(), y.numpy()),
        "xla_dynamo.training_step": compiled_step(True, None),
        'torch.compile(backend="xla"), SGD in eager': compiled_step(False, "xla"),
        "eager": compiled_step(False, None),
    }
    return {f"training step of {layers} layers": least_microseconds(calls)}


def _fresh_loss(loss: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """The same, of its own code object."""
    code = loss.__code__.replace(co_name="of_its_own")
    return types.FunctionType(code, loss.__globals__, closure=loss.__closure__)


def _jax_step(layers: int, x: Any, y: Any) -> Callable[[], object]:
    keys = jax.random.split(jax.random.PRNGKey(0), layers)
    state = [([jax.random.uniform(k, (16, 16)) / 4 for k in keys], [jnp.zeros(16) for _ in keys])]
    given = jnp.asarray(x), jnp.asarray(y)

    def loss(parameters: Any, x: Any, y: Any) -> Any:
        for weight, bias in zip(*parameters, strict=True):
            x = jnp.tanh(x @ weight + bias)
        return jnp.square(x - y).mean()

    def step(parameters: Any, x: Any, y: Any) -> Any:
        value, gradients = jax.value_and_grad(loss)(parameters, x, y)
        return jax.tree.map(lambda p, g: p - 0.01 * g, parameters, gradients), value

    jitted = jax.jit(step, donate_argnums=0)

    def call() -> None:
        state[0], value = jitted(state[0], *given)
        value.block_until_ready()

    return call


def _launch_of(
    compiled: Callable[..., object], tensors: list[torch.Tensor]
) -> Callable[[], object]:
    """The executable's own call path, without Dynamo's guards and AOTAutograd's wrapper."""
    from xla_dynamo.backend.executable import static_program

    made: list[Callable[[list[Any]], Sequence[Any]]] = []
    original = static_program.compile_launch

    def remember(graph: Graph, request: static_program.Request) -> Callable[..., Sequence[Any]]:
        made.append(original(graph, request))
        return made[-1]

    static_program.compile_launch = remember
    try:
        compiled(*tensors)
    finally:
        static_program.compile_launch = original
    return lambda: made[0](list(tensors))


def table(results: Mapping[str, Mapping[str, float]]) -> str:
    """Markdown; a ratio of 1 is what the reference, the last column, takes."""
    lines = ["| call | engine | us | ratio | to |", "|---|---|--:|--:|---|"]
    for what, times in results.items():
        reference = "jax.jit" if "jax.jit" in times else "aot_eager"
        for name, microseconds in times.items():
            ratio = microseconds / times[reference]
            lines.append(f"| {what} | {name} | {microseconds:.0f} | {ratio:.2f} | {reference} |")
    return "\n".join(lines)


def run() -> dict[str, dict[str, float]]:
    """Every measurement: what is called -> engine -> microseconds."""
    return {**mlp(), **many_arguments(), **training_step()}


if __name__ == "__main__":
    print(table(run()))
