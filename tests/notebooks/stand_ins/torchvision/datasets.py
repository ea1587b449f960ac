"""Data sets of noise, in which a bright row tells the class."""

from __future__ import annotations

import os
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset


class _Images(Dataset[tuple[Tensor, int]]):
    shape: tuple[int, int, int]

    def __init__(self, root: str, train: bool = True, download: bool = False, **more: Any) -> None:
        self._first = 0 if train else 1 << 20
        self._count = int(os.environ["STAND_IN_ROWS"])

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        generator = torch.Generator().manual_seed(self._first + index)
        image, label = torch.randn(self.shape, generator=generator), index % 10
        height = self.shape[1] // 10
        image[:, label * height : (label + 1) * height] += 2
        return image, label


class MNIST(_Images):
    shape = (1, 28, 28)


class FashionMNIST(_Images):
    """As the notebook about AlexNet has them: in colors, and enlarged."""

    shape = (3, 224, 224)


class CIFAR10(_Images):
    shape = (3, 32, 32)
