"""A TPU host with four devices, for which CPUs stand in: what libtpu would be told is printed.

The processes' clients number their devices against the order of the processes, as libtpu may.

python -m tests.compat.torch_xla.distributed.tpu_program spawn | differs | v3
torchrun --nproc-per-node=4 tests/compat/torch_xla/distributed/tpu_program.py
"""

from __future__ import annotations

import functools
import json
import os
import sys
from typing import Any

import torch

import xla_dynamo.compat  # noqa: F401
from xla_dynamo.backend import jax_adapter
from xla_dynamo.backend.runtime import job, pjrt, tpu_chips

import torch_xla  # isort: skip
import torch_xla.core.xla_model as xm  # isort: skip
import torch_xla.distributed.xla_multiprocessing as xmp  # isort: skip
import torch_xla.runtime as xr  # isort: skip
from torch_xla._internal import tpu  # isort: skip

DEVICES = 4


@functools.cache
def client(platform: str) -> Any:
    """What libtpu's client is, in this process."""
    told = {name: value for name, value in os.environ.items() if "TPU" in name}
    print(f"{json.dumps(told)}\n", end="", flush=True)  # at once, beside other processes
    joint: Any = job.current()
    count, each = tpu_chips.here().count, tpu_chips.here().devices_of_each
    node = count - 1 - int(told["CLOUD_TPU_TASK_ID"])
    return jax_adapter.processes_client(joint._service, node, count, each, "127.0.0.1")


def train(rank: int, seed: int) -> None:
    """One step of a linear model on this rank's row: the average gradient is known."""
    assert (rank, DEVICES) == (xr.global_ordinal(), xr.world_size())
    assert rank == xr.local_ordinal() == xm.get_local_ordinal()
    weight = torch.zeros(2, device=xm.xla_device(), requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=1.0)
    (weight * torch.tensor([1.0, float(rank)]).to(weight.device)).sum().backward()
    xm.optimizer_step(optimizer)
    xm.mark_step()
    assert weight.tolist() == [-1.0, -1.5]
    rows = xm.all_gather(torch.full((1,), rank).to(weight.device))
    assert rows.tolist() == xm.mesh_reduce("ranks", rank, list) == [0, 1, 2, 3]
    other = None
    if seed and rank == 1:  # keeps a value of the step that the others drop
        other = weight.detach() * 2
    total = 0 + xm.all_reduce("sum", weight.detach() * 2)  # type: ignore[operator]
    xm.mark_step()
    print(f"rank {rank} ended {total.tolist()} {other}", flush=True)


def main(way: str) -> None:
    os.environ["XLA_DYNAMO_PLATFORM"] = "tpu"
    os.environ |= {"TPU_SKIP_MDS_QUERY": "1", "CLOUD_TPU_TASK_ID": "0"}  # as on Kaggle,
    os.environ["TPU_PROCESS_ADDRESSES"] = "local"  # which is of one process
    chips = tpu_chips.Chips(2, "v3") if way == "v3" else tpu_chips.Chips(4, "v5e")
    tpu_chips.here = lambda: chips  # type: ignore[assignment]
    pjrt.client_of_jax = client
    assert tpu.num_available_devices() == DEVICES
    assert tpu.num_local_processes() == chips.count
    assert tpu.version() == int(chips.generation[1])
    assert (tpu.get_worker_ips(), tpu.worker_id()) == (["localhost"], 0)
    if way == "torchrun":
        torch_xla.launch(train, args=(0,))
    else:
        xmp.spawn(train, args=(int(way == "differs"),), start_method="fork")


if __name__ == "__main__":
    main(*sys.argv[1:] or ["torchrun"])
