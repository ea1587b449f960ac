"""torch_xla.experimental.gru: torch.nn.GRU."""

from __future__ import annotations

from torch.nn import GRU as GRU
