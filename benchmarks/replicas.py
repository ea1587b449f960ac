"""Training steps and all-reduces over several devices, here and by JAX's shard_map.

    python -m benchmarks.replicas                 # five minutes, on a quiet machine
    python -m benchmarks.replicas --counts 2,4    # fewer

Each row is a process (or several) of its own: an MLP (512 to 1,024 to 512, float32, 64 rows a
replica, SGD with momentum), and an all-reduce of 16 MiB, as time, and as a replica's bytes by time.
All on this machine's CPU, whose cores all replicas share: what is compared is what an engine adds.
Times are the least of rounds of six steps, those of JAX of two processes, before and after the
others. "spmd" is one program over all devices, which splits the batch, and all-reduces shards;
"both" are processes of two threads each.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

WIDTH, HIDDEN, ROWS, FLOATS = 512, 1024, 64, 4 << 20
ENGINES = ("spmd", "threads", "processes", "both")
_ROUND, _ROUNDS = 6, 5


def least(step: Callable[[], Any], wait: Callable[[], Any]) -> float:
    """Milliseconds a step, after a first round."""
    times = []
    for _ in range(_ROUNDS + 1):
        start = time.perf_counter()
        for _ in range(_ROUND):
            step()
        wait()
        times.append((time.perf_counter() - start) / _ROUND * 1e3)
    return min(times[1:])


def of_jax(count: int) -> dict[str, float]:
    """One jitted step over a mesh of devices, gradients by psum."""
    os.environ["PJRT_NPROC"] = str(4 * count)
    import jax
    import jax.numpy as jnp
    import numpy as np

    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", count)
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("r",))
    each, all_ = jax.sharding.PartitionSpec("r"), jax.sharding.PartitionSpec()

    def loss(weights: Any, x: Any) -> Any:
        return jnp.square(jnp.tanh(x @ weights[0]) @ weights[1] - x).mean()

    def step(weights: Any, momenta: Any, x: Any) -> Any:
        value, gradients = jax.value_and_grad(loss)(weights, x)
        gradients = jax.lax.pmean(gradients, "r")
        momenta = [0.9 * m + g for m, g in zip(momenta, gradients, strict=True)]
        return [w - 0.01 * m for w, m in zip(weights, momenta, strict=True)], momenta, value[None]

    sharded = jax.jit(
        jax.shard_map(
            step,
            mesh=mesh,
            in_specs=(all_, all_, each),
            out_specs=(all_, all_, each),
            check_vma=False,
        ),
        donate_argnums=(0, 1),
    )
    rng = np.random.default_rng(0)
    shapes = [(WIDTH, HIDDEN), (HIDDEN, WIDTH)]
    weights = [jnp.asarray(rng.standard_normal(s, np.float32) / 30) for s in shapes]
    state: list[Any] = [weights, [jnp.zeros(s, np.float32) for s in shapes], None]
    x = jax.device_put(
        rng.standard_normal((ROWS * count, WIDTH), np.float32),
        jax.sharding.NamedSharding(mesh, each),
    )

    def once() -> None:
        state[0], state[1], state[2] = sharded(state[0], state[1], x)

    step_ms = least(once, lambda: jax.block_until_ready(state))
    summed = jax.jit(
        jax.shard_map(
            lambda v: jax.lax.psum(v, "r"),
            mesh=mesh,
            in_specs=each,
            out_specs=each,
            check_vma=False,
        )
    )
    values = jax.device_put(
        np.ones((count, FLOATS), np.float32), jax.sharding.NamedSharding(mesh, each)
    )
    last: list[Any] = [None]

    def reduce() -> None:
        last[0] = summed(values)

    return {"step": step_ms, "all_reduce": least(reduce, lambda: jax.block_until_ready(last))}


def step_of(rows: int, place: Callable[[Any], Any]) -> Callable[[], None]:
    """A training step on a batch that `place` puts on the device."""
    import torch
    import torch_xla.core.xla_model as xm
    from torch import nn

    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(WIDTH, HIDDEN, bias=False), nn.Tanh(), nn.Linear(HIDDEN, WIDTH, bias=False)
    ).to(xm.xla_device())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    x = place(torch.randn(rows, WIDTH))

    def once() -> None:
        optimizer.zero_grad()
        (model(x) - x).square().mean().backward()
        xm.optimizer_step(optimizer)
        xm.mark_step()

    return once


def of_spmd(count: int) -> dict[str, float]:
    """One program over all devices, the batch split over them."""
    os.environ["CPU_NUM_DEVICES"] = str(count)
    import xla_dynamo.compat  # noqa: F401  # isort: skip
    import torch
    import torch_xla.core.xla_model as xm
    import torch_xla.distributed.spmd as xs
    import torch_xla.runtime as xr

    xr.use_spmd()
    mesh = xs.get_1d_mesh("data")

    def place(x: Any) -> Any:
        return xs.mark_sharding(x.to("xla"), mesh, ("data", None)).global_tensor

    step_ms = least(step_of(ROWS * count, place), xm.wait_device_ops)
    values, rows = place(torch.ones(count, FLOATS)), ("data", None)
    last: list[Any] = [None]

    def summed() -> Any:  # the program gives what is kept of it
        own = xs.enable_manual_sharding(values, rows, mesh=mesh)
        total: Any = xm.all_reduce("sum", own.global_tensor)
        return xs.disable_manual_sharding(total, rows, values.shape, mesh=mesh).global_tensor

    def reduce() -> None:
        last[0] = summed()
        xm.mark_step()

    return {"step": step_ms, "all_reduce": least(reduce, xm.wait_device_ops)}


def measured(rank: int) -> dict[str, float]:
    """What a replica of ours measures."""
    import torch
    import torch_xla.core.xla_model as xm

    device = xm.xla_device()
    step_ms = least(step_of(ROWS, lambda x: x.to(device)), xm.wait_device_ops)
    values = torch.ones(FLOATS).to(device)
    last: list[Any] = [None]

    def reduce() -> None:
        last[0] = xm.all_reduce("sum", values)
        xm.mark_step()

    return {"step": step_ms, "all_reduce": least(reduce, xm.wait_device_ops)}


def replica(rank: int) -> None:
    """A process of xmp.spawn."""
    found = measured(rank)
    if rank == 0:
        print(json.dumps(found), flush=True)


def of_threads(count: int) -> dict[str, float]:
    """DataParallel: a thread for each replica."""
    os.environ["CPU_NUM_DEVICES"] = str(count)
    import xla_dynamo.compat  # noqa: F401  # isort: skip
    import torch
    import torch_xla.core.xla_model as xm
    import torch_xla.distributed.data_parallel as dp

    def loop(model: Any, loader: Any, device: Any, context: Any) -> dict[str, float]:
        return measured(xm.get_ordinal())

    return dp.DataParallel(torch.nn.Linear(1, 1))(loop, [torch.ones(1)] * count)[0]


def of_processes(count: int, each: int = 1) -> None:
    """xmp.spawn, with as many threads for `each` process: rank 0 prints."""
    if each > 1:
        flags = os.environ.get("XLA_FLAGS", "")
        os.environ["XLA_FLAGS"] = f"{flags} --xla_force_host_platform_device_count={each}"
    import xla_dynamo.compat  # noqa: F401  # isort: skip
    import torch_xla.distributed.xla_multiprocessing as xmp

    if count == 1:
        replica(0)
    else:
        xmp.spawn(replica, nprocs=count // each, start_method="fork")


def run(engine: str, count: int) -> dict[str, float]:
    """Measure in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.replicas", "--engine", engine, str(count)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def row(count: int, engine: str, found: dict[str, float], base: dict[str, float]) -> str:
    """A line of the table."""
    step, base_step = found["step"], base["step"]
    reduce, base_reduce = found["all_reduce"], base["all_reduce"]
    rate = FLOATS * 4 / reduce / 1e6
    cells = [
        *(str(count), engine, f"{step:.2f}", f"{step / base_step:.2f}"),
        *(f"{reduce:.2f}", f"{rate:.2f}", f"{reduce / base_reduce:.2f}"),
    ]
    return f"| {' | '.join(cells)} |"


def rows(counts: Sequence[int]) -> Iterator[str]:
    """The table, line by line."""
    yield "| replicas | engine | step ms | / JAX | all-reduce ms | GB/s | / JAX |"
    yield "|--:|---|--:|--:|--:|--:|--:|"
    for count in counts:
        engines = [name for name in ENGINES if name != "both" or count > 2]
        first, found = run("jax", count), [run(engine, count) for engine in engines]
        last = run("jax", count)
        base = {what: min(first[what], last[what]) for what in first}
        yield row(count, "jax", base, base)
        for engine, each in zip(engines, found, strict=True):
            yield row(count, engine, each, base)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", nargs=2, metavar=("NAME", "REPLICAS"))
    parser.add_argument("--counts", default="1,2,4,8")
    arguments = parser.parse_args()
    if arguments.engine:
        name, count = arguments.engine[0], int(arguments.engine[1])
        if name in ("processes", "both"):
            of_processes(count, 2 if name == "both" else 1)
        else:
            engines = {"jax": of_jax, "spmd": of_spmd, "threads": of_threads}
            print(json.dumps(engines[name](count)))
        return
    start = time.monotonic()
    for line in rows(tuple(map(int, arguments.counts.split(",")))):
        print(line, flush=True)
    print(f"{time.monotonic() - start:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
