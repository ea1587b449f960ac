"""Checkpoints by step, in a folder; one process writes whole tensors."""

from __future__ import annotations

from .manager import CheckpointManager as CheckpointManager
from .planners import SPMDLoadPlanner as SPMDLoadPlanner
from .planners import SPMDSavePlanner as SPMDSavePlanner
from .util import prime_optimizer as prime_optimizer
