"""Splits the value of a tensor over the devices, by a sharding: what marks of torch_xla do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from xla_dynamo.backend.ops.sharding import MARK
from xla_dynamo.backend.runtime import shardings
from xla_dynamo.backend.runtime.shardings import Sharding
from xla_dynamo.compat.execution import spmd, sync
from xla_dynamo.compat.recording import metrics, pending
from xla_dynamo.compat.recording.trace import trace_of
from xla_dynamo.compat.values import torch_private
from xla_dynamo.compat.values.op_table import op_of
from xla_dynamo.compat.values.trie import metas_in
from xla_dynamo.compat.values.values import Held, Ref, Value, leaf_of, meta, restrided, value_of
from xla_dynamo.compat.values.values import tensor as new
from xla_dynamo.errors import NotAvailable
from xla_dynamo.lazily import lazily

if TYPE_CHECKING:
    from xla_dynamo.backend.runtime import partitions, replica_arrays, transfers
else:
    partitions = lazily("xla_dynamo.backend.runtime.partitions", globals())
    replica_arrays = lazily("xla_dynamo.backend.runtime.replica_arrays", globals())
    transfers = lazily("xla_dynamo.backend.runtime.transfers", globals())


def split(tensor: torch.Tensor, sharding: Sharding) -> None:
    """Let each device have its part of a tensor, whose numbers stay.

    What the host still has goes there by parts; what is an array already is cut anew; of what is
    pending, the program is told.

    Raises:
        NotAvailable: the sharding is not one of all devices.
    """
    on, value = _all(sharding), value_of(tensor)
    if value.array is None and type(value.ref) is Held:
        metrics.count("VirtualDeviceUsage")
        sync.place(value, sharding)
    elif value.array is None:
        constrain(tensor, sharding)
    elif partitions.sharding_of(value.array) != sharding:
        host = transfers.download(value.array, value.meta.shape)
        value.array = transfers.upload(host, on, sharding)


def take_back(tensor: torch.Tensor) -> None:
    """Let the host have a tensor, until an op or a mark says again what each device needs of it."""
    on, value = spmd.where(), value_of(tensor)
    if on is None or value.array is None:
        return
    host = transfers.download(value.array, value.meta.shape)
    if value.stamp is trace_of(value).stamp:  # what is pending takes it
        value.array = transfers.upload(host, on)
    else:
        value.ref, value.array = Held(host, sync.place, is_upload=True), None


def constrain(tensor: torch.Tensor, sharding: Sharding) -> None:
    """Tell the program that is pending how to split a tensor.

    Raises:
        NotAvailable: the sharding is not one of all devices.
    """
    _all(sharding)
    leaf = leaf_of(tensor)
    if leaf is None:
        raise TypeError(f"expected a tensor on an xla device, got one on {tensor.device}")
    own, home = leaf.value.meta, leaf.value.home
    made: Any = home.record_values(op_of(MARK), (leaf, sharding.attribute()), {})
    leaf.value = restrided(made, own)
    if torch_private.is_base(tensor):  # views of the same memory follow
        torch_private.commit(tensor)
        torch_private.sync(tensor)


def _all(sharding: Sharding) -> partitions.Partitions:
    """All devices, of which a sharding has to be one."""
    on, wanted = spmd.where(), len(sharding.grid.order)
    if on is None or wanted != len(on.devices):
        have = 1 if on is None else len(on.devices)
        raise NotAvailable(
            f"The mesh has {wanted} devices, and programs here run on {have}: call xr.use_spmd() "
            "first, and build the mesh from xr.global_runtime_device_count()"
        )
    return on


def split_of(tensor: torch.Tensor) -> Sharding | None:
    """How the devices have a tensor that is computed, or lies there; None if they do not yet."""
    leaf = leaf_of(tensor)
    array = None if leaf is None else leaf.value.array
    return None if array is None else partitions.sharding_of(array)


def wanted_of(tensor: torch.Tensor) -> Sharding | None:
    """How a pending tensor will be split, where the op that gives it was told, or copies one."""
    leaf = leaf_of(tensor)
    if leaf is None or leaf.value.array is not None or type(leaf.value.ref) is not Ref:
        return None
    trace = trace_of(leaf.value)
    made = {}
    for state in trace.state.path():
        for _ in metas_in(state.outputs):
            made[len(made)] = state
    ref = leaf.value.ref
    while ref.meta is None:
        state = made[ref.index]
        if state.op.func is MARK:
            return shardings.parse(state.args[1])
        if state.op.func is not torch.ops.aten.clone.default:
            return None
        ref = state.args[0]
    return partitions.sharding_of(trace.inputs[ref.index].array)


def is_pending(tensor: torch.Tensor) -> bool:
    """Whether a tensor is a result of ops that are recorded, and not run."""
    leaf = leaf_of(tensor)
    if leaf is None or leaf.value.array is not None or type(leaf.value.ref) is not Ref:
        return False
    return leaf.value.ref.meta is None


def local_numbers() -> list[int]:
    """Which of all devices are those of this process."""
    on = spmd.where()
    return [0] if on is None else partitions.local_numbers(on.devices)


def parts(tensor: torch.Tensor) -> dict[int, torch.Tensor]:
    """The part of a tensor on each device of this process, padding included, on the CPU."""
    return {number: transfers.download(each) for number, each in _parts(tensor).items()}


def part(tensor: torch.Tensor, number: int) -> torch.Tensor:
    """The part of a tensor on one device of this process, padding included, on the CPU."""
    return transfers.download(_parts(tensor)[number])


def _parts(tensor: torch.Tensor) -> dict[int, Any]:
    value = value_of(tensor)
    if type(value.ref) is Held:
        sync.place(value)
    array = sync.materialize(value)
    return dict(zip(local_numbers(), replica_arrays.parts(array), strict=True))


def replace_parts(tensor: torch.Tensor, given: dict[int, torch.Tensor]) -> None:
    """Give the devices of this process other parts of a tensor that is split, with padding or not.

    Raises:
        RuntimeError: one has none, or of another shape.
    """
    value, sharding = value_of(tensor), split_of(tensor)
    assert sharding is not None
    shape, places = sharding.part(value.meta.shape), sharding.places(value.meta.shape)
    whole, wrong = {}, []
    for number in local_numbers():
        own = tuple(index.stop - index.start for index in places[number][0])
        found = given.get(number)
        if found is None and 0 in own:  # all of it is padding
            found = torch.zeros(shape, dtype=value.meta.dtype, device="cpu")
        if found is None or tuple(found.shape) not in (shape, own):
            wrong.append(number)
        else:
            whole[number] = _padded(found, shape)
    if wrong:
        raise RuntimeError(f"Each device has a shard of shape {shape}; not so devices {wrong}")
    leaf = leaf_of(tensor)
    assert leaf is not None
    leaf.value = Value(value.meta, value.home, array=_joined(whole, value.meta.shape, sharding))
    torch_private.commit(tensor)  # a parameter follows what state_dict() gave of it
    torch_private.sync(tensor)


def _padded(part: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    if tuple(part.shape) == shape:
        return part
    made = torch.zeros(shape, dtype=part.dtype, device="cpu")
    made[tuple(slice(size) for size in part.shape)] = part
    return made


def of_parts(
    given: dict[int, torch.Tensor], shape: Sequence[int], sharding: Sharding
) -> torch.Tensor:
    """A new tensor of the parts of the devices of this process."""
    _all(sharding)
    first = next(iter(given.values()))
    home = pending.trace(torch.device("xla", 0))
    own = meta(torch.Size(shape), first.dtype)
    return new(Value(own, home, array=_joined(given, shape, sharding)))


def of_rows(own: torch.Tensor, sharding: Sharding, processes: int) -> torch.Tensor:
    """A new tensor of the rows that each of the processes has for its own devices.

    Raises:
        RuntimeError: the sharding gives the devices of this process other rows, or uneven ones.
    """
    shape = (own.shape[0] * processes, *own.shape[1:])
    places, given = sharding.places(shape), {}
    rows = [places[number][0][0] for number in local_numbers()]
    first, last = min(each.start for each in rows), max(each.stop for each in rows)
    if last - first != own.shape[0] or sharding.padded(shape)[0] != shape[0]:
        raise RuntimeError(
            "When minibatch is configured, the per-host batch size must be divisible by local "
            "runtime device count, and the sharding give each process its rows: with a batch of "
            f"shape {tuple(own.shape)} this one has rows {first} to {last} of {shape[0]} on its "
            "devices"
        )
    for number in local_numbers():
        (batch, *others), _ = places[number]
        part = own[(slice(batch.start - first, batch.stop - first), *others)]
        given[number] = _padded(part, sharding.part(shape))
    return of_parts(given, shape, sharding)


def _joined(given: dict[int, torch.Tensor], shape: Sequence[int], sharding: Sharding) -> Any:
    on = _all(sharding)
    made = [transfers.upload(given[n].contiguous(), on.devices[n]) for n in local_numbers()]
    return partitions.joined(made, sharding.padded(shape), sharding, on.devices)
