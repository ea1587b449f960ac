"""torch_xla.core.functions: collectives with gradients, and layers built on them; one replica."""

from __future__ import annotations

from typing import Any

import torch

from .._absent import absent
from . import _collectives


def all_reduce(
    reduce_type: str, value: torch.Tensor, scale: float = 1.0, groups: Any = None
) -> torch.Tensor:
    """The reduction over the replicas: `value` times `scale`, through which gradients flow."""
    reduced = _collectives.all_reduce(reduce_type, value, scale, groups)
    assert isinstance(reduced, torch.Tensor)
    return reduced


def all_gather(value: torch.Tensor, dim: int = 0) -> torch.Tensor:
    """The values of all replicas concatenated along `dim`: here a new equal tensor."""
    return value.clone()


def distributed_mm(w: torch.Tensor, x: torch.Tensor, split: int = 1) -> torch.Tensor:
    """w @ x, with w sharded over the replicas by rows: w is whole here.

    Raises:
        ValueError: `split` does not divide the columns of x.
    """
    if x.size(1) % split:
        raise ValueError(f"split={split} does not divide the {x.size(1)} columns of x")
    return w @ x


nms = absent("torch_xla.core.functions.nms: use torchvision.ops.nms")


class SyncBatchNorm(torch.nn.modules.batchnorm._BatchNorm):
    """Batch norm over (N, C, ...) with the statistics of all replicas: here of this batch."""

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float = 0.1) -> None:
        super().__init__(num_features, eps, momentum)

    def _check_input_dim(self, input: torch.Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"SyncBatchNorm takes (N, C, ...), got {list(input.shape)}")
