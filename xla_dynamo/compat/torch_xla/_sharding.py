"""What SPMD shardings say of tensors, over all devices, by torch_xla's names.

Over one device, a tensor that is marked is its own only shard: replicated, whatever its partition
specification.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from types import EllipsisType
from typing import Any

import numpy as np
import torch

from xla_dynamo.backend.runtime import shardings
from xla_dynamo.backend.runtime.shardings import Sharding
from xla_dynamo.compat.execution import auto_sharding, spmd
from xla_dynamo.compat.kernels import manual_sharding
from xla_dynamo.compat.kernels import sharding as kernel
from xla_dynamo.compat.recording import devices, metrics
from xla_dynamo.compat.values.marks import marks

ShardingType = IntEnum(  # how a tensor lies on the devices
    "ShardingType", "REPLICATED MAXIMAL TUPLE TILED MANUAL PARTIAL UNKNOWN", start=0
)


@dataclass(frozen=True)
class OpSharding:
    """A sharding as XLA takes it: devices by tile, groups of tiles, replicas in each, the type.

    named: the same by axes of a mesh, where a mesh made it.
    """

    tile_assignment: Sequence[Any]
    group_assignment: Sequence[Any]
    replication_groups: Sequence[Any]
    sharding_type: int
    named: Sharding | None = None

    def __post_init__(self) -> None:
        metrics.count("CreateOpSharding")

    def sharding(self, dims: int) -> Sharding:
        """The sharding of a tensor with `dims` dimensions.

        Raises:
            ValueError: its type is not one of replicated, tiled and partial.
        """
        if self.named is not None and self.named.is_replicated:
            return shardings.replicated(self.named.grid, dims)
        if self.named is not None:
            return self.named
        if self.sharding_type in (ShardingType.REPLICATED, ShardingType.MAXIMAL):
            return shardings.replicated(shardings.line(_device_count()), dims)
        if self.sharding_type == ShardingType.PARTIAL:
            groups = np.array(self.replication_groups)
            return shardings.of_tiles(groups[np.array(self.group_assignment)], ())
        if self.sharding_type != ShardingType.TILED:
            raise ValueError(f"{ShardingType(self.sharding_type).name} is no sharding of a tensor")
        return shardings.of_tiles(np.array(self.tile_assignment)[..., None], ())


def of_sharding(sharding: Sharding) -> OpSharding:
    """A sharding as XLA takes it."""
    if sharding.role == "manual":
        return OpSharding([], [], [], int(ShardingType.MANUAL), sharding)
    if sharding.is_replicated:
        return OpSharding([], [], [], int(ShardingType.REPLICATED), sharding)
    tiles = sharding.tiles
    if tiles.shape[-1] == 1:
        return OpSharding(tiles[..., 0].tolist(), [], [], int(ShardingType.TILED), sharding)
    groups = tiles.reshape(-1, tiles.shape[-1]).tolist()
    assignment: Any = np.arange(len(groups)).reshape(tiles.shape[:-1]).tolist()
    return OpSharding(tiles.tolist(), assignment, groups, int(ShardingType.PARTIAL), sharding)


def _device_count() -> int:
    on = spmd.where()
    return 1 if on is None else len(on.devices)


def plain(t: torch.Tensor) -> torch.Tensor:
    """The tensor that was marked, of an XLAShardedTensor; another one itself."""
    return getattr(t, "global_tensor", t)


def mark(t: torch.Tensor, sharding: OpSharding) -> None:
    """Split a tensor over the devices.

    Raises:
        RuntimeError: it is split in another way already.
        NotAvailable: the sharding is not one of all devices.
    """
    tensor = plain(t)
    wanted = sharding.sharding(tensor.dim())
    if len(wanted.grid.order) > 1 or spmd.where() is not None:
        known = kernel.split_of(tensor)
        if auto_sharding.is_on() and tensor not in marks:
            known = None  # nobody asked for it
        if known is not None and not known.is_replicated and known != wanted:
            raise RuntimeError(
                f"Existing annotation must be cleared first: the tensor is split as "
                f"{known.text()}, and is marked as {wanted.text()}. Call xs.clear_sharding(t)."
            )
        kernel.split(tensor, wanted)
    marks[tensor] = sharding


def annotate(t: torch.Tensor, sharding: OpSharding) -> None:
    """Split a tensor in what is computed of it from now on; an array stays as it lies.

    Raises:
        NotAvailable: the sharding is not one of all devices.
    """
    tensor = plain(t)
    wanted = sharding.sharding(tensor.dim())
    if len(wanted.grid.order) > 1 or spmd.where() is not None:
        kernel.constrain(tensor, wanted)
    marks[tensor] = sharding


def clear(t: torch.Tensor) -> None:
    """Forget how a tensor is split; if the devices have it, it comes back to the host."""
    tensor = plain(t)
    marks.pop(tensor, None)
    if spmd.where() is not None:
        kernel.take_back(tensor)


def sharding_of(t: torch.Tensor) -> OpSharding | None:
    """What `mark` said; of a result, what XLA chose."""
    known = _known(plain(t))
    if known is None:
        return None
    return known if isinstance(known, OpSharding) else of_sharding(known)


def _known(tensor: torch.Tensor) -> OpSharding | Sharding | None:
    found = marks.get(tensor)
    if found is None and spmd.where() is not None and tensor.device.type == "xla":
        if manual_sharding.is_manual(tensor):
            return shardings.manual(shardings.line(_device_count()), max(tensor.dim(), 1))
        return kernel.split_of(tensor) or kernel.wanted_of(tensor)
    return found


def spec_of(t: torch.Tensor) -> str:
    """The sharding as HLO writes it; empty if there is none."""
    known = _known(plain(t))
    if known is None:
        return ""
    if isinstance(known, OpSharding):
        if spmd.where() is None:
            return "{replicated}"
        known = known.sharding(t.dim())
    return known.text()


def specs_of(tensors: Sequence[torch.Tensor]) -> list[str]:
    """`spec_of` each."""
    return [spec_of(t) for t in tensors]


def type_of(t: torch.Tensor) -> int | None:
    """The sharding's type; None if there is none."""
    known = sharding_of(t)
    if known is None or spmd.where() is not None:
        return None if known is None else known.sharding_type
    return int(ShardingType.REPLICATED)


def device_name(number: int) -> str:
    """The name of the hardware of device `number` of all."""
    return f"{devices.hardware()}:{number}"


def local_shards(t: torch.Tensor) -> list[tuple[torch.Tensor, str]]:
    """The part of a tensor on each device of this process, on the CPU, and the device's name.

    Parts have the padding that makes them equal.
    """
    if spmd.where() is None:
        return [(t.detach().cpu(), devices.real(t.device))]
    parts = kernel.parts(t.detach())
    return [(part, device_name(number)) for number, part in parts.items()]


def replicas_and_indices(
    t: torch.Tensor,
) -> list[tuple[int, EllipsisType | list[slice]]]:
    """For each of `local_shards` its number among equal ones, and where in the tensor it is."""
    if spmd.where() is None:
        return [(0, ...)]
    numbers = kernel.parts(t.detach())
    split = kernel.split_of(t)
    assert split is not None
    if split.is_replicated:
        return [(number, ...) for number in numbers]
    places = split.places(t.shape)
    found: list[tuple[int, EllipsisType | list[slice]]] = []
    for number in numbers:
        index, replica = places[number]
        found.append((replica, [slice(part.start, part.stop, 1) for part in index]))
    return found


def load_local_shards(
    t: torch.Tensor, shards: Sequence[torch.Tensor], names: Sequence[str]
) -> None:
    """Replace the parts of a tensor on the devices of this process.

    Raises:
        RuntimeError: the tensor is replicated, not every device has a part, or a shape is wrong.
    """
    tensor = plain(t)
    split = None if spmd.where() is None else kernel.split_of(tensor)
    if split is None or split.is_replicated:
        raise RuntimeError(
            "Replicated tensors should not be loaded from shards: use copy_() instead"
        )
    kernel.replace_parts(
        tensor, {int(n.partition(":")[2]): s for n, s in zip(names, shards, strict=True)}
    )


def to_shard(t: torch.Tensor) -> torch.Tensor:
    """The shard of a tensor that is split, with which each device computes its own.

    Raises:
        RuntimeError: nothing says how the tensor is split.
    """
    tensor, split = plain(t), sharding_of(t)
    if split is None or split.sharding_type == ShardingType.MANUAL:
        raise RuntimeError("xs.mark_sharding has to say first how the tensor is split")
    if spmd.where() is None:
        return tensor.clone()
    return manual_sharding.enter(tensor, split.sharding(tensor.dim()))


def to_full(
    shard: torch.Tensor, sharding: OpSharding, shape: Sequence[int], dtype: torch.dtype
) -> torch.Tensor:
    """The tensor of `shape` that is split as `sharding` says into these shards.

    Raises:
        RuntimeError: the tensor is no shard, or of another shape than one.
    """
    tensor = plain(shard)
    if type_of(tensor) != ShardingType.MANUAL and spmd.where() is not None:
        raise RuntimeError("the tensor is no shard: xs.enable_manual_sharding gives one")
    if spmd.where() is None:
        return tensor.clone()
    return manual_sharding.leave(tensor, sharding.sharding(len(shape)), shape).to(dtype)


def mark_as_shard(t: torch.Tensor) -> torch.Tensor:
    """What is computed in the program that is pending, as a shard that each device has.

    Raises:
        RuntimeError: the tensor is not pending.
    """
    tensor = plain(t)
    if spmd.where() is None or manual_sharding.is_manual(tensor):
        return tensor
    if not kernel.is_pending(tensor):
        raise RuntimeError("only what is computed can become a shard, not what is on the devices")
    whole = shardings.replicated(shardings.line(_device_count()), tensor.dim())
    return manual_sharding.enter(tensor, whole)


def from_cpu_shards(
    shards: Sequence[torch.Tensor], sharding: OpSharding, global_shape: Sequence[int] | None = None
) -> torch.Tensor:
    """The tensor whose shards these are, one for each device of this process.

    global_shape: of the tensor; what shards have beyond it is padding.

    Raises:
        RuntimeError: there are more or fewer, or the shape does not fit.
    """
    own = len(kernel.local_numbers())
    if len(shards) != own:
        raise RuntimeError(f"Expected one shard for each of {own} devices, got {len(shards)}")
    split = sharding.sharding(shards[0].dim())
    whole = tuple(n * c for n, c in zip(shards[0].shape, split.counts, strict=True))
    shape = whole if global_shape is None else tuple(global_shape)
    padded = sharding.sharding_type != ShardingType.REPLICATED
    fits = len(shape) == len(whole) and all(
        size <= own if padded else size == own for size, own in zip(shape, whole, strict=True)
    )
    if spmd.where() is None:
        fits = fits and split.is_replicated
    elif fits:
        fits = split.part(shape) == tuple(shards[0].shape)
    if not fits:
        raise RuntimeError(
            f"Shards of shape {tuple(shards[0].shape)} do not make a tensor of shape {shape}"
        )
    if spmd.where() is None:
        result = shards[0][tuple(slice(size) for size in shape)].to("xla")
    else:
        numbered = dict(zip(kernel.local_numbers(), shards, strict=True))
        result = kernel.of_parts(numbered, shape, split)
    marks[result] = sharding
    return result
