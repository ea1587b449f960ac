"""Data parallelism in one process: a loop function runs in a thread for each device.

Each thread has a copy of the model and every n-th batch; what it records of a step, which
xm.optimizer_step averages gradients in, becomes one launch over all devices.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from xla_dynamo.compat.device import replica_threads, step_barrier
from xla_dynamo.compat.device.replica_threads import ThreadResult as ThreadResult
from xla_dynamo.compat.execution.gang import Gang

from ..core import xla_model as xm
from .loop_target import nested_target
from .parallel_loader import ParallelLoader, PerDeviceLoader

LoopFn = Callable[..., Any]


class Context:
    """What a loop function keeps for its device from one epoch to the next."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def getattr_or(self, name: str, defval: Any) -> Any:
        """Attribute `name`; if there is none yet, `defval` (called, if it can be) becomes it."""
        if not hasattr(self, name):
            setattr(self, name, defval() if callable(defval) else defval)
        return getattr(self, name)


class DataParallel:
    """Trains copies of a model on several devices, each in a thread.

    Args:
        network: a module, or what makes one when called.
        device_ids: the devices; None for all, [] to run on the CPU with plain PyTorch.
        batchdim, drop_last: of ParallelLoader; here in 2019.
        kwargs: of ParallelLoader.
    """

    numbered = False  # in 2019 (torch_xla_py) loaders gave (i, batch), always

    def __init__(
        self,
        network: Any,
        device_ids: Iterable[Any] | None = None,
        batchdim: int = 0,
        **kwargs: Any,
    ) -> None:
        found = xm.get_xla_supported_devices() if device_ids is None else device_ids
        self._device_ids = [str(device) for device in found or ()]
        self._native_run = not self._device_ids
        self._batchdim = batchdim
        self._kwargs = kwargs
        module = network if isinstance(network, torch.nn.Module) else network()
        if self._native_run:
            self._device_ids = [_device_of(module)]
            self._models = [module]
        else:
            self._models = [copy.deepcopy(module).to(device) for device in self._device_ids]
        self._contexts = [Context(torch.device(device)) for device in self._device_ids]
        self._gang = Gang([context.device for context in self._contexts])

    @property
    def devices(self) -> list[str]:
        """The devices, as strings."""
        return self._device_ids

    @property
    def models(self) -> list[torch.nn.Module]:
        """The copy of the model on each device."""
        return self._models

    def __call__(
        self,
        loop_fn: LoopFn,
        loader: Iterable[Any],
        *old: Any,
        fixed_batch_size: bool = False,
        batchdim: int | None = None,
        **kwargs: Any,
    ) -> list[Any]:
        """Run one epoch.

        Args:
            loop_fn: called as loop_fn(model, device_loader, device, context, **kwargs) for each
                device.
            loader: the batches.
            old: fixed_batch_size and batchdim until 1.6, batchdim since.

        Returns:
            What loop_fn returned, for each device.

        Raises:
            What loop_fn raises, after printing it to stderr.
        """
        for argument in old:
            if isinstance(argument, bool):
                fixed_batch_size = argument
            else:
                batchdim = argument
        number = _numbering(self.numbered, loop_fn)
        if self._native_run:
            batches = _NativeLoader(loader, number)
            return [loop_fn(self._models[0], batches, *self._place(0), **kwargs)]
        for device in self._device_ids:
            step_barrier.launch(device)  # what the run before has left, of which replicas differ
        xm.wait_device_ops()
        parallel = ParallelLoader(
            loader,
            self._device_ids,
            batchdim=self._batchdim if batchdim is None else batchdim,
            fixed_batch_size=fixed_batch_size,
            **self._kwargs,
        )
        try:
            return self._run(loop_fn, parallel, number, kwargs)
        finally:
            parallel.close()

    def _place(self, rank: int) -> tuple[torch.device, Context]:
        return torch.device(self._device_ids[rank]), self._contexts[rank]

    def _run(
        self, loop_fn: LoopFn, parallel: ParallelLoader, number: Any, kwargs: dict[str, Any]
    ) -> list[Any]:
        def loop(rank: int) -> Any:
            device, context = self._place(rank)
            batches = PerDeviceLoader(parallel, device, number)
            return loop_fn(self._models[rank], batches, device, context, **kwargs)

        return replica_threads.run(self._gang, [of.device for of in self._contexts], loop)


def _device_of(module: torch.nn.Module) -> str:
    devices = {str(parameter.device) for parameter in module.parameters()}
    if len(devices) > 1:
        raise RuntimeError(f"Model uses more than one device: {sorted(devices)}")
    return devices.pop() if devices else "cpu"


def _numbering(always: bool, loop_fn: LoopFn) -> Callable[[Any], bool] | None:
    """Which batches the loop takes as (i, batch)."""
    if always:
        return lambda batch: True
    inner = nested_target(loop_fn)
    if inner is None:
        return None

    def lacks_number(batch: Any) -> bool:
        pair = isinstance(batch, (list, tuple)) and len(batch) == 2
        fits = pair and isinstance(batch[1], (list, tuple)) and len(batch[1]) == inner
        return not fits

    return lacks_number


class _NativeLoader:
    """The loader of a run on the CPU."""

    def __init__(self, loader: Iterable[Any], number: Callable[[Any], bool] | None) -> None:
        self._loader = loader
        self._number = number

    def __iter__(self) -> Iterator[Any]:
        for index, batch in enumerate(self._loader):
            yield (index, batch) if self._number is not None and self._number(batch) else batch

    def __len__(self) -> int:
        return len(self._loader)  # type: ignore[arg-type]
