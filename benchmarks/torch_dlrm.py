"""The recommendation model that the CPU's benchmark trains; its forward returns the loss."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .torch_models import Problem

DENSE = 13  # numbers of a sample, as in Criteo's data


class Dlrm(nn.Module):
    """DLRM: an MLP of a sample's numbers, a bag of rows of each table, and their dot products."""

    first: Tensor
    second: Tensor

    def __init__(self, tables: int, rows: int, width: int) -> None:
        super().__init__()
        bags = [nn.EmbeddingBag(rows, width, mode="sum") for _ in range(tables)]
        for bag in bags:
            nn.init.uniform_(bag.weight, -(rows**-0.5), rows**-0.5)
        self.tables = nn.ModuleList(bags)
        self.bottom = nn.Sequential(
            nn.Linear(DENSE, 64), nn.ReLU(), nn.Linear(64, width), nn.ReLU()
        )
        first, second = torch.triu_indices(tables + 1, tables + 1, 1)
        self.register_buffer("first", first)  # of each pair of vectors
        self.register_buffer("second", second)
        self.top = nn.Sequential(nn.Linear(width + len(first), 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, dense: Tensor, indices: Tensor, clicked: Tensor) -> Tensor:
        own = self.bottom(dense)
        bags = [table(indices[:, k]) for k, table in enumerate(self.tables)]
        vectors = torch.stack((own, *bags), 1)
        products = torch.bmm(vectors, vectors.mT)[:, self.first, self.second]
        score = self.top(torch.cat((own, products), 1)).squeeze(1)
        return F.binary_cross_entropy_with_logits(score, clicked)


def dlrm(
    batch: int = 256, tables: int = 8, bag: int = 4, rows: int = 10_000, width: int = 16
) -> Problem:
    def inputs() -> tuple[Tensor, ...]:
        indices = torch.randint(rows, (batch, tables, bag))
        return torch.randn(batch, DENSE), indices, torch.randint(2, (batch,)).float()

    return Problem("dlrm", lambda: Dlrm(tables, rows, width), inputs)
