"""What replicas do in the tests, in threads or processes alike: each checks its own results.

python -m tests.compat.torch_xla.distributed.replica_programs collectives processes 4
"""

from __future__ import annotations

import copy
import functools
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def collectives(rank: int, count: int) -> None:
    """Every collective of xm and its functions, against the values of all replicas."""
    import torch_xla.core.functions as xf
    import torch_xla.core.xla_model as xm
    import torch_xla.runtime as xr

    assert (xr.world_size(), xr.global_ordinal(), xm.is_master_ordinal()) == (
        count,
        rank,
        rank == 0,
    )
    device = xm.xla_device()
    rows = [torch.arange(2.0 * count).reshape(count, 2) * (r + 1) + r for r in range(count)]
    x = rows[rank].to(device)
    total = torch.stack(rows).sum(0)
    pairs = [[r, r + count // 2] for r in range(count // 2)]
    halves = [rows[rank], rows[(rank + count // 2) % count]]
    checks: list[tuple[Any, Tensor]] = [
        (xm.all_reduce("sum", x, scale=0.5), total * 0.5),
        (xm.all_reduce("min", x), torch.stack(rows).amin(0)),
        (xm.all_reduce("sum", x, groups=pairs), halves[0] + halves[1]),
        (xm.all_gather(x, 1), torch.cat(rows, 1)),
        (xm.all_gather(torch.full((1,), rank, device=device)), torch.arange(count)),
        (xm.all_gather(x.sum()), torch.stack([row.sum() for row in rows])),
        (xm.reduce_scatter("sum", x, 2.0, 0, count), total[rank : rank + 1] * 2),
        (xm.all_to_all(x, 0, 1, count), torch.cat([r[rank : rank + 1] for r in rows], 1)),
        (
            xm.collective_permute(x, [[r, (r + 1) % count] for r in range(count)]),
            rows[(rank - 1) % count],
        ),
    ]
    listed = [x.clone(), (x * 2).to(torch.int64)]
    xm.all_reduce("sum", listed, scale=1.0)
    checks += [(listed[0], total), (listed[1], total * 2)]
    sent = [x.clone()]
    xm.collective_broadcast(sent, root_ordinal=count - 1)
    checks.append((sent[0], rows[-1]))
    leaf = x.clone().requires_grad_()
    (xf.all_reduce("sum", leaf, 0.5) * x).sum().backward()
    checks.append((leaf.grad, 0.5 * rows[rank]))
    leaf = x.clone().requires_grad_()
    weights = torch.arange(2.0 * count * count, device=device).reshape(count * count, 2)
    (xf.all_gather(leaf) * weights).sum().backward()
    checks.append((leaf.grad, weights.cpu()[rank * count : (rank + 1) * count]))
    for number, (actual, expected) in enumerate(checks):
        torch.testing.assert_close(
            actual.cpu(), expected, check_dtype=False, msg=lambda m, i=number: f"{i}: {m}"
        )
    assert xm.mesh_reduce("sum", rank + 1, sum) == count * (count + 1) // 2
    assert xm.mesh_reduce("max", x.sum(), max).item() == max(r.sum() for r in rows)
    assert xm.rendezvous("here", str(rank).encode()) == [str(r).encode() for r in range(count)]
    assert xm.do_on_ordinals(lambda: "ran", ordinals=(1,)) == ("ran" if rank == 1 else None)
    total: Any = xm.all_reduce("sum", x)  # waits, until somebody sends or receives
    if rank == 0:
        assert xm.send(total, 7) is total
    elif rank == 1:
        got = xm.recv(torch.empty_like(x), 7)
        torch.testing.assert_close(got.cpu(), torch.stack(rows).sum(0))


class Convnet(nn.Module):
    """Convolution, batch norm over all replicas, classification."""

    def __init__(self, norm: Callable[[int], nn.Module]) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, bias=False)
        self.norm = norm(4)
        self.head = nn.Linear(4 * 16, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.relu(self.norm(self.conv(x))).flatten(1))


class Block(nn.Module):
    """A GPT block on vectors, with a head."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.qkv = nn.Linear(8, 24)
        self.mlp = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))
        self.head = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = x.reshape(len(x), -1)[:, :32].reshape(len(x), 4, 8)
        q, k, v = self.qkv(self.norm(x)).unsqueeze(1).chunk(3, -1)
        x = x + F.scaled_dot_product_attention(q, k, v, is_causal=True).squeeze(1)
        return self.head(x + self.mlp(x)).mean(1)


_one_at_a_time = threading.Lock()


def training(rank: int, count: int) -> None:
    """Steps of replicas on parts of a batch are those of one model on all of it, to 1e-9."""
    import torch_xla.core.functions as xf
    import torch_xla.core.xla_model as xm

    with _one_at_a_time:  # threads share the generator of the CPU
        torch.manual_seed(1)
        kinds = [(Convnet(nn.BatchNorm2d), Convnet(xf.SyncBatchNorm)), (Block(), Block())]
        data = torch.randn(4, 4 * count, 1, 6, 6).double()
        targets = torch.randint(5, (4, 4 * count))
    device = xm.xla_device()
    for joined, replica in kinds:
        joined.double()
        replica.double().load_state_dict(joined.state_dict())
        start = copy.deepcopy(replica.state_dict())
        replica.to(device)
        # Not Adam, which makes steps of gradients that are rounding errors, as those of k's bias.
        optimizers = [
            torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9) for model in (joined, replica)
        ]
        for step in range(4):
            optimizers[0].zero_grad()
            F.cross_entropy(joined(data[step]), targets[step]).backward()
            optimizers[0].step()
            x = data[step].chunk(count)[rank].to(device)
            y = targets[step].chunk(count)[rank].to(device)
            optimizers[1].zero_grad()
            loss = F.cross_entropy(replica(x), y)
            loss.backward()
            xm.optimizer_step(optimizers[1])
            kept = loss if rank == 0 else None  # only rank 0 prints: others drop it earlier
            del loss
            xm.mark_step()
            assert kept is None or kept.item() > 0
        assert any(
            (start[name] != value.cpu()).any() for name, value in replica.state_dict().items()
        )
        for name, expected in joined.state_dict().items():
            actual = replica.state_dict()[name].cpu()
            torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-11, msg=name)


def sharded(rank: int, count: int) -> None:
    """Replicas that keep parts of parameters, or of the optimizer's state, train like one model."""
    import torch_xla.core.xla_model as xm
    from torch_xla.distributed import fsdp
    from torch_xla.distributed.fsdp.wrap import transformer_auto_wrap_policy
    from torch_xla.distributed.zero_redundancy_optimizer import ZeroRedundancyOptimizer

    with _one_at_a_time:
        torch.manual_seed(1)
        joined = nn.Sequential(Block(), nn.Tanh(), nn.Linear(5, 36), nn.ReLU(), Block()).double()
        data = torch.randn(4, 4 * count, 36).double()
        targets = torch.randint(5, (4, 4 * count))
    device = xm.xla_device()
    policy = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={Block})
    whole = [copy.deepcopy(joined) for _ in range(2)]
    split: Any = fsdp.XlaFullyShardedDataParallel(
        whole[0], auto_wrap_policy=policy, auto_wrapper_callable=_checkpointed
    )
    replicated = whole[1].to(device)
    options = {"lr": 0.1, "momentum": 0.9}
    expected = torch.optim.SGD(joined.parameters(), **options)
    optimizers = [
        torch.optim.SGD(split.parameters(), **options),
        ZeroRedundancyOptimizer(replicated.parameters(), torch.optim.SGD, max_norm=0.5, **options),
    ]
    numels = sum(p.numel() for p in split.parameters()), sum(p.numel() for p in joined.parameters())
    assert numels[0] < numels[1] / count * 1.3
    for step in range(4):
        expected.zero_grad()
        F.cross_entropy(joined(data[step]), targets[step]).backward()
        norm = nn.utils.clip_grad_norm_(joined.parameters(), 0.5)
        expected.step()
        x = data[step].chunk(count)[rank].to(device)
        y = targets[step].chunk(count)[rank].to(device)
        norms = []
        for model, optimizer in zip((split, replicated), optimizers, strict=True):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            if model is split:
                norms.append(split.clip_grad_norm_(0.5))
            optimizer.step()
        norms.append(optimizers[1].grad_norm)  # type: ignore[attr-defined]
        xm.mark_step()
        for each in norms:
            torch.testing.assert_close(each.cpu(), norm, rtol=1e-9, atol=0)
    parts = {name: value.cpu() for name, value in split.state_dict().items()}
    gathered = xm.mesh_reduce("parts", parts, list)
    metadata = split.get_shard_metadata()
    found = fsdp.consolidate_sharded_state_dicts(gathered, metadata)
    for name, value in joined.state_dict().items():
        torch.testing.assert_close(found[name], value, rtol=1e-9, atol=1e-11, msg=name)
        own = replicated.state_dict()[name].cpu()
        torch.testing.assert_close(own, value, rtol=1e-9, atol=1e-11, msg=name)
    state = optimizers[1].state_dict()
    optimizers[1].load_state_dict(state)
    momentum = optimizers[1].state_dict()["base_state"][0]["momentum_buffer"]
    assert momentum.numel() < next(joined.parameters()).numel()
    assert torch.equal(momentum.cpu(), state["base_state"][0]["momentum_buffer"].cpu())


def _checkpointed(module: nn.Module, **kwargs: Any) -> nn.Module:
    from torch_xla.distributed import fsdp

    return fsdp.XlaFullyShardedDataParallel(fsdp.checkpoint_module(module), **kwargs)


def distributed(rank: int, count: int) -> None:
    """torch.distributed's collectives, for all and for halves, against the values of all."""
    import torch.distributed as dist
    import torch_xla.core.xla_model as xm
    import torch_xla.distributed.xla_backend  # noqa: F401

    dist.init_process_group("xla", init_method="xla://")
    assert (dist.get_rank(), dist.get_world_size()) == (rank, count)
    device = xm.xla_device()
    groups: list[tuple[Any, list[int]]] = [(None, list(range(count)))]
    for first in range(0, count, count // 2):
        ranks = list(range(first, first + count // 2))
        made = dist.new_group(ranks)
        groups += [(made, ranks)] if rank in ranks else []
    for group, ranks in groups:
        size, place = len(ranks), ranks.index(rank)
        rows = [torch.arange(2.0 * size).reshape(size, 2) * (r + 1) + r for r in ranks]
        x, total = rows[place].to(device), torch.stack(rows).sum(0)
        summed, mean, sent = x.clone(), x.clone(), x.clone()
        dist.all_reduce(summed, group=group)
        dist.all_reduce(mean, op=dist.ReduceOp.AVG, group=group)
        kept = x.clone()
        dist.reduce(kept, dst=ranks[-1], group=group)
        dist.broadcast(sent, src=ranks[-1], group=group)
        parts = [torch.empty_like(x) for _ in ranks]
        dist.all_gather(parts, x, group=group)
        whole = x.new_empty(size * size, 2)
        dist.all_gather_into_tensor(whole, x, group=group)
        own = x.new_empty(1, 2)
        dist.reduce_scatter_tensor(own, x, group=group)
        swapped = torch.empty_like(x)
        dist.all_to_all_single(swapped, x, group=group)
        given = x.new_empty(2)
        listed = list(x.unbind()) if place == 0 else None
        dist.scatter(given, listed, src=ranks[0], group=group)
        for actual, expected in [
            (summed, total),
            (mean, total / size),
            (sent, rows[-1]),
            (kept, total if rank == ranks[-1] else rows[place]),
            (torch.stack(parts), torch.stack(rows)),
            (whole, torch.cat(rows)),
            (own, total[place : place + 1]),
            (swapped, torch.stack([row[place] for row in rows])),
            (given, rows[0][place]),
        ]:
            torch.testing.assert_close(actual.cpu(), expected)
    objects: list[Any] = [None] * count
    dist.all_gather_object(objects, {"rank": rank, "more": "x" * rank})
    assert objects == [{"rank": r, "more": "x" * r} for r in range(count)]
    dist.barrier()
    _point_to_point(rank, count, device)
    torch.manual_seed(2 + rank)  # DDP sends the parameters of rank 0
    _replicated_by_ddp(rank, count, device, Block())
    _compiled(rank, count, device)
    dist.destroy_process_group()


def replicated(rank: int, count: int) -> None:
    """DDP, whose backend is there without an import of its own; threads have a group each."""
    import torch.distributed as dist
    import torch_xla.core.xla_model as xm

    dist.init_process_group("xla", init_method="xla://")
    assert (dist.get_rank(), dist.get_world_size()) == (rank, count)
    total = torch.full((3,), rank + 1.0).to(xm.xla_device())
    dist.all_reduce(total)
    assert total.tolist() == [count * (count + 1) / 2] * 3
    objects: list[Any] = [None] * count
    dist.all_gather_object(objects, {"rank": rank})
    assert objects == [{"rank": r} for r in range(count)]
    with _one_at_a_time:
        model = Block()
    _replicated_by_ddp(rank, count, xm.xla_device(), model)
    _compiled(rank, count, xm.xla_device(), on_host=False)


def _point_to_point(rank: int, count: int, device: torch.device) -> None:
    """Messages between two ranks: in a ring, in batches, from any, of each kind of tensor."""
    import torch.distributed as dist

    after, before = (rank + 1) % count, (rank - 1) % count
    total = torch.full((3,), rank + 1.0).to(device)
    dist.all_reduce(total)  # what the others need of it is launched before a wait
    for one in (total, total.bfloat16(), torch.arange(4)):
        x, got = one * rank, torch.empty_like(one)
        coming = dist.irecv(got, src=before, tag=3)  # all wait for each other
        dist.isend(x, dst=after, tag=3)
        assert coming is not None
        coming.wait()
        torch.testing.assert_close(got.cpu(), (one * before).cpu())
    ones, twos, back = (torch.full((2,), value).to(device) for value in (1.0, 2.0, 0.0))
    ops = [dist.P2POp(dist.isend, each * (rank + 1), after) for each in (ones, twos)]
    ops += [dist.P2POp(dist.irecv, each, before) for each in (ones, back)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    assert [ones.tolist(), back.tolist()] == [[before + 1.0] * 2, [2.0 * before + 2.0] * 2]
    if rank:
        dist.send(ones, dst=0, tag=rank and 9)
    else:
        senders = {dist.recv(back, tag=9) for _ in range(count - 1)}
        assert senders == set(range(1, count))
    objects: list[Any] = [{"rank": rank}, "two"] if rank == 0 else [None, None]
    if rank == 0:
        dist.send_object_list(objects, dst=1, device=torch.device("cpu"))
    elif rank == 1:
        dist.recv_object_list(objects, src=0, device=torch.device("cpu"))
        assert objects == [{"rank": 0}, "two"]


def _compiled(rank: int, count: int, device: torch.device, on_host: bool = True) -> None:
    """Functional collectives in graphs of torch.compile; on CPU tensors, too, where `on_host`."""
    import torch.distributed as dist
    from torch.distributed import _functional_collectives as functional

    def function(x: Tensor) -> Tensor:
        total = functional.all_reduce(x * 2, "avg", dist.group.WORLD)
        parts = functional.all_gather_tensor(x, 0, dist.group.WORLD)
        mine = functional.reduce_scatter_tensor(parts, "sum", 0, dist.group.WORLD)
        return total + mine

    values = [torch.arange(4.0).reshape(2, 2) + r for r in range(count)]
    expected = sum(values) * 2 / count + count * values[rank]
    compiled = torch.compile(function, backend="xla", fullgraph=True)
    for x in (values[rank], values[rank].to(device))[not on_host :]:
        for _ in range(2):
            torch.testing.assert_close(compiled(x).cpu(), expected)
    torch.testing.assert_close(function(values[rank].to(device)).cpu(), expected)


def _replicated_by_ddp(rank: int, count: int, device: torch.device, block: nn.Module) -> None:
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

    model = block.double().to(device)
    wrapped = DistributedDataParallel(model, gradient_as_bucket_view=True)
    compiled = torch.compile(wrapped, backend="xla")  # its first call makes DDP's buckets anew
    joined = Block().double()
    joined.load_state_dict({name: value.cpu() for name, value in model.state_dict().items()})
    generator = torch.Generator().manual_seed(0)
    data = torch.randn(8 * count, 36, generator=generator, dtype=torch.float64)
    sampler = DistributedSampler(range(8 * count), count, rank, shuffle=False)
    loader = DataLoader(TensorDataset(data), batch_size=2, sampler=sampler)
    optimizers = [torch.optim.SGD(each.parameters(), lr=0.1) for each in (joined, model)]
    for step, (x,) in enumerate(loader):
        losses = [
            joined(data[step * 2 * count : (step + 1) * 2 * count]).square().mean(),
            (compiled if step else wrapped)(x.to(device)).square().mean(),
        ]
        for loss, optimizer in zip(losses, optimizers, strict=True):
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    for (name, expected), actual in zip(joined.named_parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(actual.cpu(), expected, rtol=1e-9, atol=1e-11, msg=name)


def dtensor(rank: int, count: int) -> None:
    """A model split over data and model, of DTensors, by torch.compile: numbers and gradients."""
    import torch.distributed as dist
    import torch_xla.distributed.xla_backend  # noqa: F401
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    dist.init_process_group("xla", init_method="xla://")
    mesh = init_device_mesh("cpu", (2, count // 2), mesh_dim_names=("data", "model"))
    generator = torch.Generator().manual_seed(0)
    up, down, data = (
        torch.randn(*shape, generator=generator, dtype=torch.float64)
        for shape in ((8, 4), (4, 8), (6, 4))
    )

    def loss_of(up: Tensor, down: Tensor, x: Tensor) -> Tensor:
        return (torch.relu(x @ up.t()) @ down.t()).square().mean()

    parts = [
        nn.Parameter(distribute_tensor(up, mesh, [Replicate(), Shard(0)])),
        nn.Parameter(distribute_tensor(down, mesh, [Replicate(), Shard(1)])),
    ]
    x = distribute_tensor(data, mesh, [Shard(0), Replicate()])
    compiled = torch.compile(
        lambda *args: loss_of(*args).full_tensor(),  # type: ignore[attr-defined]
        backend="xla",
        fullgraph=True,
    )
    loss = compiled(*parts, x)
    loss.backward()
    whole = [each.clone().requires_grad_() for each in (up, down)]
    expected = loss_of(*whole, data)
    expected.backward()
    torch.testing.assert_close(loss, expected, rtol=1e-9, atol=1e-11)
    for part, each in zip(parts, whole, strict=True):
        gradient: Any = part.grad
        torch.testing.assert_close(gradient.full_tensor(), each.grad, rtol=1e-9, atol=1e-11)


PROGRAMS = {
    "collectives": collectives,
    "training": training,
    "sharded": sharded,
    "distributed": distributed,
    "replicated": replicated,
    "dtensor": dtensor,
}


def replica(rank: int, name: str, count: int) -> None:
    import torch_xla.debug.metrics as met

    PROGRAMS[name](rank, count)
    # Where replicas are threads, of all of them.
    launches = met.counter_value("ExecuteComputation")
    print(f"{name} of rank {rank} ended after {launches} launches", flush=True)


def in_threads(name: str, count: int) -> None:
    import torch_xla.core.xla_model as xm
    import torch_xla.distributed.data_parallel as dp

    def loop(model: Any, loader: Any, device: Any, context: Any) -> None:
        replica(xm.get_ordinal(), name, count)

    dp.DataParallel(nn.Linear(1, 1))(loop, [torch.ones(1)] * count)


def main(name: str, kind: str, count: str) -> None:
    os.environ["CPU_NUM_DEVICES"] = count if kind == "threads" else "1"
    import xla_dynamo.compat  # noqa: F401  # isort: skip
    import torch_xla.distributed.xla_multiprocessing as xmp

    if kind == "threads":
        in_threads(name, int(count))
    elif kind == "both":  # two in each process
        flags = os.environ.get("XLA_FLAGS", "")
        os.environ["XLA_FLAGS"] = f"{flags} --xla_force_host_platform_device_count=2"
        xmp.spawn(replica, (name, int(count)), int(count) // 2, start_method="fork")
    else:
        xmp.spawn(replica, (name, int(count)), int(count), start_method=kind)
    print("the program ended")


if __name__ == "__main__":
    main(*sys.argv[1:])
