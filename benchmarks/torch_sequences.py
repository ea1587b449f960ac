"""Networks of sequences that the CPU's benchmark trains, of PyTorch's own layers.

Each forward returns the loss.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .torch_models import Problem


class Encoder(nn.Module):
    """A layer of BERT: attention and an MLP, each followed by dropout and a norm."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(
            width, heads, 4 * width, dropout, activation="gelu", batch_first=True
        )

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        return F.mse_loss(self.layer(x), target)


class LstmModel(nn.Module):
    """A language model: an embedding, two layers of LSTM, a head."""

    def __init__(self, vocabulary: int, narrow: int, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, narrow)
        self.lstm = nn.LSTM(narrow, width, num_layers=2, batch_first=True)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens: Tensor, target: Tensor) -> Tensor:
        x, _ = self.lstm(self.embedding(tokens))
        return F.cross_entropy(self.head(x).flatten(0, 1), target.flatten())


def bert_layer(
    batch: int = 4, length: int = 128, width: int = 768, heads: int = 12, dropout: float = 0.1
) -> Problem:
    return Problem(
        "bert_layer",
        lambda: Encoder(width, heads, dropout),
        lambda: (torch.randn(batch, length, width), torch.randn(batch, length, width)),
    )


def lstm(
    batch: int = 16, length: int = 32, vocabulary: int = 1000, narrow: int = 128, width: int = 256
) -> Problem:
    def inputs() -> tuple[Tensor, Tensor]:
        tokens = torch.randint(vocabulary, (batch, length + 1))
        return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()

    return Problem("lstm", lambda: LstmModel(vocabulary, narrow, width), inputs)
