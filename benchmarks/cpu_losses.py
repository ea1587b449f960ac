"""The hand-written JAX of each model in cpu_problems.py, by the name of its Problem."""

from __future__ import annotations

from . import jax_images, jax_models, jax_sequences
from .jax_models import Loss

TRAINING: dict[str, Loss] = {
    **jax_models.LOSSES,
    **jax_images.LOSSES,
    **jax_sequences.LOSSES,
}
EVALUATION: dict[str, Loss] = {
    **TRAINING,
    **jax_models.EVALUATIONS,
    **jax_sequences.EVALUATIONS,
}
