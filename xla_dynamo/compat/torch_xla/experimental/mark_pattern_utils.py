"""Composites: marks around a pattern for a compiler that knows it. Programs here carry no marks."""

from __future__ import annotations

from typing import Any

import torch


class StableHLOCompositeBuilder:
    """Marks the inputs and outputs of a composite; the computation is the same."""

    def __init__(self, name: str, attr: dict[str, Any] | None = None) -> None:
        self.name = name
        self.attr = attr

    def mark_inputs(self, *tensors: torch.Tensor) -> Any:
        """The tensors: one as it is, several as a tuple."""
        return tensors[0] if len(tensors) == 1 else tensors

    def mark_outputs(self, *tensors: torch.Tensor) -> Any:
        """The tensors: one as it is, several as a tuple."""
        return tensors[0] if len(tensors) == 1 else tensors
