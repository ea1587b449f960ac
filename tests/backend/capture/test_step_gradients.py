"""Training steps of many devices: processes' gradients are averaged, SPMD's are of one program."""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

import xla_dynamo
from tests.programs import run
from xla_dynamo.errors import ReplicaError

ROOT = Path(__file__).parents[3]
COUNT, STEPS = 2, 4


def optimized(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


_one_at_a_time = threading.Lock()


def network() -> nn.Module:
    with _one_at_a_time:  # threads share the generator
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 1)).double()


def batch(rank: int, step: int) -> torch.Tensor:
    seed = torch.Generator().manual_seed(10 * step + rank)
    return torch.randn(4, 6, dtype=torch.float64, generator=seed)


def trained_jointly(max_norm: float | None) -> list[torch.Tensor]:
    """By eager, on the batches of all replicas."""
    model = network()
    optimizer = optimized(model.parameters())
    for step in range(STEPS):
        optimizer.zero_grad()
        x = torch.cat([batch(rank, step) for rank in range(COUNT)])
        model(x).square().mean().backward()
        if max_norm is not None:
            nn.utils.clip_grad_norm_(model.parameters(), max_norm)
        optimizer.step()
    return [parameter.detach() for parameter in model.parameters()]


def trained(
    rank: int,
    max_norm: float | None,
    place: Callable[[int], torch.Tensor] | None = None,
    **options: Any,
) -> list[torch.Tensor]:
    import torch_xla.core.xla_model as xm

    device = xm.xla_device()
    model = network().to(device)
    optimizer = optimized(model.parameters())

    @xla_dynamo.training_step(optimizer, max_grad_norm=max_norm, **options)
    def step(x: torch.Tensor) -> torch.Tensor:
        return model(x).square().mean()

    for number in range(STEPS):
        loss = step(batch(rank, number).to(device) if place is None else place(number))
        assert loss.shape == ()
    return [parameter.detach().cpu() for parameter in model.parameters()]


def replica(rank: int) -> None:
    for max_norm in (None, 0.05):
        with xla_dynamo.capture() as programs:
            found = trained(rank, max_norm)
        torch.testing.assert_close(found, trained_jointly(max_norm), rtol=1e-9, atol=1e-11)
        # Parameters and momenta are updated in their own memory.
        assert programs[-1].hlo.count("may-alias") == 8
    alone = trained(rank, None, average_gradients=False)
    assert not alone[0].isclose(trained_jointly(None)[0]).all()
    print(f"replica {rank} has trained", flush=True)


def in_threads() -> None:
    import torch_xla.core.xla_model as xm
    import torch_xla.distributed.data_parallel as dp

    def loop(model: Any, loader: Any, device: Any, context: Any) -> None:
        rank = xm.get_ordinal()
        for max_norm in (None, 0.05):
            found = trained(rank, max_norm)
            torch.testing.assert_close(found, trained_jointly(max_norm), rtol=1e-9, atol=1e-11)
        alone = trained(rank, None, average_gradients=False)
        assert not alone[0].isclose(trained_jointly(None)[0]).all()
        print(f"thread {rank} has trained\n", end="", flush=True)

    with xla_dynamo.capture() as programs:
        dp.DataParallel(nn.Linear(1, 1))(loop, [torch.ones(1)] * COUNT)
    joint = [each.hlo for each in programs if "all-reduce" in each.hlo]
    # Parameters and momenta are updated in their own memory.
    print(len(joint), "programs for all,", [text.count("may-alias") for text in joint], "aliases")


def in_threads_apart() -> None:
    """The second replica's loss is another function."""
    import torch_xla.core.xla_model as xm
    import torch_xla.distributed.data_parallel as dp

    def loop(model: Any, loader: Any, device: Any, context: Any) -> None:
        model = network().to(device)
        optimizer, sign = optimized(model.parameters()), 1 - 2 * xm.get_ordinal()
        step = xla_dynamo.training_step(optimizer)(lambda x: sign * model(x).mean())
        step(batch(0, 0).to(device))

    try:
        dp.DataParallel(nn.Linear(1, 1))(loop, [torch.ones(1)] * COUNT)
    except ReplicaError as error:
        print(error)


def partitioned() -> None:
    import torch_xla.distributed.spmd as xs
    import torch_xla.runtime as xr

    xr.use_spmd()
    mesh = xs.get_1d_mesh("data")

    def place(step: int) -> torch.Tensor:
        whole = torch.cat([batch(rank, step) for rank in range(COUNT)])
        return xs.mark_sharding(whole.to("xla"), mesh, ("data", None)).global_tensor

    with xla_dynamo.capture() as programs:
        found = trained(0, 0.05, place)
    torch.testing.assert_close(found, trained_jointly(0.05), rtol=1e-9, atol=1e-11)
    # The first one makes the optimizer's state.
    program = programs[-1].hlo
    print(len(programs), "programs,", "all-reduce(" in program, "f64[8,6]" in program)


def main(kind: str) -> None:
    importlib.import_module("xla_dynamo.compat")
    import torch_xla.distributed.xla_multiprocessing as xmp

    if kind == "threads":
        in_threads()
    elif kind == "apart":
        in_threads_apart()
    elif kind == "spmd":
        partitioned()
    else:
        xmp.spawn(replica, (), COUNT, start_method="fork")


def printed_by(kind: str, devices: int) -> str:
    program = "tests.backend.capture.test_step_gradients"
    return run("-m", program, kind, cwd=ROOT, CPU_NUM_DEVICES=str(devices))


def test_processes_train_as_one_on_all_their_batches() -> None:
    printed = printed_by("processes", 1)
    assert all(f"replica {rank} has trained" in printed for rank in range(COUNT))


def test_threads_train_as_one_by_one_program_for_all() -> None:
    printed = printed_by("threads", COUNT)
    assert all(f"thread {rank} has trained" in printed for rank in range(COUNT))
    assert "2 programs for all, [8, 8] aliases" in printed


def test_threads_whose_steps_differ_are_told_so() -> None:
    printed = printed_by("apart", COUNT)
    told = "replicas are at different places: replica 0 in a compiled graph with 1 collective "
    assert told in printed
    assert "have to be equal" in printed


def test_a_partitioned_step_is_one_program_of_parts() -> None:
    printed = printed_by("spmd", COUNT)
    assert "2 programs, True False" in printed  # it reduces gradients, and holds no whole batch


if __name__ == "__main__":
    main(*sys.argv[1:])
