"""What a training step costs on a TPU, computed on a machine that has none."""

from __future__ import annotations

from .analyze import analyze_training_step as analyze_training_step
from .analyze import lower_training_step as lower_training_step
