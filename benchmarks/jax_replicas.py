"""A data-parallel training step and an all-reduce by JAX, which replicas.py compares with.

By shard_map in one process, or in several that jax.distributed connects, as users of JAX do.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

Least = Callable[[Callable[[], Any], Callable[[], Any]], tuple[float, float]]
Times = dict[str, tuple[float, float]]
Sizes = tuple[int, int, int, int]  # width, hidden width, rows a replica, floats that are summed


def measured(count: int, sizes: Sizes, least: Least) -> Times:
    """The times of `count` replicas of one process, or of this process's part of them."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    width, hidden, rows, floats = sizes
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("r",))
    assert mesh.size == count
    each, all_ = jax.sharding.PartitionSpec("r"), jax.sharding.PartitionSpec()
    split, whole = (jax.sharding.NamedSharding(mesh, spec) for spec in (each, all_))

    def placed(value: Any, sharding: Any) -> Any:
        return jax.make_array_from_callback(value.shape, sharding, lambda index: value[index])

    def loss(weights: Any, x: Any) -> Any:
        return jnp.square(jnp.tanh(x @ weights[0]) @ weights[1] - x).mean()

    def step(weights: Any, momenta: Any, x: Any) -> Any:
        value, gradients = jax.value_and_grad(loss)(weights, x)
        gradients = jax.lax.pmean(gradients, "r")
        momenta = [0.9 * m + g for m, g in zip(momenta, gradients, strict=True)]
        return [w - 0.01 * m for w, m in zip(weights, momenta, strict=True)], momenta, value[None]

    def mapped(body: Any, takes: Any, gives: Any) -> Any:
        return jax.shard_map(body, mesh=mesh, in_specs=takes, out_specs=gives, check_vma=False)

    stepped = jax.jit(mapped(step, (all_, all_, each), (all_, all_, each)), donate_argnums=(0, 1))
    rng = np.random.default_rng(0)
    shapes = [(width, hidden), (hidden, width)]
    weights = [placed(rng.standard_normal(s, np.float32) / 30, whole) for s in shapes]
    state: list[Any] = [weights, [placed(np.zeros(s, np.float32), whole) for s in shapes], None]
    x = placed(rng.standard_normal((rows * count, width), np.float32), split)

    def once() -> None:
        state[0], state[1], state[2] = stepped(state[0], state[1], x)

    step_times = least(once, lambda: jax.block_until_ready(state))
    summed = jax.jit(mapped(lambda v: jax.lax.psum(v, "r"), each, each))
    values = placed(np.ones((count, floats), np.float32), split)
    last: list[Any] = [None]

    def reduce() -> None:
        last[0] = summed(values)

    return {"step": step_times, "all_reduce": least(reduce, lambda: jax.block_until_ready(last))}


def _prepare(devices: int) -> None:
    if devices > 1:  # threads: fewer can wait for each other for ever
        os.environ["PJRT_NPROC"] = str(4 * devices)
    import jax

    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", devices)


def in_one_process(count: int, sizes: Sizes, least: Least) -> Times:
    """The times of `count` devices of this process."""
    _prepare(count)
    return measured(count, sizes, least)


def in_process(
    rank: int, processes: int, address: str, count: int, sizes: Sizes, least: Least
) -> Times:
    """This process's part of a measurement over several, whose coordinator is at `address`."""
    _prepare(count // processes)
    import jax

    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(address, processes, rank)
    found = measured(count, sizes, least)
    jax.distributed.shutdown()
    return found


def start_all(command: Sequence[str], processes: int) -> list[str]:
    """Run `command RANK PROCESSES ADDRESS` for each rank; what each prints."""
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    started = [
        subprocess.Popen(
            [sys.executable, *command, str(rank), str(processes), address],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(processes)
    ]
    told = [process.communicate() for process in started]
    for process, (_, errors) in zip(started, told, strict=True):
        if process.returncode:
            raise RuntimeError(errors)
    return [printed for printed, _ in told]
