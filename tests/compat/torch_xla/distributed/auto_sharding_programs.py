"""Programs without a mark, after `xr.use_spmd(auto=True)`; `python ... NAME` calls one."""

from __future__ import annotations

import copy
import os
import re
import sys
from typing import Any

import torch
from torch import nn

from xla_dynamo.compat.execution import program_cache

import torch_xla.core.xla_model as xm  # isort: skip
import torch_xla.debug.metrics as met  # isort: skip
import torch_xla.distributed.spmd as xs  # isort: skip
from torch_xla import _XLAC  # isort: skip
from torch_xla import runtime as xr  # isort: skip

COLLECTIVE = re.compile(r"= (?:\(.*?\)|\S+) (all-reduce|all-gather|reduce-scatter|all-to-all)\(")


def model() -> nn.Module:
    layers = [nn.Linear(256, 512), nn.BatchNorm1d(512), nn.ReLU(), nn.Linear(512, 10)]
    return nn.Sequential(*layers).double()


def trains() -> None:
    """As one device does; a batch is computed with by parts, and parameters are gathered."""
    xr.use_spmd(auto=True)
    torch.manual_seed(0)
    here = model()
    there = copy.deepcopy(here).to("xla")
    optimizers = [torch.optim.Adam(each.parameters()) for each in (here, there)]
    programs: list[Any] = []
    program_cache.on_compile.append(lambda trace, program, made: programs.append(made))
    for _ in range(4):
        x, labels = torch.randn(64, 256).double(), torch.randint(0, 10, (64,))
        for each, optimizer, device in zip((here, there), optimizers, ("cpu", "xla"), strict=True):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(each(x.to(device)), labels.to(device))
            loss.backward()
            optimizer.step()
        xm.mark_step()
    for name, value in here.state_dict().items():
        torch.testing.assert_close(there.state_dict()[name].cpu(), value, rtol=1e-9, atol=1e-12)
    print(len(programs), "programs,", met.counter_value("CompileWithAutoSharding"), "of them split")
    step = programs[-1].optimized_hlo()
    print("whole batches:", len(re.findall(r"f64\[64,", step)))
    print("collectives:", sorted(set(COLLECTIVE.findall(step))))
    [moments] = [optimizers[1].state[p]["exp_avg"] for p in there.parameters() if p.dim() == 2][:1]
    print([_XLAC._get_xla_sharding_spec(t) for t in (*there.parameters(), moments)])


def other_ways() -> None:
    """A mesh, a mark that differs, a batch that does not divide, and distribute_module."""
    before = _XLAC._get_graph_hash([torch.ones(2, 2, device="xla") + 0])
    layer: Any = xs.xla_distribute_module(nn.Linear(256, 512), None, xs.auto_policy)
    assert _XLAC._get_graph_hash([torch.ones(2, 2, device="xla") + 0]) != before
    batch = torch.randn(8, 256)
    given = batch.to("xla")
    rows = layer(given)
    torch.testing.assert_close(rows.cpu(), nn.functional.linear(batch, *cpu(layer)))
    print([_XLAC._get_xla_sharding_spec(t) for t in (given, layer.weight, rows)])
    mesh = xs.get_1d_mesh("all")
    xs.mark_sharding(given, mesh, (None, "all"))
    odd = torch.randn(6, 256)
    torch.testing.assert_close(layer(odd.to("xla")).cpu(), nn.functional.linear(odd, *cpu(layer)))
    os.environ["XLA_AUTO_SPMD_MESH"] = "2,2"
    other = nn.Linear(256, 512).to("xla")
    given = batch.to("xla")
    torch.testing.assert_close(other(given).cpu(), nn.functional.linear(batch, *cpu(other)))
    print([_XLAC._get_xla_sharding_spec(t) for t in (given, other.weight, other(given))])
    os.environ["XLA_AUTO_SPMD_MESH"] = "3"
    try:
        batch.to("xla")
    except ValueError as error:
        print(error)


def cpu(layer: Any) -> tuple[torch.Tensor, torch.Tensor]:
    return layer.weight.detach().cpu(), layer.bias.detach().cpu()


if __name__ == "__main__":
    globals()[sys.argv[1]]()
