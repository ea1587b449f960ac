"""What is combined: interpreters and packages from the oldest that work to the newest."""

from __future__ import annotations

import glob
import shutil
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Combination:
    """One environment.

    python: "3.12"; others are versions of packages; torch_xla: of the real one, beside ours.
    why: who has it.
    """

    python: str
    torch: str
    jax: str
    transformers: str = "5.23.0"
    torch_xla: str = ""
    why: str = ""

    @property
    def name(self) -> str:
        beside = f"-xla{self.torch_xla}" if self.torch_xla else ""
        return f"py{self.python}-torch{self.torch}-jax{self.jax}{beside}"

    def packages(self) -> list[str]:
        """What pip is to install, beside the project itself."""
        beside = [f"torch_xla=={self.torch_xla}"] if self.torch_xla else []
        jax = [f"jax=={self.jax}", f"jaxlib=={self.jax}"]
        return [f"torch=={self.torch}", *jax, f"transformers=={self.transformers}", *beside]


COMBINATIONS = (
    Combination("3.11", "2.9.0", "0.7.2", "4.57.6", why="the oldest of all"),
    Combination("3.11", "2.13.0", "0.10.2", why="what the whole suite runs on"),
    Combination("3.12", "2.9.0", "0.7.2", "4.57.6", "2.9.0", why="Colab and Kaggle"),
    Combination("3.12", "2.10.0", "0.8.3", "4.57.6"),
    Combination("3.12", "2.11.0", "0.9.2"),
    Combination("3.12", "2.12.1", "0.11.0"),
    Combination("3.13", "2.9.1", "0.10.2", why="an old torch on a newer Python"),
    Combination("3.13", "2.14.1", "0.11.2"),
    Combination("3.13", "2.13.0", "0.12.0.1"),
    Combination("3.13", "2.15.0", "0.12.0.1", why="what plain pip takes from Python 3.12 on"),
    Combination("3.14", "2.15.0", "0.12.0.1", why="the newest of all"),
)

# Sixty operators of all families, each behind both doors.
_OPERATORS = """
add mul div.no_rounding_mode pow exp log sigmoid tanh nn.functional.gelu nn.functional.silu
nn.functional.relu clamp where eq lt logical_and bitwise_xor floor_divide remainder isnan sum mean
var amax argmax cumsum prod norm logsumexp softmax log_softmax nn.functional.layer_norm
nn.functional.batch_norm nn.functional.group_norm nn.functional.cross_entropy
nn.functional.mse_loss mm bmm addmm einsum nn.functional.linear nn.functional.conv2d
nn.functional.conv_transpose2d nn.functional.max_pool2d nn.functional.avg_pool2d
nn.functional.interpolate.bilinear nn.functional.embedding nn.functional.pad.constant
nn.functional.scaled_dot_product_attention cat stack chunk index_select gather scatter index_put
sort topk tril flip roll linalg.qr linalg.solve fft.rfft
"""
OPERATORS = tuple(_OPERATORS.split())


def interpreter(python: str) -> Path | None:
    """The interpreter of a version such as "3.12", from PATH or pyenv; None if there is none."""
    found = shutil.which(f"python{python}")
    candidates = sorted(glob.glob(str(Path.home() / f".pyenv/versions/{python}.*/bin/python")))
    return Path(candidates[-1]) if candidates else (Path(found) if found else None)
