"""Blocks of `xs.enable_manual_sharding` to `xs.disable_manual_sharding`, over four devices."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
import torch

import xla_dynamo.compat  # noqa: F401
from xla_dynamo.errors import NotAvailable

import torch_xla.core.xla_model as xm  # isort: skip
import torch_xla.distributed.spmd as xs  # isort: skip
from torch_xla import _XLAC  # isort: skip
from torch_xla import runtime as xr  # isort: skip

xr.use_spmd()
COUNT = xr.global_runtime_device_count()
MESH = xs.Mesh(np.arange(COUNT), (COUNT // 2, 2), ("data", "model"))
LINE = xs.get_1d_mesh("all")
xs.set_global_mesh(LINE)


def enter(t: torch.Tensor, *spec: Any, mesh: xs.Mesh = LINE) -> torch.Tensor:
    return xs.enable_manual_sharding(t.to("xla"), spec, mesh=mesh).global_tensor


def leave(t: Any, shape: Any, *spec: Any, mesh: xs.Mesh = LINE) -> torch.Tensor:
    return xs.disable_manual_sharding(t, spec, torch.Size(shape), mesh=mesh).global_tensor


def check(ours: torch.Tensor, theirs: Any) -> None:
    torch.testing.assert_close(ours.cpu(), theirs, rtol=1e-9, atol=1e-12)


def computes() -> None:
    """Each device with its shard: products, statistics of a shard, and numbers of Python."""
    x, w = torch.randn(8, 6).double(), torch.randn(6, 4).double()
    shard = enter(x, "data", None, mesh=MESH)
    assert shard.shape == (4, 6)
    assert _XLAC._get_xla_sharding_spec(shard) == "{manual}"
    columns = enter(w, None, "model", mesh=MESH)
    own = torch.softmax(shard @ columns * 0.5, 1) - shard.mean()
    spec = "data", "model"
    parts = [
        torch.cat([torch.softmax(rows @ part * 0.5, 1) - rows.mean() for part in w.chunk(2, 1)], 1)
        for rows in x.chunk(2)
    ]
    check(leave(own, (8, 4), *spec, mesh=MESH), torch.cat(parts))


def collectives() -> None:
    """All of them, among all devices and in groups."""
    x = torch.arange(32.0).double().reshape(8, 4)
    rows = list(x.chunk(4))
    everywhere = sum(rows)
    check(leave(xm.all_reduce("sum", enter(x, 0, None)), (2, 4), None, None), everywhere)
    check(leave(xm.all_reduce("max", enter(x, 0, None), 0.5), (2, 4), None, None), rows[3] / 2)
    pairs = xm.all_reduce("sum", enter(x, 0, None), groups=[[0, 1], [2, 3]])
    expected = [rows[0] + rows[1]] * 2 + [rows[2] + rows[3]] * 2
    check(leave(pairs, (8, 4), 0, None), torch.cat(expected))
    check(leave(xm.all_gather(enter(x, 0, None)), (8, 4), None, None), x)
    part = xm.reduce_scatter("sum", enter(x, None, None), 1.0, 0, 4)
    check(leave(part, (8, 4), 0, None), 4 * x)
    turned = xm.all_to_all(enter(x, 0, None), 1, 0, 4)
    check(leave(turned, (8, 4), None, 0), x)
    moved = xm.collective_permute(enter(x, 0, None), [[0, 1], [1, 2], [2, 3], [3, 0]])
    check(leave(moved, (8, 4), 0, None), torch.cat([rows[3], *rows[:3]]))
    given = [enter(x, 0, None), enter(2 * x, 0, None)]
    xm.all_reduce("sum", given)
    check(leave(given[0] + given[1], (2, 4), None, None), 3 * everywhere)


def crosses() -> None:
    """Shards that later programs use, or that meet what is made of others; padding; numbers."""
    x = torch.randn(10, 4).double()
    shard = enter(x, 0, None)
    assert shard.shape == (3, 4)
    total: Any = xm.all_reduce("sum", shard.sum())
    whole = leave(
        total,
        (),
    )
    check(whole, x.sum())
    again = shard * enter(whole * torch.ones(10, 4).double().to("xla"), 0, None) + total
    check(leave(again, (10, 4), 0, None), x * x.sum() + x.sum())
    shard = enter(x, 0, None)
    shard += 1
    number = shard.max()
    xm.mark_step()
    check(leave(shard * 2, (10, 4), 0, None), (x + 1) * 2)
    for _ in range(2):
        shard *= 2
        xm.mark_step()
    check(leave(shard, (10, 4), 0, None), (x + 1) * 4)
    most = torch.stack([rows.max() for rows in (x + 1).split(3)])
    check(leave(number.reshape(1), (4,), 0), most)
    marked = xs._mark_manual_sharding(x.to("xla") + 1)
    assert marked.sharding_type == xs.ShardingType.MANUAL
    check(leave(marked.global_tensor, (10, 4), None, None), x + 1)


def refuses() -> None:
    x = torch.randn(8, 4)
    shard = enter(x, 0, None)
    with pytest.raises(NotAvailable, match="disable_manual_sharding"):
        shard.cpu()
    with pytest.raises(RuntimeError, match="no part of a tensor of shape"):
        leave(shard, (4, 4), 0, None)
    with pytest.raises(RuntimeError, match="only what is computed"):
        leave(x.to("xla"), (8, 4), 0, None)
    with pytest.raises(Exception, match="different meshes"):
        leave(shard + enter(x, "data", None, mesh=MESH)[:2], (8, 4), 0, None).cpu()
    weight = torch.ones(8, 4, device="xla", requires_grad=True)
    with pytest.raises(NotAvailable, match=r"torch\.autograd\.Function"):
        leave(enter(weight * 2, 0, None) * 2, (8, 4), 0, None).sum().backward()
    print("refused")


if __name__ == "__main__":
    globals()[sys.argv[1]]()
    print("right")
