"""Networks of images that the CPU's benchmark trains: a ConvNeXt and a U-Net, cut down in size.

Each forward returns the loss.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .torch_models import Problem


class ChannelNorm(nn.LayerNorm):
    """Layer norm over the channels of images whose dimensions are NCHW."""

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class ConvNextBlock(nn.Module):
    """A depthwise convolution, and a channels-last MLP whose result is scaled down at first."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 7, 1, 3, groups=width)
        self.norm = nn.LayerNorm(width, 1e-6)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.scale = nn.Parameter(torch.full((width,), 1e-6))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        y = self.scale * self.down(F.gelu(self.up(y)))
        return x + y.permute(0, 3, 1, 2)


class ConvNext(nn.Module):
    """Two stages of ConvNeXt: a stem that is a quarter of the image's size, and its half."""

    def __init__(self, widths: tuple[int, int], depth: int, classes: int = 10) -> None:
        super().__init__()
        first, second = widths
        self.stem, self.stem_norm = nn.Conv2d(3, first, 4, 4), ChannelNorm(first, 1e-6)
        self.stage1 = nn.Sequential(*(ConvNextBlock(first) for _ in range(depth)))
        self.shrink_norm, self.shrink = ChannelNorm(first, 1e-6), nn.Conv2d(first, second, 2, 2)
        self.stage2 = nn.Sequential(*(ConvNextBlock(second) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(second, 1e-6), nn.Linear(second, classes)

    def forward(self, image: Tensor, label: Tensor) -> Tensor:
        x = self.stage1(self.stem_norm(self.stem(image)))
        x = self.stage2(self.shrink(self.shrink_norm(x)))
        return F.cross_entropy(self.head(self.norm(x.mean((2, 3)))), label)


def _two_convolutions(channels: int, width: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for before in (channels, width):
        layers += [nn.Conv2d(before, width, 3, 1, 1), nn.GroupNorm(8, width), nn.SiLU()]
    return nn.Sequential(*layers)


class UNet(nn.Module):
    """Eleven convolutions at three sizes; what a size had on the way down joins on the way up."""

    def __init__(self, channels: int = 4, width: int = 32) -> None:
        super().__init__()
        self.down1 = _two_convolutions(channels, width)
        self.down2 = _two_convolutions(width, 2 * width)
        self.middle = _two_convolutions(2 * width, 2 * width)
        self.up2 = _two_convolutions(4 * width, width)
        self.up1 = _two_convolutions(2 * width, width)
        self.out = nn.Conv2d(width, channels, 1)

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        whole = self.down1(x)
        half = self.down2(F.max_pool2d(whole, 2))
        x = self.middle(F.max_pool2d(half, 2))
        x = self.up2(torch.cat((F.interpolate(x, scale_factor=2.0), half), 1))
        x = self.up1(torch.cat((F.interpolate(x, scale_factor=2.0), whole), 1))
        return F.mse_loss(self.out(x), target)


def convnext(
    batch: int = 8, size: int = 128, widths: tuple[int, int] = (48, 96), depth: int = 2
) -> Problem:
    return Problem(
        "convnext",
        lambda: ConvNext(widths, depth),
        lambda: (torch.randn(batch, 3, size, size), torch.randint(10, (batch,))),
    )


def unet(batch: int = 4, size: int = 64, width: int = 32) -> Problem:
    return Problem(
        "unet",
        lambda: UNet(4, width),
        lambda: (torch.randn(batch, 4, size, size), torch.randn(batch, 4, size, size)),
    )
