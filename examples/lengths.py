"""Train on sentences of many lengths with few programs: python examples/lengths.py

XLA compiles for fixed sizes. options={"bucket": "powers_of_two"} makes one program serve all
lengths up to the next power of two, with the results of the program for exactly that length.
"""

from __future__ import annotations

import argparse
import random

import torch
from rich.progress import track
from torch import Tensor, nn
from torch.nn import functional as F

import xla_dynamo

BATCH, LETTERS, WIDTH = 32, 12, 64


class Reader(nn.Module):
    """A transformer's layer, and a decision from the mean of what it gives."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(LETTERS, WIDTH)
        self.layer = nn.TransformerEncoderLayer(WIDTH, 4, 128, 0.0, batch_first=True)
        self.head = nn.Linear(WIDTH, 2)

    def forward(self, text: Tensor) -> Tensor:
        return self.head(self.layer(self.embedding(text)).mean(1))


def batch(length: int) -> tuple[Tensor, Tensor]:
    """Sentences of one length, and whether each has more letters 0 than letters 1."""
    text = torch.randint(LETTERS, (BATCH, length))
    return text, ((text == 0).sum(1) > (text == 1).sum(1)).long()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--bucket", default="powers_of_two", help="or half_steps, 64, none, ...")
    options = parser.parse_args()

    torch.manual_seed(0)
    lengths = random.Random(0)
    model = Reader()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    settings = {} if options.bucket == "none" else {"bucket": options.bucket}

    @torch.compile(backend="xla", options=settings)
    def loss_of(text: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
        scores = model(text)
        return F.cross_entropy(scores, label), (scores.argmax(1) == label).float().mean()

    seen, right = set[int](), torch.zeros(options.steps)
    for step in track(range(options.steps), "Training"):
        length = lengths.randint(5, 128)
        text, label = batch(length)
        torch._dynamo.mark_dynamic(text, 1)  # or wait: from the second length on, Dynamo knows
        loss, accuracy = loss_of(text, label)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        seen.add(length)
        right[step] = accuracy.detach()

    print(f"lengths   {len(seen)}, from {min(seen)} to {max(seen)}")
    print(f"programs  {len(xla_dynamo.compiles())}, forward and backward")
    print(f"right     {right[:20].mean():.0%} at first, {right[-20:].mean():.0%} at the end")


if __name__ == "__main__":
    main()
