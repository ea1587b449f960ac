"""Training steps and all-reduces over several devices, here and by JAX's shard_map.

    python -m benchmarks.replicas                 # eight minutes, on a quiet machine
    python -m benchmarks.replicas --counts 2,4 --engines processes    # fewer

Each row is a process (or several) of its own: an MLP (512 to 1,024 to 512, float32, 64 rows a
replica, SGD with momentum), and an all-reduce of 16 MiB, as time, and as a replica's bytes by time.
All on this machine's CPU, whose cores all replicas share: what is compared is what an engine adds.
Times are the least of rounds of six steps. Engines and JAX with as many devices in as many
processes take turns, two runs each, of which the faster one counts; CPU time is that of all
processes together, which a busy machine changes less. "spmd" is one program over all devices, which
splits the batch, and all-reduces shards; "both" are processes of two threads each.
"step" means that xla_dynamo.training_step makes the program: nothing is recorded at each step.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from . import jax_replicas

WIDTH, HIDDEN, ROWS, FLOATS = 512, 1024, 64, 4 << 20
SIZES = WIDTH, HIDDEN, ROWS, FLOATS
# What of JAX each engine is compared with: the same devices in as many processes.
BESIDE = {
    "spmd": "jax",
    "spmd step": "jax",
    "threads": "jax",
    "threads step": "jax",
    "processes": "jax processes",
    "processes step": "jax processes",
    "both": "jax both",
    "both step": "jax both",
}
Times = dict[str, tuple[float, float]]  # by what was measured: milliseconds, and of CPU time
EACH = {"both": 2, "jax both": 2}  # devices of a process, where that is not one
_ROUND, _ROUNDS = 6, 12


def least(step: Callable[[], Any], wait: Callable[[], Any]) -> tuple[float, float]:
    """Milliseconds a step, and of CPU time of this process, after a first round."""
    times, cpu = [], []
    for _ in range(_ROUNDS + 1):
        start, before = time.perf_counter(), time.process_time()
        for _ in range(_ROUND):
            step()
        wait()
        times.append((time.perf_counter() - start) / _ROUND * 1e3)
        cpu.append((time.process_time() - before) / _ROUND * 1e3)
    return min(times[1:]), min(cpu[1:])


def together(found: Sequence[Times]) -> Times:
    """The times of several processes: those of the first, and the CPU time of all."""
    return {what: (found[0][what][0], sum(each[what][1] for each in found)) for what in found[0]}


def step_of(rows: int, place: Callable[[Any], Any], is_recorded: bool = True) -> Callable[[], Any]:
    """A training step on a batch that `place` puts on the device: recorded, or `training_step`."""
    import torch
    import torch_xla.core.xla_model as xm
    from torch import nn

    import xla_dynamo

    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(WIDTH, HIDDEN, bias=False), nn.Tanh(), nn.Linear(HIDDEN, WIDTH, bias=False)
    ).to(xm.xla_device())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    x = place(torch.randn(rows, WIDTH))
    if not is_recorded:
        step = xla_dynamo.training_step(optimizer)(lambda x: (model(x) - x).square().mean())
        return lambda: step(x)

    def once() -> None:
        optimizer.zero_grad()
        (model(x) - x).square().mean().backward()
        xm.optimizer_step(optimizer)
        xm.mark_step()

    return once


def of_spmd(count: int, is_recorded: bool) -> Times:
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

    step_times = least(step_of(ROWS * count, place, is_recorded), xm.wait_device_ops)
    values, rows = place(torch.ones(count, FLOATS)), ("data", None)
    last: list[Any] = [None]

    def summed() -> Any:  # the program gives what is kept of it
        own = xs.enable_manual_sharding(values, rows, mesh=mesh)
        total: Any = xm.all_reduce("sum", own.global_tensor)
        return xs.disable_manual_sharding(total, rows, values.shape, mesh=mesh).global_tensor

    def reduce() -> None:
        last[0] = summed()
        xm.mark_step()

    return {"step": step_times, "all_reduce": least(reduce, xm.wait_device_ops)}


def measured(rank: int, is_recorded: bool = True) -> Times:
    """What a replica of ours measures."""
    import torch
    import torch_xla.core.xla_model as xm

    device = xm.xla_device()
    step = step_of(ROWS, lambda x: x.to(device), is_recorded)
    step_times = least(step, xm.wait_device_ops)
    values = torch.ones(FLOATS).to(device)
    last: list[Any] = [None]

    def reduce() -> None:
        last[0] = xm.all_reduce("sum", values)
        xm.mark_step()

    return {"step": step_times, "all_reduce": least(reduce, xm.wait_device_ops)}


def replica(rank: int, each: int, is_recorded: bool = True) -> None:
    """A replica of xmp.spawn, of `each` in a process."""
    import torch_xla.core.xla_model as xm

    every = xm.mesh_reduce("times", measured(rank, is_recorded), list)
    if rank == 0:
        print(json.dumps(together(every[::each])), flush=True)


def of_threads(count: int, is_recorded: bool) -> Times:
    """DataParallel: a thread for each replica."""
    os.environ["CPU_NUM_DEVICES"] = str(count)
    import xla_dynamo.compat  # noqa: F401  # isort: skip
    import torch
    import torch_xla.core.xla_model as xm
    import torch_xla.distributed.data_parallel as dp

    def loop(model: Any, loader: Any, device: Any, context: Any) -> Times:
        return measured(xm.get_ordinal(), is_recorded)

    return dp.DataParallel(torch.nn.Linear(1, 1))(loop, [torch.ones(1)] * count)[0]


def of_processes(count: int, each: int, is_recorded: bool) -> None:
    """xmp.spawn, with as many threads for `each` process: rank 0 prints."""
    if each > 1:
        flags = os.environ.get("XLA_FLAGS", "")
        os.environ["XLA_FLAGS"] = f"{flags} --xla_force_host_platform_device_count={each}"
    import xla_dynamo.compat  # noqa: F401  # isort: skip
    import torch_xla.distributed.xla_multiprocessing as xmp

    if count == 1:
        replica(0, 1, is_recorded)
    else:
        xmp.spawn(replica, (each, is_recorded), nprocs=count // each, start_method="fork")


def run(engine: str, count: int) -> Times:
    """Measure in a process of its own."""
    command = ["-m", "benchmarks.replicas", "--engine", engine, str(count)]
    if engine in BESIDE.values() and engine != "jax" and count > 1:
        told = jax_replicas.start_all(command, count // EACH.get(engine, 1))
    else:
        done = subprocess.run(
            [sys.executable, *command], capture_output=True, text=True, check=True
        )
        told = [done.stdout]
    return together([json.loads(text.splitlines()[-1]) for text in told])


def faster(one: Times, other: Times) -> Times:
    """The smaller ones of the times of two runs."""
    return {
        what: (min(one[what][0], other[what][0]), min(one[what][1], other[what][1])) for what in one
    }


def row(count: int, engine: str, found: Times, base: Times | None) -> str:
    """A line of the table; of JAX itself without `base`."""
    cells = [str(count), engine]
    for what, times in found.items():
        compared = base[what] if base else ("", "")
        for time_, of_jax in zip(times, compared, strict=True):
            cells += [f"{time_:.2f}", f"{time_ / of_jax:.2f}" if of_jax else ""]
        if what == "all_reduce":
            cells.append(f"{FLOATS * 4 / times[0] / 1e6:.2f}")
    return f"| {' | '.join(cells)} |"


def rows(counts: Sequence[int], engines: Sequence[str]) -> Iterator[str]:
    """The table, line by line."""
    columns = "step ms | / JAX | CPU ms | / JAX"
    yield f"| replicas | engine | {columns} | {columns.replace('step', 'all-reduce')} | GB/s |"
    yield f"|--:|---|{'--:|' * 9}"
    for count in counts:
        for base, group in itertools.groupby(engines, lambda engine: BESIDE[engine]):
            ours = list(group)
            if count < 2 * EACH.get(base, 1) and base != "jax":
                continue
            first, second = ([run(engine, count) for engine in (base, *ours)] for _ in range(2))
            best = [faster(*pair) for pair in zip(first, second, strict=True)]
            yield row(count, base, best[0], None)
            for engine, each in zip(ours, best[1:], strict=True):
                yield row(count, engine, each, best[0])


def measure(engine: str, count: int, *place: str) -> None:
    """Measure in this process, and print what was found.

    place: of a process of several of JAX: its rank, how many there are, and where they meet.
    """
    name, _, step = engine.partition(" ")
    if name in ("processes", "both"):
        of_processes(count, EACH.get(name, 1), is_recorded=not step)
        return
    if place:
        rank, processes, address = int(place[0]), int(place[1]), place[2]
        found = jax_replicas.in_process(rank, processes, address, count, SIZES, least)
    elif name == "jax":
        found = jax_replicas.in_one_process(count, SIZES, least)
    elif name == "spmd":
        found = of_spmd(count, is_recorded=not step)
    else:
        found = of_threads(count, is_recorded=not step)
    print(json.dumps(found))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", nargs="+", help="measure in this process: NAME REPLICAS")
    parser.add_argument("--counts", default="1,2,4,8")
    parser.add_argument("--engines", default=",".join(BESIDE))
    arguments = parser.parse_args()
    if arguments.engine:
        name, count, *place = arguments.engine
        measure(name, int(count), *place)
        return
    start = time.monotonic()
    for line in rows(
        [int(count) for count in arguments.counts.split(",")], arguments.engines.split(",")
    ):
        print(line, flush=True)
    print(f"{time.monotonic() - start:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
