"""Blocks of `xs.enable_manual_sharding` to `xs.disable_manual_sharding`, over four devices."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
import torch

import xla_dynamo.compat  # noqa: F401
from xla_dynamo.errors import NotAvailable

import torch_xla.core.functions as xf  # isort: skip
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
    x = torch.rand(10, 4).double()  # above the zeros of the padding, which a maximum sees, too
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


def gradients() -> None:
    """Those of the whole tensors: of parts, of copies, through each collective, and of padding."""
    x, w = torch.randn(6, 4).double(), torch.randn(4, 8).double()
    ct = torch.randn(6, 8).double()
    ring = [[0, 1], [1, 2], [2, 3], [3, 0]]

    def data_and_model(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:  # rows are padded
        rows = enter(x, "data", None, mesh=MESH)
        columns = enter(w, None, "model", mesh=MESH)
        return leave(torch.tanh(rows @ columns), (6, 8), "data", "model", mesh=MESH)

    def contracted(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        part = enter(x, None, 0) @ enter(w, 0, None)
        return leave(torch.tanh(xf.all_reduce("sum", part, 2.0) / 2), (6, 8), None, None)

    def scattered(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        part: Any = enter(x, None, 0) @ enter(w, 0, None)
        part = xm.reduce_scatter("sum", part, 1.0, 1, 4)
        return leave(torch.tanh(xm.all_gather(part, 1)), (6, 8), None, None)

    def moved(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        columns = xm.collective_permute(enter(w, None, 0), ring)
        turned = xm.all_to_all(torch.tanh(enter(x, None, None) @ columns)[:4], 0, 1, 4)
        halves = leave(turned, (4, 8), 0, None)
        return torch.cat([halves, halves[:2]])

    def whole(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x @ w)

    def whole_moved(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        turned = whole(x, w.roll(2, 1))[:4]
        return torch.cat([turned, turned[:2]])

    def differentiated(function: Any, device: str, ends_step: bool = False) -> list[torch.Tensor]:
        given = [t.clone().to(device).requires_grad_() for t in (x, w)]
        y = function(*given)
        if ends_step:
            xm.mark_step()
        (y * ct.to(device)).sum().backward()
        return [y, *(t.grad for t in given)]

    for ours, theirs in [
        (data_and_model, whole),
        (contracted, whole),
        (scattered, whole),
        (moved, whole_moved),
    ]:
        expected = differentiated(theirs, "cpu")
        for ends_step in (False, True):
            found = differentiated(ours, "xla", ends_step)
            for a, b in zip(found, expected, strict=True):
                check(a.detach(), b.detach())


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
    with pytest.raises(NotAvailable, match=r"detach\(\) what it takes"):
        xm.all_reduce("max", enter(weight * 2, 0, None))
    with pytest.raises(NotAvailable, match=r"shape \(8, 4\) that requires a gradient is used"):
        leave(enter(x, 0, None) @ (weight + 1).T, (8, 8), 0, None)
    print("refused")


if __name__ == "__main__":
    globals()[sys.argv[1]]()
    print("right")
