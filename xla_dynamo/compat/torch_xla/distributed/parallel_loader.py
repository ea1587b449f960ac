"""Loaders of batches on xla devices: threads read and upload CPU batches ahead of the script.

    loader -> one reading thread -> a queue for each device -> upload threads -> a queue -> next()

Batch k goes to device k % n; an incomplete last group of n batches is dropped. What the loader or
an upload raises is raised by next(). The threads end when the loader does, when close() is called,
or when nobody holds the ParallelLoader any more.
"""

from __future__ import annotations

import atexit
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any

import torch
from torch.nn.utils.rnn import PackedSequence

from xla_dynamo.compat.device import step_barrier
from xla_dynamo.compat.execution import sync
from xla_dynamo.compat.recording import pending
from xla_dynamo.compat.values import values

from ..debug import profiler as xp
from ..utils.keyd_queue import Queue
from ..utils.nested import for_each_instance, for_each_instance_rewrite


class _Lane:
    """What one device's threads share: batches read, and batches uploaded (as futures)."""

    def __init__(self, device: torch.device, read_ahead: int, upload_ahead: int) -> None:
        self.device = device
        self.read = Queue(max(1, read_ahead))
        self.uploaded = Queue(max(1, upload_ahead))
        self.order = threading.Lock()

    def close(self) -> None:
        """Make the threads of this lane end."""
        self.read.close()
        self.uploaded.close()


class ParallelLoader:
    """Wraps a loader with background upload.

    Args:
        cpu_loader: any iterable of batches.
        devices: where batches go, in turn.
        batchdim: the dimension of a batch that holds its size.
        batches_per_execution: `next()` marks the step every so many batches.
        loader_prefetch_size: how many batches are read ahead, for each device.
        device_prefetch_size: how many batches are uploaded ahead, for each device.
        host_to_device_transfer_threads: how many threads upload, for each device.
        input_sharding: an xs.ShardingSpec for tensors of its number of dimensions, or a dict of
            them, by the keys of the batch: how tensors are split over the devices, in SPMD mode.
        fixed_batch_size, drop_last: end at the first batch of another size than the first one.
        loader: the name of `cpu_loader` before 2.5.
    """

    def __init__(
        self,
        cpu_loader: Any = None,
        devices: Iterable[Any] = (),
        batchdim: int = 0,
        batches_per_execution: int = 1,
        loader_prefetch_size: int = 16,
        device_prefetch_size: int = 8,
        host_to_device_transfer_threads: int = 1,
        input_sharding: Any = None,
        *,
        fixed_batch_size: bool = False,
        drop_last: bool = False,
        loader: Any = None,
    ) -> None:
        self._cpu_loader = cpu_loader if loader is None else loader
        self._devices = [torch.device(device) for device in devices]
        if isinstance(batches_per_execution, bool):  # fixed_batch_size stood here until 1.7
            fixed_batch_size, batches_per_execution = batches_per_execution, 1
        self._batches_per_execution = batches_per_execution
        lanes = [_Lane(each, loader_prefetch_size, device_prefetch_size) for each in self._devices]
        self._lanes = dict(zip(self._devices, lanes, strict=True))
        batches: Any = self._cpu_loader
        if fixed_batch_size or drop_last:
            batches = _of_one_size(batches, batchdim)
        self._threads = [_thread(_read, batches, lanes)] + [
            _thread(_upload, lane, input_sharding)
            for lane in lanes
            for _ in range(max(1, host_to_device_transfer_threads))
        ]
        weakref.finalize(self, _close, lanes).atexit = False
        _running.add(self)

    @property
    def batches_per_execution(self) -> int:
        """How many batches `next()` gives for each step that it marks."""
        return self._batches_per_execution

    def per_device_loader(self, device: Any) -> PerDeviceLoader:
        """The iterator over the batches of one device."""
        return PerDeviceLoader(self, torch.device(device))

    def per_device_samples(self) -> int:
        """How many batches each device gets."""
        return len(self._cpu_loader) // len(self._devices)

    def next_item(self, device: Any) -> Any:
        """The next batch of one device, or None at the end; raises what reading it raised."""
        future = self._lanes[torch.device(device)].uploaded.get()
        return None if future is None else future.result()

    def close(self) -> None:
        """Stop reading and uploading, and wait for the threads."""
        _close(self._lanes.values())
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()


class PerDeviceLoader:
    """Iterates over the batches of one device; `next()` is where a step ends and is launched.

    number: whether an item is `(i, batch)` rather than `batch`, given the batch.
    """

    def __init__(
        self,
        loader: ParallelLoader,
        device: torch.device,
        number: Callable[[Any], bool] | None = None,
    ) -> None:
        self._loader = loader
        self._device = device
        self._number = number
        self._count = 0
        self._unmarked = 0

    def __iter__(self) -> PerDeviceLoader:
        return self

    def __len__(self) -> int:
        return self._loader.per_device_samples()

    def __next__(self) -> Any:
        return self.next()

    def next(self) -> Any:
        """Mark the step, if one is due, then the next batch; marks again at the end."""
        if xp.get_tracer_marked_step():  # StepTrace has done it
            xp.set_tracer_marked_step(False)
            self._unmarked += 1
        elif self._unmarked >= self._loader.batches_per_execution - 1:
            self._unmarked = 0
            step_barrier.mark_step(self._device)
        else:
            self._unmarked += 1
        batch = self._loader.next_item(self._device)
        if batch is None:
            step_barrier.mark_step(self._device)
            raise StopIteration
        index = self._count
        self._count += 1
        return (index, batch) if self._number is not None and self._number(batch) else batch


class MpDeviceLoader:
    """Wraps a loader for one device; each iteration over it reads the loader anew.

    Args:
        loader: any iterable of batches.
        device: where batches go.
        kwargs: of ParallelLoader.
    """

    def __init__(self, loader: Any, device: Any, **kwargs: Any) -> None:
        self._loader = loader
        self._device = device
        self._parallel_loader_kwargs = kwargs
        self._parallel_loader: ParallelLoader | None = None

    def __iter__(self) -> Iterator[Any]:
        self.close()
        made = ParallelLoader(self._loader, [self._device], **self._parallel_loader_kwargs)
        self._parallel_loader = made
        return made.per_device_loader(self._device)

    def __len__(self) -> int:
        return len(self._loader)

    def __getattr__(self, name: str) -> Any:
        """What the loader has (dataset, batch_size, ...): trainers ask the wrapper for it."""
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._loader, name)

    def close(self) -> None:
        """End the current iteration."""
        if self._parallel_loader is not None:
            self._parallel_loader.close()
            self._parallel_loader = None


# Threads must not be in the middle of an upload when the interpreter goes away: it would die of it.
# They may outlive their loader, which closes its lanes and does not wait.
_running: weakref.WeakSet[ParallelLoader] = weakref.WeakSet()
_started: weakref.WeakSet[threading.Thread] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for loader in list(_running):
        _close(loader._lanes.values())
    for thread in list(_started):
        thread.join(timeout=5)


def _close(lanes: Iterable[_Lane]) -> None:
    for lane in lanes:
        lane.close()


def _thread(target: Callable[..., None], *args: Any) -> threading.Thread:
    thread = threading.Thread(target=target, args=args, daemon=True, name=f"xla{target.__name__}")
    _started.add(thread)
    thread.start()
    return thread


def _read(batches: Iterable[Any], lanes: Sequence[_Lane]) -> None:
    """Deal batches out to the lanes, a whole group at a time; an error goes to all of them."""
    group: list[Any] = []
    try:
        for batch in batches:
            group.append(batch)
            if len(group) == len(lanes):
                for lane, item in zip(lanes, group, strict=True):
                    lane.read.put((item, None))
                group = []
            if all(lane.read.closed for lane in lanes):
                break
    except BaseException as error:  # of the user's dataset: raised by next()
        for lane in lanes:
            lane.read.put((None, error))
    for lane in lanes:
        lane.read.close_write()


def _upload(lane: _Lane, sharding: Any) -> None:
    """Upload batches of one lane; with several threads, order is that of reading."""
    while True:
        future: Future[Any] = Future()
        with lane.order:
            item = lane.read.get()
            if item is None:
                break
            lane.uploaded.put(future)
        batch, error = item
        try:
            if error is not None:
                raise error
            future.set_result(_to_device(batch, lane.device, sharding))
        except BaseException as raised:
            future.set_exception(raised)
        del batch, item, error, future
    lane.uploaded.close_write()


def _to_device(batch: Any, device: torch.device, sharding: Any) -> Any:
    """The batch with each CPU tensor on `device`; everything else as it is."""
    if isinstance(sharding, dict):
        if not isinstance(batch, dict):
            raise ValueError("input batch should be a dict when input sharding is a dict.")
        missing = [key for key in batch if key not in sharding]
        if missing:
            raise KeyError(f"Keys: {missing} are missing from input_sharding.")
        return {key: _to_device(part, device, sharding[key]) for key, part in batch.items()}

    def on_cpu(part: Any) -> bool:
        if isinstance(part, PackedSequence):
            return True
        return isinstance(part, torch.Tensor) and part.device.type == "cpu"

    def upload(part: Any) -> Any:
        if not isinstance(part, torch.Tensor):  # a PackedSequence, whose batch sizes stay behind
            return part.to(device)
        if sharding is not None and sharding.can_apply(part) and sharding.takes_parts:
            return sharding.joined(part)
        value = sync.upload(pending.trace(device), part)
        made = values.tensor(value)
        if sharding is not None and sharding.can_apply(made):
            sharding.apply(made)
        sync.place(value)  # in SPMD mode it waits on the host until now
        return made

    return for_each_instance_rewrite(batch, on_cpu, upload)


def _of_one_size(batches: Iterable[Any], dim: int) -> Iterator[Any]:
    """The batches up to the first whose size differs from that of the first one."""
    first: int | None = None
    for batch in batches:
        size = _size(batch, dim)
        first = size if first is None else first
        if size != first:
            return
        yield batch


def _size(batch: Any, dim: int) -> int | None:
    """The size of a batch, by its first tensor."""
    sizes: list[int] = []
    for_each_instance(
        batch,
        lambda part: isinstance(part, torch.Tensor) and part.dim() > dim,
        lambda part: sizes.append(part.shape[dim]),
    )
    return sizes[0] if sizes else None
