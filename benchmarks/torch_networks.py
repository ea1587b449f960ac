"""Networks at the widths of well-known ones, cut down to two layers, for the TPU's compiler.

Each forward returns the loss. They are trained in float32, after `model.to(torch.bfloat16)`, and
within `torch.autocast`.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .torch_models import Problem

WIDTH, HEADS, LENGTH, VOCABULARY, BATCH = 768, 12, 256, 8192, 4


class Attention(nn.Module):
    """Queries of `x`, keys and values of `context`, which may be of another width."""

    def __init__(self, width: int, heads: int, key_heads: int = 0, context: int = 0) -> None:
        super().__init__()
        self.heads, self.key_heads = heads, key_heads or heads
        narrow = width // heads * self.key_heads
        self.q, self.out = nn.Linear(width, width), nn.Linear(width, width)
        self.k, self.v = (nn.Linear(context or width, narrow) for _ in range(2))

    def forward(self, x: Tensor, context: Tensor | None = None, *, causal: bool = False) -> Tensor:
        context = x if context is None else context
        q = self.split(self.q(x), self.heads)
        k, v = (self.split(layer(context), self.key_heads) for layer in (self.k, self.v))
        return self.join(attend(q, k, v, causal))

    def split(self, x: Tensor, heads: int) -> Tensor:
        return x.view(*x.shape[:2], heads, -1).transpose(1, 2)

    def join(self, y: Tensor) -> Tensor:
        return self.out(y.transpose(1, 2).flatten(2))


def attend(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
    shared = q.shape[1] != k.shape[1]
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=shared)


class Mlp(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.gelu(self.up(x)))


class GptLayer(nn.Module):
    """Queries, keys and values of one product, as in GPT-2."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = Mlp(WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.qkv(self.norm1(x)).split(WIDTH, 2)
        q, k, v = (t.view(*x.shape[:2], HEADS, -1).transpose(1, 2) for t in parts)
        x = x + self.out(attend(q, k, v, True).transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm2(x))


class BertLayer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention, self.mlp = Attention(WIDTH, HEADS), Mlp(WIDTH)
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm1(x + self.attention(x))
        return self.norm2(x + self.mlp(x))


class VitLayer(BertLayer):
    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class LanguageModel(nn.Module):
    """Token and place embeddings, layers, and a head that is the token embedding's weight."""

    def __init__(self, layer: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.layers, self.norm = nn.ModuleList(layer() for _ in range(2)), nn.LayerNorm(WIDTH)

    def forward(self, tokens: Tensor, target: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1]))
        for layer in self.layers:
            x = layer(x)
        return token_loss(F.linear(self.norm(x), self.tokens.weight), target)


def token_loss(logits: Tensor, target: Tensor) -> Tensor:
    """As in transformers: in float32, and one row for each token."""
    return F.cross_entropy(logits.float().view(-1, logits.shape[-1]), target.flatten())


class LlamaLayer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = Attention(WIDTH, HEADS, key_heads=4)
        self.norm1, self.norm2 = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.gate, self.up = (nn.Linear(WIDTH, 2048, bias=False) for _ in range(2))
        self.down = nn.Linear(2048, WIDTH, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        y, own = self.norm1(x), self.attention
        q, k = (
            rotated(own.split(layer(y), heads), cos, sin)
            for layer, heads in ((own.q, own.heads), (own.k, own.key_heads))
        )
        x = x + own.join(attend(q, k, own.split(own.v(y), own.key_heads), True))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat((-second, first), -1) * sin


class Llama(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(LlamaLayer() for _ in range(2))
        self.norm, self.head = nn.RMSNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens: Tensor, target: Tensor) -> Tensor:
        x = self.tokens(tokens)
        size = WIDTH // HEADS
        angles = torch.arange(tokens.shape[1])[:, None] / 1e4 ** (torch.arange(0, size, 2) / size)
        angles = torch.cat((angles, angles), -1)
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        for layer in self.layers:
            x = layer(x, cos, sin)
        return token_loss(self.head(self.norm(x)), target)


class Vit(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, 16, 16)
        self.first = nn.Parameter(torch.zeros(1, 1, WIDTH))
        self.positions = nn.Parameter(torch.randn(1, 197, WIDTH))
        self.layers, self.norm = nn.ModuleList(VitLayer() for _ in range(2)), nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, 1000)

    def forward(self, image: Tensor, label: Tensor) -> Tensor:
        x = self.patches(image).flatten(2).transpose(1, 2)
        x = torch.cat((self.first.expand(len(x), -1, -1), x), 1) + self.positions
        for layer in self.layers:
            x = layer(x)
        return F.cross_entropy(self.head(self.norm(x)[:, 0]).float(), label)


class Bottleneck(nn.Module):
    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 1, bias=False)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.conv3 = nn.Conv2d(width, 4 * width, 1, bias=False)
        self.bn1, self.bn2 = nn.BatchNorm2d(width), nn.BatchNorm2d(width)
        self.bn3, self.bn4 = nn.BatchNorm2d(4 * width), nn.BatchNorm2d(4 * width)
        self.shortcut = nn.Conv2d(channels, 4 * width, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))))
        return F.relu(self.bn3(self.conv3(y)) + self.bn4(self.shortcut(x)))


class ResNet50(nn.Module):
    """The first block of each stage."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64)
        sizes = ((64, 64, 1), (256, 128, 2), (512, 256, 2), (1024, 512, 2))
        self.blocks = nn.ModuleList(Bottleneck(*size) for size in sizes)
        self.head = nn.Linear(2048, 1000)

    def forward(self, image: Tensor, label: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(image))), 3, 2, 1)
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(x.mean((2, 3))).float(), label)


class UNetBlock(nn.Module):
    """Of a diffusion model: convolutions with the time, attention to itself and to a text."""

    def __init__(self, width: int = 320) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(32, width), nn.GroupNorm(32, width)
        self.conv1, self.conv2 = (nn.Conv2d(width, width, 3, 1, 1) for _ in range(2))
        self.time = nn.Linear(1280, width)
        self.norm3, self.norm4, self.norm5 = (nn.LayerNorm(width) for _ in range(3))
        self.attention, self.mlp = Attention(width, 5), Mlp(width)
        self.cross = Attention(width, 5, context=768)

    def forward(self, x: Tensor, time: Tensor, text: Tensor, target: Tensor) -> Tensor:
        y = self.conv1(F.silu(self.norm1(x))) + self.time(F.silu(time))[:, :, None, None]
        x = x + self.conv2(F.silu(self.norm2(y)))
        rows = x.flatten(2).transpose(1, 2)
        rows = rows + self.attention(self.norm3(rows))
        rows = rows + self.cross(self.norm4(rows), text)
        rows = rows + self.mlp(self.norm5(rows))
        return F.mse_loss(rows.transpose(1, 2).float(), target.flatten(2).float())


def _tokens() -> tuple[Tensor, ...]:
    return tuple(torch.randint(VOCABULARY, (BATCH, LENGTH)) for _ in range(2))


def _images(size: int) -> Callable[[], tuple[Tensor, ...]]:
    return lambda: (torch.randn(8, 3, size, size), torch.randint(1000, (8,)))


def _diffused() -> tuple[Tensor, ...]:
    image = torch.randn(2, 4, 320, 32, 32)
    return image[0], torch.randn(4, 1280), torch.randn(4, 77, 768), image[1]


NETWORKS: dict[str, Problem] = {
    "gpt2": Problem("gpt2", lambda: LanguageModel(GptLayer), _tokens),
    "bert": Problem("bert", lambda: LanguageModel(BertLayer), _tokens),
    "llama": Problem("llama", Llama, _tokens),
    "vit": Problem("vit", Vit, _images(224)),
    "resnet50": Problem("resnet50", ResNet50, _images(128)),
    "unet": Problem("unet", UNetBlock, _diffused),
}
