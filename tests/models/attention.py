"""Models with scaled_dot_product_attention: causal, with a mask, and plain."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float, causal: bool) -> None:
        super().__init__()
        self.heads, self.dropout, self.causal = heads, dropout, causal
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(dropout)
        )

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        batch, length, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        p = self.dropout if self.training else 0.0
        y = F.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, is_causal=self.causal, dropout_p=p
        )
        x = x + F.dropout(
            self.out(y.transpose(1, 2).reshape(batch, length, width)), self.dropout, self.training
        )
        return x + self.mlp(self.norm2(x))


class Gpt(nn.Module):
    """A GPT-2-shaped decoder: the embedding's weight is the head's."""

    vocabulary = 50

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.tokens = nn.Embedding(self.vocabulary, 32)
        self.positions = nn.Embedding(16, 32)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(Block(32, 4, dropout, causal=True) for _ in range(2))
        self.norm = nn.LayerNorm(32)
        self.head = nn.Linear(32, self.vocabulary, bias=False)
        self.head.weight = self.tokens.weight
        nn.init.normal_(self.head.weight, std=0.02)

    def forward(self, tokens: Tensor, target: Tensor) -> Tensor:
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.dropout(self.tokens(tokens) + self.positions(positions))
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), target.flatten())


class Vit(nn.Module):
    """A vision transformer; `masked` hides some patches from attention by a boolean mask."""

    def __init__(self, dropout: float, masked: bool) -> None:
        super().__init__()
        self.masked = masked
        self.patches = nn.Conv2d(3, 32, 8, 8)
        self.token = nn.Parameter(torch.zeros(1, 1, 32))
        self.positions = nn.Parameter(torch.randn(1, 17, 32) * 0.02)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(Block(32, 4, dropout, causal=False) for _ in range(2))
        self.norm = nn.LayerNorm(32)
        self.head = nn.Linear(32, 10)

    def forward(self, image: Tensor, target: Tensor) -> Tensor:
        patches = self.patches(image).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(patches), -1, -1), patches], 1) + self.positions
        mask = None
        if self.masked:
            seen = patches.detach().sum(-1) > 0
            mask = F.pad(seen, (1, 0), value=True)[:, None, None, :]
        x = self.dropout(x)
        for block in self.blocks:
            x = block(x, mask)
        return F.cross_entropy(self.head(self.norm(x)[:, 0]), target)


class DiffusionBlock(nn.Module):
    """Noise prediction: GroupNorm, SiLU, grouped and depthwise convolution, time, attention."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        c = 16
        self.channels = c
        self.time = nn.Sequential(nn.Linear(c, c), nn.SiLU(), nn.Linear(c, c))
        self.stem = nn.Conv2d(3, c, 3, padding=1)
        self.norm1, self.norm2, self.norm3 = (nn.GroupNorm(4, c) for _ in range(3))
        self.grouped = nn.Conv2d(c, c, 3, padding=1, groups=4)
        self.depthwise = nn.Conv2d(c, c, 3, padding=1, groups=c)
        self.dropout = nn.Dropout(dropout)
        self.down = nn.Conv2d(c, c, 3, 2, 1)
        self.qkv = nn.Conv2d(c, 3 * c, 1)
        self.head = nn.Conv2d(c, 3, 3, padding=1)

    def forward(self, x: Tensor, time: Tensor, noise: Tensor) -> Tensor:
        x = self.stem(x)
        r = self.grouped(F.silu(self.norm1(x))) + self.embed(time, x.dtype)[:, :, None, None]
        x = x + self.depthwise(self.dropout(F.silu(self.norm2(r))))
        y = F.silu(self.down(x))
        y = y + self.attend(self.norm3(y))
        y = F.interpolate(y, scale_factor=2.0, mode="nearest")
        return F.mse_loss(self.head(x + y), noise)

    def embed(self, time: Tensor, dtype: torch.dtype) -> Tensor:
        half = self.channels // 2
        steps = torch.arange(half, device=time.device, dtype=dtype)
        angles = time[:, None].to(dtype) * torch.exp(-math.log(10_000) * steps / half)
        return self.time(torch.cat([angles.sin(), angles.cos()], -1))

    def attend(self, x: Tensor) -> Tensor:
        batch, channels, height, width = x.shape
        q, k, v = self.qkv(x).view(batch, 3, 1, channels, -1).transpose(-1, -2).unbind(1)
        y = F.scaled_dot_product_attention(q, k, v)
        return y.transpose(-1, -2).reshape(batch, channels, height, width)
