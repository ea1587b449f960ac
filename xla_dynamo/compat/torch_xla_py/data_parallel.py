"""torch_xla_py.data_parallel of 2019: loaders give `(i, batch)`, always."""

from __future__ import annotations

from typing import Any

import torch
from torch_xla.distributed import data_parallel as later
from torch_xla.distributed import parallel_loader as loaders
from torch_xla.distributed.data_parallel import Context as Context
from torch_xla.distributed.data_parallel import ThreadResult as ThreadResult


class PerDeviceLoader(loaders.PerDeviceLoader):
    """Iterates over `(i, batch)` of one device."""

    def __init__(self, loader: loaders.ParallelLoader, device: Any) -> None:
        super().__init__(loader, torch.device(device), number=lambda batch: True)


class ParallelLoader(loaders.ParallelLoader):
    """Wraps a loader with background upload; items are `(i, batch)`."""

    def per_device_loader(self, device: Any) -> PerDeviceLoader:
        """The iterator over the batches of one device."""
        return PerDeviceLoader(self, device)


class DataParallel(later.DataParallel):
    """Trains copies of a model on several devices; loaders give `(i, batch)`."""

    numbered = True
