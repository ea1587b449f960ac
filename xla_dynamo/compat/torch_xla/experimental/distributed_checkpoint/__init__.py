"""torch_xla.experimental.distributed_checkpoint: checkpoints of tensors that lie in parts."""

from __future__ import annotations

from .manager import CheckpointManager as CheckpointManager
from .planners import SPMDLoadPlanner as SPMDLoadPlanner
from .planners import SPMDSavePlanner as SPMDSavePlanner
from .util import prime_optimizer as prime_optimizer
