"""SPMD programs over several devices, each a function; `python spmd_programs.py NAME` calls one.

In a process of its own, as SPMD mode does not end.
"""

from __future__ import annotations

import copy
import functools
import random
import re
import runpy
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import xla_dynamo
import xla_dynamo.compat
from xla_dynamo.backend.runtime import partitions
from xla_dynamo.backend.runtime.shardings import Grid, Sharding
from xla_dynamo.compat.execution import compiled_graphs, spmd
from xla_dynamo.errors import NotAvailable

import torch_xla  # isort: skip
import torch_xla.core.xla_model as xm  # isort: skip
import torch_xla.distributed.parallel_loader as pl  # isort: skip
import torch_xla.distributed.spmd as xs  # isort: skip
from torch_xla import _XLAC  # isort: skip
from torch_xla import runtime as xr  # isort: skip
from torch_xla.distributed.fsdp import checkpoint_module  # isort: skip
from torch_xla.distributed.fsdp.wrap import transformer_auto_wrap_policy  # isort: skip
from torch_xla.experimental.distributed_checkpoint import CheckpointManager  # isort: skip
from torch_xla.experimental.spmd_fully_sharded_data_parallel import (  # isort: skip
    SpmdFullyShardedDataParallel,
)

COLLECTIVE = re.compile(r"= (?:\(.*?\)|\S+) (all-reduce|all-gather|reduce-scatter|all-to-all)\(")


def grid() -> xs.Mesh:
    """Half of the devices along "data", two along "model"."""
    count = xr.global_runtime_device_count()
    return xs.Mesh(np.arange(count), (count // 2, 2), ("data", "model"))


class Block(nn.Module):
    """A part of a GPT: attention, dropout and a wide layer."""

    def __init__(self, width: int = 16, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.attend, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.norm, self.widen = nn.LayerNorm(width), nn.Linear(width, 4 * width)
        self.narrow = nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = (
            self.attend(self.norm(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        )
        mixed = nn.functional.scaled_dot_product_attention(*parts.unbind(0), is_causal=True)
        x = x + self.project(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.narrow(nn.functional.gelu(self.widen(self.norm(x))))


class Model(nn.Module):
    """An embedding, two blocks, and a head: next words of 11."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 16)
        self.blocks = nn.Sequential(Block(), Block())
        self.head = nn.Linear(16, 11)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(self.embed(words)))


# How parameters are split, by the end of their names.
SPECS = {
    "attend.weight": ("model", None),
    "project.weight": (None, "model"),
    "widen.weight": ("model", None),
    "widen.bias": ("model",),
    "narrow.weight": (None, "model"),
    "embed.weight": ("data", None),  # 11 rows do not divide
}


def batch(step: int) -> torch.Tensor:
    return torch.randint(11, (8, 7), generator=torch.Generator().manual_seed(step))


def train(
    device: str,
    mark: Callable[[nn.Module, torch.Tensor], None],
    steps: int = 5,
    wrap: Callable[[nn.Module], nn.Module] = lambda model: model,
) -> Any:
    """Losses of a training, and the model."""
    torch.manual_seed(0)
    model = wrap(Model().double()).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = []
    for step in range(steps):
        words = batch(step).to(device)
        mark(model if step == 0 else nn.Identity(), words)
        optimizer.zero_grad()
        logits = model(words)[:, :-1].flatten(0, 1)
        loss = nn.functional.cross_entropy(logits, words[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        losses.append(loss.detach())
        xm.mark_step()
    return [loss.item() for loss in losses], model, optimizer


def trains_as_on_one_device() -> None:
    expected, theirs, _ = train("cpu", lambda model, words: None)
    xr.use_spmd()
    mesh = grid()

    def mark(model: nn.Module, words: torch.Tensor) -> None:
        xs.mark_sharding(words, mesh, ("data", None))
        for name, parameter in model.named_parameters():
            for end, spec in SPECS.items():
                if name.endswith(end):
                    xs.mark_sharding(parameter, mesh, spec)

    with xla_dynamo.capture() as stages:
        losses, model, optimizer = train("xla", mark)
    np.testing.assert_allclose(losses, expected, rtol=1e-9)
    for ours, cpu in zip(model.parameters(), theirs.parameters(), strict=True):
        for shard in xs.XLAShardedTensor(ours.detach()).local_shards:
            index = tuple(shard.indices) if isinstance(shard.indices, list) else ...
            part = cpu.detach()[index]
            torch.testing.assert_close(shard.unpadded_data, part, rtol=1e-7, atol=1e-9)
    print(len(stages), "programs for", len(losses), "steps")
    last = stages[-1].hlo
    print("whole parameters:", re.findall(r"f64\[(?:48,16|64,16|16,64)\]", last))
    print("arguments that results replace:", len(re.findall(r"may-alias", last.splitlines()[0])))
    print("collectives:", sorted(set(COLLECTIVE.findall(last))))
    weight = model.blocks[0].widen.weight
    print(weight.shape, _XLAC._get_xla_sharding_spec(weight))
    moment = optimizer.state[weight]["exp_avg"]
    print(_XLAC._get_xla_sharding_spec(moment) == _XLAC._get_xla_sharding_spec(weight))


def fsdp_trains_as_on_one_device() -> None:
    expected, theirs, _ = train("cpu", lambda model, words: None)
    xr.use_spmd()
    count = xr.global_runtime_device_count()
    mesh = xs.Mesh(np.arange(count), (count, 1), ("fsdp", "model"))
    policy = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={Block})

    def wrap(model: nn.Module) -> nn.Module:
        return SpmdFullyShardedDataParallel(
            model,
            mesh=mesh,
            auto_wrap_policy=policy,
            auto_wrapper_callable=lambda block, **kwargs: SpmdFullyShardedDataParallel(
                checkpoint_module(block), **kwargs
            ),
        )

    def mark(model: nn.Module, words: torch.Tensor) -> None:
        xs.mark_sharding(words, mesh, ("fsdp", None))

    with xla_dynamo.capture() as stages:
        losses, model, _ = train("xla", mark, wrap=wrap)
    np.testing.assert_allclose(losses, expected, rtol=1e-9)
    state = {name: value.cpu() for name, value in model.state_dict().items()}
    for name, cpu in theirs.state_dict().items():
        torch.testing.assert_close(state[name], cpu, rtol=1e-7, atol=1e-9)
    whole = [p for p in model.parameters() if "devices" not in _XLAC._get_xla_sharding_spec(p)]
    print(len(stages), "programs;", len(whole), "parameters are whole")
    print("collectives:", sorted(set(COLLECTIVE.findall(stages[-1].hlo))))


def marks() -> None:
    before = torch.arange(4.0).to("xla") * 2  # of one device: replicated from now on
    xm.mark_step()
    xr.use_spmd()
    mesh, count = grid(), xr.global_runtime_device_count()
    assert (torch_xla.device_count(), xr.is_spmd()) == (1, True)
    assert xs.get_1d_mesh("x").shape() == {"x": count}
    x = torch.arange(30.0).reshape(5, 6)
    marked = xs.mark_sharding(x.to("xla"), mesh, (("data", "model"), None))
    shards = marked.local_shards
    assert [tuple(shard.data.shape) for shard in shards] == [(2, 6)] * count
    assert [shard.shard_device for shard in shards] == [f"CPU:{i}" for i in range(count)]
    assert shards[2].unpadded_data.tolist() == x[4:5].tolist()
    assert shards[3].unpadded_data.shape == (0, 6)
    for shard in shards:
        shard.data *= -1
    marked.load_local_shards_(shards)
    assert torch.equal(marked.cpu(), -x)
    rows = torch.arange(5.0)[:, None].to("xla")
    assert torch.equal((marked * rows).cpu(), -x * torch.arange(5.0)[:, None])
    assert torch.equal((before + 1).cpu(), torch.arange(4.0) * 2 + 1)

    try:
        xs.mark_sharding(marked, mesh, ("data", None))
    except RuntimeError as error:
        print(error)
    cleared = xs.clear_sharding(marked)
    xs.mark_sharding(cleared, mesh, (None, "model"))
    print(_XLAC._get_xla_sharding_spec(cleared), torch.equal(cleared.cpu(), -x))
    try:
        xs.Mesh([0, 1], (2,))
    except AssertionError as error:
        print(error)

    # A pending result, a view, a tensor that is written to, and a gradient.
    weight = torch.ones(4, 8, device="xla", requires_grad=True)
    hidden = xs.mark_sharding_with_gradients(weight * 2, mesh, ("data", "model"))
    hidden.sum().backward()
    assert weight.grad is not None
    plain = torch.zeros(4, 4, device="xla")
    xs.mark_sharding(plain, mesh, ("data", None))
    view = plain[1]
    plain.add_(3)
    view.mul_(2)
    xm.mark_step()
    print([_XLAC._get_xla_sharding_spec(t) for t in (hidden, weight.grad, plain)])
    assert plain.sum(1).tolist() == [12, 24, 12, 12]
    plain.copy_(torch.eye(4))
    assert torch.equal(plain.cpu(), torch.eye(4))
    for spec in (("data", None), (None, "model")):
        given = xs.mark_sharding(torch.ones(4, 4).to("xla"), mesh, spec).global_tensor
        assert (given * 7).sum().item() == 112
    print(xla_dynamo.compiles()[-1].reason)
    torch.manual_seed(3)
    torch_xla.manual_seed(3)
    drawn = xs.mark_sharding(torch.rand(8, 4, device="xla"), mesh, ("data", "model")).cpu()
    torch_xla.manual_seed(3)
    assert torch.equal(torch.rand(8, 4, device="xla").cpu(), drawn)


def in_processes() -> None:
    """Each process of torchrun has its devices; in the end one does what the other does not."""
    xr.use_spmd()
    mesh, rank = grid(), xr.process_index()
    assert (xr.process_count(), xr.world_size()) == (2, 1)
    assert xr.addressable_runtime_device_count() == 2
    torch.manual_seed(0)
    weight = torch.randn(4, 6, dtype=torch.float64)
    x = torch.randn(8, 4, dtype=torch.float64)
    ours = weight.to("xla").requires_grad_()
    xs.mark_sharding(ours, mesh, ("data", "model"))
    optimizer = torch.optim.SGD([ours], lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        rows = xs.mark_sharding(x.to("xla"), mesh, ("data", None)).global_tensor
        loss = (rows @ ours).square().mean()
        loss.backward()
        optimizer.step()
        xm.mark_step()
    theirs = weight.requires_grad_()
    for _ in range(3):
        expected = (x @ theirs).square().mean()
        (gradient,) = torch.autograd.grad(expected, theirs)
        theirs = (theirs - 0.1 * gradient).detach().requires_grad_()
    torch.testing.assert_close(loss.cpu(), expected, rtol=1e-9, atol=0)
    shards = xs.XLAShardedTensor(ours.detach()).local_shards
    assert [shard.shard_device for shard in shards] == [f"CPU:{2 * rank + i}" for i in range(2)]
    for shard in shards:
        assert isinstance(shard.indices, list)
        torch.testing.assert_close(shard.data, theirs[tuple(shard.indices)], rtol=1e-9, atol=0)
    try:
        ours.cpu()
    except NotAvailable as error:
        print(error)
    whole = xs.annotate_custom_sharding(ours.detach().clone(), mesh, (None, None))
    torch.testing.assert_close(whole.global_tensor.cpu(), theirs.detach(), rtol=1e-9, atol=0)
    _minibatches(mesh, x, x.chunk(2)[rank])
    compiled = torch.compile(torch.sin, backend="openxla")
    torch.testing.assert_close(compiled(loss).cpu(), expected.sin(), rtol=1e-9, atol=0)
    print("right so far", flush=True)
    different = loss + 1 if rank else loss * 2
    xm.mark_step()
    print(different)


def _minibatches(mesh: xs.Mesh, whole: torch.Tensor, own: torch.Tensor) -> None:
    """Each process loads its own rows of a batch."""
    spec = xs.ShardingSpec(mesh, ("data", None), minibatch=True)
    device = torch_xla.device()
    (loaded,) = pl.MpDeviceLoader([own], device, input_sharding=spec)
    (sent,) = xm.send_cpu_data_to_device([own], device, input_sharding=spec)
    for x in (loaded, sent):
        assert x.shape == whole.shape
        everywhere = xs.annotate_custom_sharding(x * 2, mesh, (None, None)).global_tensor
        assert torch.equal(everywhere.cpu(), whole * 2)
    with pytest.raises(RuntimeError, match="has rows 0 to 8 of 8 on its devices"):
        xs.ShardingSpec(mesh, (None, "data"), minibatch=True).joined(own)
    with pytest.raises(RuntimeError, match=r"batch of shape \(3, 4\)"):
        xs.ShardingSpec(mesh, (("data", "model"), None), minibatch=True).joined(own[:3])


def _model_and_optimizer() -> dict[str, Any]:
    """A model that is split over all devices, after a step."""
    count = xr.global_runtime_device_count()
    mesh = xs.Mesh(np.arange(count), (2, count // 2), ("data", "model"))
    torch.manual_seed(count)
    model = nn.Sequential(nn.Linear(6, 10), nn.Tanh(), nn.Linear(10, 3)).to("xla")
    xs.mark_sharding(model[0].weight, mesh, (("data", "model"), None))  # 10 rows
    xs.mark_sharding(model[2].weight, mesh, (None, "data"))
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.randn(4, 6).to("xla")).square().sum().backward()
    optimizer.step()
    xm.mark_step()
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "seen": [count]}


def _nothing_whole() -> None:
    """From here on, nobody brings together the parts of a tensor that is split."""
    original = partitions.whole

    def whole(array: Any, shape: Any) -> Any:
        sharding = partitions.sharding_of(array)
        assert sharding is not None
        assert sharding.is_replicated, f"{shape} is gathered"
        return original(array, shape)

    partitions.whole = whole


def saves(folder: str) -> None:
    xr.use_spmd()
    state = _model_and_optimizer()
    torch.save(xm._maybe_convert_to_cpu(state), f"{folder}/whole.pt")
    _nothing_whole()
    manager = CheckpointManager(f"{folder}/steps", 2, max_to_keep=2, chkpt_on_preemption=False)
    print([manager.save(step, state) for step in range(4)])
    assert manager.save_async(4, state)
    manager.join()
    print(manager.all_steps())


def loads(folder: str) -> None:
    xr.use_spmd()
    state = _model_and_optimizer()
    specs = _specs(state)
    expected = torch.load(f"{folder}/whole.pt")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partitions, "whole", partitions.whole)
        _nothing_whole()
        manager = CheckpointManager(f"{folder}/steps", 2, chkpt_on_preemption=False)
        manager.restore(4, state)
    assert state["seen"] == expected["seen"]
    for ours, theirs in zip(_tensors(state), _tensors(expected), strict=True):
        assert torch.equal(ours.cpu(), theirs)
    assert specs == _specs(state)
    # A state_dict of the CPU, too, leaves a parameter as it is marked.
    weight = state["model"]["0.weight"]
    weight.copy_(torch.zeros(10, 6))
    xm.mark_step()
    assert weight.sum().item() == 0
    print(len(specs), "tensors;", specs[0])


def _specs(state: Any) -> list[str]:
    specs = [_XLAC._get_xla_sharding_spec(t) for t in _tensors(state)]
    return [spec.replace("{replicated}", "") for spec in specs]  # what is not used yet has none


def _tensors(state: Any) -> list[torch.Tensor]:
    return [t for t in torch.utils._pytree.tree_leaves(state) if isinstance(t, torch.Tensor)]


def loads_and_compiles() -> None:
    xr.use_spmd()
    mesh = grid()
    batches = [{"x": torch.full((4, 3), float(i)), "y": torch.full((4,), i)} for i in range(3)]
    sharding = {"x": xs.ShardingSpec(mesh, ("data", None)), "y": None}
    found = []
    for each in pl.MpDeviceLoader(batches, torch_xla.device(), input_sharding=sharding):
        found.append((_XLAC._get_xla_sharding_spec(each["x"]), each["x"].sum().item()))
    print(found)

    layer = nn.Linear(3, 8).to("xla")
    xs.mark_sharding(layer.weight, mesh, ("model", None))
    compiled = torch.compile(layer, backend="openxla")
    x = torch.randn(4, 3)
    for spec in (("data", None), (None, None)):
        given = xs.mark_sharding(x.to("xla"), mesh, spec).global_tensor
        torch.testing.assert_close(compiled(given).cpu(), layer.cpu()(x))
        layer.to("xla")

    def activation(x: torch.Tensor) -> torch.Tensor:
        return xs.mark_sharding_with_gradients(x.sin(), mesh, ("data", None)).cos()

    given = x.to("xla").requires_grad_()
    torch.compile(activation, backend="openxla")(given).sum().backward()
    expected = x.clone().requires_grad_()
    expected.sin().cos().sum().backward()
    assert given.grad is not None
    torch.testing.assert_close(given.grad.cpu(), expected.grad)
    print(torch.nonzero(torch.eye(3, device="xla")).cpu().tolist())  # on the CPU, and back
    _update_in_place(mesh)


def _update_in_place(mesh: xs.Mesh) -> None:
    """A compiled step of an optimizer: parameters and state stay where they are, in parts."""
    theirs = nn.Linear(3, 8)
    ours = copy.deepcopy(theirs).to("xla")
    xs.mark_sharding(ours.weight, mesh, ("model", None))
    launched: list[Any] = []
    compiled_graphs.on_launch.append(launched.append)
    held = ours.weight.detach().clone()
    before = held.cpu()
    for layer, backend in ((theirs, "eager"), (ours, "xla")):
        optimizer = torch.optim.AdamW(layer.parameters(), lr=0.1)
        step = torch.compile(optimizer.step, backend=backend)
        for _ in range(3):
            optimizer.zero_grad()
            layer(torch.ones(4, 3, device=layer.weight.device)).square().mean().backward()
            xm.mark_step()
            step()
    torch.testing.assert_close(ours.weight.cpu(), theirs.weight.detach())
    assert torch.equal(held.cpu(), before)
    print([run.aliases for run in launched], _XLAC._get_xla_sharding_spec(ours.weight))


def fuzz(graphs: str) -> None:
    """Random programs, whose inputs are split at random, against eager."""
    xr.use_spmd()
    drawn = random.Random(0)
    mesh = Grid((2, 2), ("a", "b"), (0, 1, 2, 3))

    def at_random(value: Any) -> Sharding:
        split: list[tuple[int, ...]] = [()] * len(value.meta.shape)
        for axis in drawn.sample((0, 1), 2):
            if split and drawn.random() < 0.7:
                dim = drawn.randrange(len(split))
                split[dim] = (*split[dim], axis)
        return Sharding(mesh, tuple(split))

    spmd.mark_of = at_random
    sys.argv = ["fuzz", "--graphs", graphs, "--seed", "3", "--door", "lazy"]
    runpy.run_module("tests.fuzz", run_name="__main__")


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
