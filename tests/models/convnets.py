"""Convolutional networks, each a module whose forward returns the loss."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Mlp(nn.Module):
    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 10)
        )

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(self.layers(x), target)


class Mnist(nn.Module):
    """The convnet of torch_xla's test_train_mp_mnist.py, narrower and with MNIST's dropout."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, kernel_size=5)
        self.bn1 = nn.BatchNorm2d(6)
        self.conv2 = nn.Conv2d(6, 8, kernel_size=5)
        self.bn2 = nn.BatchNorm2d(8)
        self.dropout = nn.Dropout(dropout)
        self.fc1 = nn.Linear(128, 24)
        self.fc2 = nn.Linear(24, 10)

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        x = self.bn1(F.relu(F.max_pool2d(self.conv1(x), 2)))
        x = self.bn2(F.relu(F.max_pool2d(self.conv2(x), 2)))
        x = self.dropout(F.relu(self.fc1(torch.flatten(x, 1))))
        return F.nll_loss(F.log_softmax(self.fc2(x), dim=1), target)


class BasicBlock(nn.Module):
    expansion = 1

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, width, 3, stride, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, 1, 1, bias=False),
            nn.BatchNorm2d(width),
        )
        self.shortcut = _shortcut(channels, width, stride)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.body(x) + self.shortcut(x))


class Bottleneck(nn.Module):
    expansion = 4

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, width, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, stride, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, 4 * width, 1, bias=False),
            nn.BatchNorm2d(4 * width),
        )
        self.shortcut = _shortcut(channels, 4 * width, stride)

    def forward(self, x: Tensor) -> Tensor:
        y = self.body(x)
        y += self.shortcut(x)
        return F.relu_(y)


def _shortcut(channels: int, width: int, stride: int) -> nn.Module:
    if stride == 1 and channels == width:
        return nn.Identity()
    return nn.Sequential(nn.Conv2d(channels, width, 1, stride, bias=False), nn.BatchNorm2d(width))


class ResNet(nn.Module):
    """torchvision's ResNet with another first width.

    Residual branches start at a fifth of their size. At full size the narrow network is chaotic:
    in eager float64, a change of 1e-15 in the parameters of ResNet-50 grows to 1e-6 in the
    gradients of the fifth step; so, to 3e-13.
    """

    def __init__(
        self, block: type[BasicBlock | Bottleneck], depths: tuple[int, ...], width: int
    ) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 7, 2, 3, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, 1),
        )
        blocks: list[BasicBlock | Bottleneck] = []
        channels = width
        for stage, depth in enumerate(depths):
            for index in range(depth):
                stride = 2 if stage > 0 and index == 0 else 1
                blocks.append(block(channels, width << stage, stride))
                nn.init.constant_(blocks[-1].body[-1].weight, 0.2)
                channels = (width << stage) * block.expansion
        self.blocks = nn.Sequential(*blocks)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(channels, 10)

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        features = self.pool(self.blocks(self.stem(x))).flatten(1)
        return F.cross_entropy(self.head(features), target)


def _conv_bn_relu(channels: int, width: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(channels, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(inplace=True)
    )


class UNet(nn.Module):
    """Two levels down; up once by transposed convolution, once by interpolation in `mode`."""

    def __init__(self, mode: str) -> None:
        super().__init__()
        self.options = {"mode": mode} | ({} if mode == "nearest" else {"align_corners": False})
        self.down1 = _conv_bn_relu(3, 4)
        self.down2 = _conv_bn_relu(4, 8)
        self.bottom = _conv_bn_relu(8, 12)
        self.up2 = nn.ConvTranspose2d(12, 8, 2, 2)
        self.merge2 = _conv_bn_relu(16, 8)
        self.reduce = nn.Conv2d(8, 4, 1)
        self.merge1 = _conv_bn_relu(8, 4)
        self.head = nn.Conv2d(4, 5, 1)

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        a = self.down1(x)
        b = self.down2(F.max_pool2d(a, 2))
        c = self.bottom(F.avg_pool2d(b, 2))
        d = self.merge2(torch.cat([self.up2(c), b], 1))
        e = self.reduce(F.interpolate(d, scale_factor=2, **self.options))
        return F.cross_entropy(self.head(self.merge1(torch.cat([e, a], 1))), target)
