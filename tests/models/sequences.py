"""Recurrent networks, and a recommender with bags of embeddings."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Recurrent(nn.Module):
    """A tagger over a two-layer, bidirectional nn.LSTM, nn.GRU or nn.RNN."""

    def __init__(self, kind: type[nn.RNNBase], dropout: float) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, 8)
        self.layers = kind(
            8, 12, num_layers=2, batch_first=True, bidirectional=True, dropout=dropout
        )
        self.head = nn.Linear(24, 20)

    def forward(self, tokens: Tensor, target: Tensor) -> Tensor:
        features, _ = self.layers(self.embedding(tokens))
        return F.cross_entropy(self.head(features).flatten(0, 1), target.flatten())


class Dlrm(nn.Module):
    """Dense and sparse features, their pairwise products, two MLPs."""

    def __init__(self, mode: str) -> None:
        super().__init__()
        self.bags = nn.ModuleList(nn.EmbeddingBag(30, 8, mode=mode) for _ in range(3))
        self.bottom = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 8))
        self.top = nn.Sequential(nn.Linear(8 + 6, 16), nn.ReLU(), nn.Linear(16, 1))
        rows, columns = torch.tril_indices(4, 4, -1)
        self.register_buffer("rows", rows)
        self.register_buffer("columns", columns)

    def forward(self, dense: Tensor, sparse: Tensor, offsets: Tensor, clicked: Tensor) -> Tensor:
        x = self.bottom(dense)
        bags = [bag(indices, offsets) for bag, indices in zip(self.bags, sparse, strict=True)]
        features = torch.stack([x, *bags], 1)
        products = torch.bmm(features, features.transpose(1, 2))[:, self.rows, self.columns]
        logits = self.top(torch.cat([x, products], 1)).squeeze(1)
        return F.binary_cross_entropy_with_logits(logits, clicked.to(logits.dtype))
