"""torch_xla.experimental.pjrt_backend: importing it gave torch.distributed the method pjrt://."""

from __future__ import annotations

from ..distributed import xla_backend as xla_backend
