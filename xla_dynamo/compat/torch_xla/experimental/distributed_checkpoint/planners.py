"""Planners for torch.distributed.checkpoint: PyTorch's own, as tensors are whole."""

from __future__ import annotations

from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner

SPMDLoadPlanner = DefaultLoadPlanner
SPMDSavePlanner = DefaultSavePlanner
