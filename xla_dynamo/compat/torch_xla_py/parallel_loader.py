"""torch_xla_py.parallel_loader: the loaders of data_parallel."""

from __future__ import annotations

from .data_parallel import ParallelLoader as ParallelLoader
from .data_parallel import PerDeviceLoader as PerDeviceLoader
