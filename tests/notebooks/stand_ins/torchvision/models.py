"""AlexNet, with torchvision's layers."""

from __future__ import annotations

from torch import nn


def alexnet(num_classes: int = 1000) -> nn.Module:
    def convolution(*args: int, **kwargs: int) -> tuple[nn.Module, nn.Module]:
        return nn.Conv2d(*args, **kwargs), nn.ReLU()  # type: ignore[arg-type]

    return nn.Sequential(
        *convolution(3, 64, 11, stride=4, padding=2),
        nn.MaxPool2d(3, 2),
        *convolution(64, 192, 5, padding=2),
        nn.MaxPool2d(3, 2),
        *convolution(192, 384, 3, padding=1),
        *convolution(384, 256, 3, padding=1),
        *convolution(256, 256, 3, padding=1),
        nn.MaxPool2d(3, 2),
        nn.AdaptiveAvgPool2d(6),
        nn.Flatten(),
        nn.Dropout(),
        nn.Linear(256 * 36, 4096),
        nn.ReLU(),
        nn.Dropout(),
        nn.Linear(4096, 4096),
        nn.ReLU(),
        nn.Linear(4096, num_classes),
    )
