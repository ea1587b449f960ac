"""The models that are measured, as PyTorch users write them; each forward returns the loss."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Mnist(nn.Module):
    """The convolutional network of PyTorch's MNIST example, which torch_xla's tests train too."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3)
        self.conv2 = nn.Conv2d(32, 64, 3)
        self.dropout1 = nn.Dropout(0.25)
        self.dropout2 = nn.Dropout(0.5)
        self.fc1 = nn.Linear(9216, 128)
        self.fc2 = nn.Linear(128, 10)

    def forward(self, image: Tensor, label: Tensor) -> Tensor:
        x = F.relu(self.conv2(F.relu(self.conv1(image))))
        x = torch.flatten(self.dropout1(F.max_pool2d(x, 2)), 1)
        x = self.dropout2(F.relu(self.fc1(x)))
        return F.nll_loss(F.log_softmax(self.fc2(x), dim=1), label)


class BasicBlock(nn.Module):
    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.downsample = None
        if stride != 1 or channels != width:
            self.downsample = nn.Sequential(
                nn.Conv2d(channels, width, 1, stride, bias=False), nn.BatchNorm2d(width)
            )

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet18(nn.Module):
    """torchvision's, with its parameter names."""

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        self.layer1 = nn.Sequential(BasicBlock(64, 64, 1), BasicBlock(64, 64, 1))
        self.layer2 = nn.Sequential(BasicBlock(64, 128, 2), BasicBlock(128, 128, 1))
        self.layer3 = nn.Sequential(BasicBlock(128, 256, 2), BasicBlock(256, 256, 1))
        self.layer4 = nn.Sequential(BasicBlock(256, 512, 2), BasicBlock(512, 512, 1))
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(512, classes)

    def forward(self, image: Tensor, label: Tensor) -> Tensor:
        x = self.maxpool(F.relu(self.bn1(self.conv1(image))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return F.cross_entropy(self.fc(torch.flatten(self.avgpool(x), 1)), label)


class Block(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + F.dropout(self.attend(self.norm1(x)), self.dropout)
        return x + F.dropout(self.down(F.gelu(self.up(self.norm2(x)))), self.dropout)

    def attend(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = (
            t.view(batch, length, self.heads, -1).transpose(1, 2) for t in self.qkv(x).chunk(3, -1)
        )
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=self.dropout, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class Gpt(nn.Module):
    """A GPT-2-shaped decoder: the embedding's weight is the head's."""

    def __init__(
        self, layers: int, width: int, heads: int, length: int, vocabulary: int, dropout: float
    ) -> None:
        super().__init__()
        self.dropout = dropout
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads, dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight
        nn.init.normal_(self.head.weight, std=0.02)

    def forward(self, tokens: Tensor, target: Tensor) -> Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = F.dropout(self.tokens(tokens) + self.positions(places), self.dropout)
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), target.flatten())


@dataclass(frozen=True)
class Problem:
    """A model and a batch of its inputs: `build()` gives both, random but always the same."""

    name: str
    model: Callable[[], nn.Module]
    batch: Callable[[], tuple[Tensor, ...]]

    def build(self) -> tuple[nn.Module, tuple[Tensor, ...]]:
        torch.manual_seed(0)
        return self.model().train(), self.batch()


def mnist(batch: int = 64) -> Problem:
    return Problem(
        "mnist",
        Mnist,
        lambda: (torch.randn(batch, 1, 28, 28), torch.randint(10, (batch,))),
    )


def resnet18(batch: int = 8, size: int = 64) -> Problem:
    return Problem(
        "resnet18",
        ResNet18,
        lambda: (torch.randn(batch, 3, size, size), torch.randint(1000, (batch,))),
    )


def gpt(
    batch: int = 8,
    layers: int = 4,
    width: int = 256,
    heads: int = 4,
    length: int = 128,
    vocabulary: int = 1000,
    dropout: float = 0.0,
) -> Problem:
    def inputs() -> tuple[Tensor, Tensor]:
        tokens = torch.randint(vocabulary, (batch, length + 1))
        return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()

    return Problem(
        "gpt_dropout" if dropout else "gpt",
        lambda: Gpt(layers, width, heads, length, vocabulary, dropout),
        inputs,
    )
