"""Planners of torch.distributed.checkpoint for tensors that lie in parts on devices.

Each process writes the parts that it is the first to have, and reads what its devices need: nobody
has a whole tensor, and the devices may be others when it is loaded.
"""

from __future__ import annotations

import dataclasses
import math
from types import EllipsisType
from typing import Any

import torch
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from torch.distributed.checkpoint.metadata import MetadataIndex, TensorProperties
from torch.distributed.checkpoint.planner import (
    LoadPlan,
    ReadItem,
    SavePlan,
    TensorWriteData,
    WriteItem,
    WriteItemType,
)
from torch.distributed.checkpoint.planner_helpers import create_read_items_for_chunk_list

from xla_dynamo.compat.kernels import sharding as kernel

from ..._sharding import replicas_and_indices
from ...distributed.spmd.xla_sharded_tensor import XLAShardedTensor
from ._helpers import Indices, _CpuShards, chunk, split, unwrapped


class SPMDSavePlanner(DefaultSavePlanner):
    """Saves a state_dict of tensors on xla devices, split or not.

    sharded_state_dict, unsharded_state_dict: its entries, flattened, that lie in parts; the others.
    """

    sharded_state_dict: dict[str, Any]
    unsharded_state_dict: dict[str, Any]

    def __init__(self) -> None:
        super().__init__(flatten_sharded_tensors=False)

    def set_up_planner(
        self, state_dict: Any, storage_meta: Any = None, is_coordinator: bool = False
    ) -> None:
        """See torch.distributed.checkpoint.SavePlanner; of old versions: (state_dict, bool)."""
        if isinstance(storage_meta, bool):
            storage_meta, is_coordinator = None, storage_meta
        super().set_up_planner(unwrapped(state_dict), storage_meta, is_coordinator)
        self.sharded_state_dict, self.unsharded_state_dict = split(self.state_dict)
        self.state_dict = self.unsharded_state_dict

    def create_local_plan(self) -> SavePlan:
        """What this process writes."""
        plan = super().create_local_plan()
        items = [*plan.items]
        for name, value in self.sharded_state_dict.items():
            items.extend(_write_items(name, value))
        self.plan = dataclasses.replace(plan, items=items)
        return self.plan

    def lookup_object(self, index: MetadataIndex) -> Any:
        """The tensor, or the part, of an item; a part comes to the CPU now."""
        found = self.sharded_state_dict.get(index.fqn)
        if found is None:
            return super().lookup_object(index)
        assert index.index is not None
        if isinstance(found, _CpuShards):
            return found.shards[index.index].unpadded_data
        return _parts(found)[index.index][1]()


def _parts(tensor: XLAShardedTensor) -> list[tuple[Indices, Any]]:
    """Where in a tensor its parts in this process are, and what brings each to the CPU.

    Of parts that several devices have, those that are the first replica.
    """
    plain = tensor.global_tensor.detach()
    numbers = kernel.local_numbers()
    found = []
    for number, (replica, indices) in zip(numbers, replicas_and_indices(plain), strict=True):
        if replica == 0 and not isinstance(indices, EllipsisType):
            sizes = tuple(slice(index.stop - index.start) for index in indices)
            if all(size.stop for size in sizes):
                found.append((indices, lambda n=number, s=sizes: kernel.part(plain, n)[s]))
    return found


def _write_items(name: str, value: Any) -> list[WriteItem]:
    if isinstance(value, _CpuShards):
        shape, first = value.global_shape, value.shards[0].data
        places: list[Any] = [shard.indices for shard in value.shards]
    else:
        shape, first = value.shape, value.global_tensor
        places = [indices for indices, _ in _parts(value)]
    properties = TensorProperties(dtype=first.dtype)
    made = []
    for number, indices in enumerate(places):
        own = chunk(indices)
        if not math.prod(own.sizes):
            continue
        made.append(
            WriteItem(
                index=MetadataIndex(name, own.offsets, number),
                type=WriteItemType.SHARD,
                tensor_data=TensorWriteData(own, properties, torch.Size(shape)),
            )
        )
    return made


@dataclasses.dataclass
class _Arriving:
    """A tensor whose parts are read.

    parts: on the CPU, by where they begin; devices: those that have each; missing: elements.
    """

    parts: dict[torch.Size, torch.Tensor]
    devices: dict[torch.Size, list[int]]
    missing: int


class SPMDLoadPlanner(DefaultLoadPlanner):
    """Loads into a state_dict of tensors on xla devices, split or not, in place.

    sharded_state_dict, unsharded_state_dict: its entries, flattened, that lie in parts; the others.
    """

    sharded_state_dict: dict[str, Any]
    unsharded_state_dict: dict[str, Any]

    def __init__(self) -> None:
        super().__init__(flatten_sharded_tensors=False)
        self._arriving: dict[str, _Arriving] = {}

    def set_up_planner(
        self, state_dict: Any, metadata: Any = None, is_coordinator: bool = False
    ) -> None:
        """See torch.distributed.checkpoint.LoadPlanner."""
        super().set_up_planner(state_dict, metadata, is_coordinator)
        flat = {name: unwrapped(value) for name, value in self.state_dict.items()}
        self.sharded_state_dict, self.unsharded_state_dict = split(flat)
        self.state_dict = flat

    def create_local_plan(self) -> LoadPlan:
        """What this process reads."""
        plan = super().create_local_plan()
        plan.items = [i for i in plan.items if i.dest_index.fqn not in self.sharded_state_dict]
        assert self.metadata is not None
        for name, tensor in self.sharded_state_dict.items():
            arriving = self._arriving[name] = _arriving(tensor)
            chunks = [
                chunk([slice(o, o + n) for o, n in zip(offset, part.shape, strict=True)])
                for offset, part in arriving.parts.items()
            ]
            known = self.metadata.state_dict_metadata[name]
            plan.items.extend(create_read_items_for_chunk_list(name, known, chunks))  # type: ignore
        return plan

    def lookup_tensor(self, index: MetadataIndex) -> torch.Tensor:
        """The tensor, or the part on the CPU, that an item goes to."""
        arriving = self._arriving.get(index.fqn)
        if arriving is None:
            return super().lookup_tensor(index)
        assert index.offset is not None
        return arriving.parts[index.offset]

    def commit_tensor(self, read_item: ReadItem, tensor: torch.Tensor) -> None:
        """An item has been read; when all of a tensor have, its parts go to their devices."""
        name = read_item.dest_index.fqn
        arriving = self._arriving.get(name)
        if arriving is None:
            return
        arriving.missing -= math.prod(read_item.lengths)
        if arriving.missing == 0:
            plain = self.sharded_state_dict[name].global_tensor
            given = {
                number: arriving.parts[offset]
                for offset, numbers in arriving.devices.items()
                for number in numbers
            }
            kernel.replace_parts(plain, given)
            del self._arriving[name]


def _arriving(tensor: XLAShardedTensor) -> _Arriving:
    """The parts that the devices of this process have now, each once."""
    plain = tensor.global_tensor.detach()
    parts: dict[torch.Size, torch.Tensor] = {}
    devices: dict[torch.Size, list[int]] = {}
    places = replicas_and_indices(plain)
    for number, (_, indices) in zip(kernel.local_numbers(), places, strict=True):
        assert not isinstance(indices, EllipsisType)
        own = chunk(indices)
        if not math.prod(own.sizes):
            continue
        devices.setdefault(own.offsets, []).append(number)
        if own.offsets not in parts:
            sizes = tuple(slice(size) for size in own.sizes)
            parts[own.offsets] = kernel.part(plain, number)[sizes]
    return _Arriving(parts, devices, sum(part.numel() for part in parts.values()))
