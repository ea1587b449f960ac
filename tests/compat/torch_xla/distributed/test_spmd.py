"""SPMD over one device: marks are checked and kept, and a tensor is its own only shard."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch_xla
import torch_xla.debug.metrics as met
import torch_xla.distributed.spmd as xs
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch_xla import _XLAC
from torch_xla import runtime as xr

from xla_dynamo.errors import NotAvailable

XLA = torch.device("xla:0")
MESH = xs.Mesh([0], (1, 1), ("data", "model"))


def test_a_marked_tensor_is_its_own_shard() -> None:
    t = torch.arange(4.0, device=XLA).reshape(2, 2)
    assert _XLAC._get_xla_sharding_spec(t) == ""
    assert _XLAC._get_xla_sharding_type(t) is None
    marked = xs.mark_sharding(t, MESH, ("data", None))
    assert isinstance(marked, xs.XLAShardedTensor)
    assert isinstance(marked, DTensor)
    assert marked.global_tensor is t
    assert marked.sharding_type is xs.ShardingType.REPLICATED
    assert marked.sharding_spec == _XLAC._get_xla_sharding_spec(t) == "{replicated}"
    (shard,) = marked.local_shards
    assert (shard.indices, shard.replica_id, shard.shard_device) == (..., 0, "CPU:0")
    assert shard.unpadded_data.tolist() == [[0.0, 1.0], [2.0, 3.0]]
    assert xs.wrap_if_sharded(t).global_tensor is t
    assert "XLAShardedTensor(tensor([[0., 1.]" in f"{marked}"
    with pytest.raises(RuntimeError, match="Replicated tensors should not be loaded"):
        marked.load_local_shards_([shard])
    assert xs.clear_sharding(marked) is t
    assert _XLAC._get_xla_sharding_spec(t) == ""
    assert xs.wrap_if_sharded(t) is t


def test_it_shares_memory_and_gradients() -> None:
    """torch_xla's has no gradient: what is computed of it does not train."""
    weight = torch.ones(2, 2, device=XLA, requires_grad=True)
    product = weight * 3
    marked = xs.mark_sharding(product, MESH, ("data", "model"))
    marked += 1
    assert product.tolist() == [[4.0, 4.0], [4.0, 4.0]]
    (marked * product).sum().backward()
    torch_xla.sync()
    assert weight.grad is not None
    assert weight.grad.tolist() == [[24.0, 24.0], [24.0, 24.0]]  # 2 * (3 w + 1) * 3
    result = nn.Linear(2, 3).to(XLA)(marked)
    assert isinstance(result, xs.XLAShardedTensor)
    with pytest.raises(ValueError, match="Placements not available"):
        _ = result.placements


def test_a_write_that_autograd_must_not_miss() -> None:
    weight = torch.ones(2, device=XLA, requires_grad=True)
    kept = weight.exp()  # backward reads it again
    marked = xs.mark_sharding(kept, xs.get_1d_mesh("x"), ("x",))
    marked.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        kept.sum().backward()


def test_copies_keep_the_mark() -> None:
    marked = xs.mark_sharding(torch.ones(2, device=XLA), xs.get_1d_mesh("x"), (None,))
    other = copy.deepcopy(marked)
    assert isinstance(other, xs.XLAShardedTensor)
    assert other.sharding_spec == "{replicated}"
    other += 1
    assert marked.tolist() == [1.0, 1.0]
    assert other.tolist() == [2.0, 2.0]


def test_placements_of_dtensors() -> None:
    mesh = DeviceMesh("xla", torch.arange(1))
    rows: Any = distribute_tensor(torch.ones(4, 2), mesh, [Shard(0)])
    assert rows.placements == (Shard(0),)
    assert rows._spec is rows._spec
    assert rows._spec.tensor_meta.shape == (4, 2)
    assert xs.mark_sharding(torch.ones(2, device=XLA), MESH, (None,)).placements == (
        Replicate(),
        Replicate(),
    )
    other = rows.redistribute(xs.get_1d_mesh(), [Shard(1)])
    assert other.placements == (Shard(1),)
    with pytest.raises(IndexError, match="Shard dimension 2 is out of bounds"):
        rows.redistribute(xs.get_1d_mesh(), [Shard(2)])
    with pytest.raises(ValueError, match="Number of placements"):
        rows.redistribute(xs.get_1d_mesh(), [])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (([0], (1, 1), ("a",)), "Number of axis names .1. must match mesh dimensions .2."),
        (([0], (1, 1), ("a", "a")), "Axis names must be unique"),
        (([0], (2, 1)), "Number of device IDs .1. must match mesh size .2."),
        (([0, 0], (2,)), "Device IDs must be unique"),
        (([1], (1,)), "Device IDs must be less than mesh size"),
    ],
)
def test_meshes_are_checked(arguments: tuple[object, ...], words: str) -> None:
    with pytest.raises(AssertionError, match=words):
        xs.Mesh(*arguments)  # type: ignore[arg-type]


def test_specifications_are_checked() -> None:
    t = torch.ones(2, 2, device=XLA)
    with pytest.raises(AssertionError, match=r"length \(1\) should be equal to the input rank"):
        xs.mark_sharding(t, MESH, ("data",))
    with pytest.raises(ValueError, match="Axis name rows is not defined"):
        xs.mark_sharding(t, MESH, ("rows", None))
    with pytest.raises(AssertionError, match="out of bound index"):
        xs.mark_sharding(t, MESH, (2, None))
    with pytest.raises(AssertionError, match="at most once"):
        xs.mark_sharding(t, MESH, (0, 0))
    with pytest.raises(ValueError, match="is not supported in partition spec"):
        xs.mark_sharding(t, MESH, (1.5, None))
    with pytest.raises(NotAvailable, match="has 8 devices"):
        xs.mark_sharding(t, xs.Mesh(list(range(8)), (8,), ("data",)), ("data", None))
    with pytest.raises(ValueError, match="single slice"):
        xs.HybridMesh(ici_mesh_shape=(1, 1), dcn_mesh_shape=(2, 1))


def test_a_mesh_is_read_as_it_is_written() -> None:
    read = xs.Mesh.from_str(str(MESH))
    assert read is not None
    assert read.shape() == MESH.shape()
    assert xs.Mesh.from_str("nothing") is None


def test_a_tensor_of_its_shards() -> None:
    rows = MESH.get_op_sharding((None,))
    assert _XLAC._global_tensor_from_cpu_shards([torch.arange(4)], rows).tolist() == [0, 1, 2, 3]
    with pytest.raises(RuntimeError, match="do not make a tensor of shape"):
        _XLAC._global_tensor_from_cpu_shards([torch.arange(4)], rows, torch.Size((5,)))
    with pytest.raises(RuntimeError, match="one shard for each"):
        _XLAC._global_tensor_from_cpu_shards([], rows)


def test_marks_in_a_compiled_function() -> None:
    def run(x: torch.Tensor) -> torch.Tensor:
        return xs.mark_sharding(x * 2, MESH, ("data", None)) + 1

    compiled = torch.compile(run, backend="openxla", fullgraph=True)
    assert compiled(torch.ones(2, 2, device=XLA)).tolist() == [[3.0, 3.0], [3.0, 3.0]]
    marked = xs.mark_sharding(torch.ones(2, 2, device=XLA), MESH, (None, None))
    layer = torch.compile(nn.Linear(2, 2).to(XLA), backend="openxla")
    assert layer(marked).shape == (2, 2)


def test_the_metrics_call_launches_replicated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLA_USE_SPMD", "1")
    assert xr.is_spmd()
    x = torch.ones(2, 2, device=XLA)
    torch_xla.sync()
    met.clear_all()
    compiled = torch.compile(torch.sin, backend="openxla")
    compiled(x + 1)
    torch_xla.sync(wait=True)
    assert met.metric_data("ExecuteReplicatedTime")[0] == 2
    assert met.counter_value("ExecuteReplicated") == 2
    assert met.counter_value("ExecuteComputation") is None
    assert met.metric_data("ExecuteTime") is None
    monkeypatch.setenv("XLA_USE_SPMD", "")
    (x + 2).cpu()
    assert met.counter_value("ExecuteComputation") == 1
