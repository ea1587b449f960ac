"""torch_xla.amp: mixed precision on xla devices, and loss scaling without reading the device."""

from __future__ import annotations

from .autocast_mode import autocast as autocast
from .autocast_mode import custom_bwd as custom_bwd
from .autocast_mode import custom_fwd as custom_fwd
from .grad_scaler import GradScaler as GradScaler
