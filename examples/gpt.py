"""Train a GPT on this project's own documentation, letter by letter: python examples/gpt.py

The model and the optimizer are compiled with torch.compile(..., backend="xla"); two thousand steps
take minutes on two CPU cores, and then what it writes reads like the documentation, almost.
"""

from __future__ import annotations

import argparse
import logging
from pathlib import Path

import torch
from rich.progress import track
from torch import Tensor, nn
from torch.nn import functional as F

import xla_dynamo

CONTEXT, WIDTH, HEADS = 96, 128, 4
FOLDER = Path(__file__).resolve().parents[1]


class Block(nn.Module):
    """Causal attention, then a two-layer network."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)])
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.qkv(self.norms[0](x)).chunk(3, -1)
        q, k, v = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in parts)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norms[1](x))))


class Gpt(nn.Module):
    """Scores for the next letter at each position."""

    def __init__(self, letters: int, layers: int) -> None:
        super().__init__()
        self.letter, self.place = nn.Embedding(letters, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(layers)), nn.LayerNorm(WIDTH))
        self.head = nn.Linear(WIDTH, letters)

    def forward(self, text: Tensor) -> Tensor:
        return self.head(self.blocks(self.letter(text) + self.place.weight[: text.shape[1]]))


def documentation() -> str:
    """README, CONTRIBUTING and docs/, without the tables and what is no ASCII."""
    pages = [FOLDER / "README.md", FOLDER / "CONTRIBUTING.md", *sorted(FOLDER.glob("docs/*.md"))]
    lines = [line for page in pages for line in page.read_text().splitlines() if line[:1] != "|"]
    return "\n".join(lines).encode("ascii", "ignore").decode()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--letters", type=int, default=400, help="how many to write at the end")
    options = parser.parse_args()

    # Dynamo warns that the profiler's mark in optimizer.step() is not compiled: it need not be.
    logging.getLogger("torch._dynamo").setLevel(logging.ERROR)
    torch.manual_seed(0)
    text = documentation()
    alphabet = sorted(set(text))
    data = torch.tensor([alphabet.index(letter) for letter in text])
    model = Gpt(len(alphabet), options.layers)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, options.steps)

    @torch.compile(backend="xla")
    def loss_of(inputs: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())

    update = torch.compile(optimizer.step, backend="xla")
    predict = torch.compile(model, backend="xla")

    losses = torch.zeros(options.steps)
    for step in track(range(options.steps), "Training"):
        starts = torch.randint(len(data) - CONTEXT, (options.batch_size, 1))
        batch = data[starts + torch.arange(CONTEXT + 1)]
        loss = loss_of(batch[:, :-1], batch[:, 1:])
        loss.backward()
        update()
        optimizer.zero_grad()
        schedule.step()
        losses[step] = loss.detach()

    # What is written is in a window of fixed size, so that all letters are one program.
    written = data[:1].tolist()
    with torch.no_grad():
        for _ in track(range(options.letters), "Writing "):
            window = torch.zeros(1, CONTEXT, dtype=torch.long)
            seen = written[-CONTEXT:]
            window[0, : len(seen)] = torch.tensor(seen)
            scores = predict(window)[0, len(seen) - 1] / 0.7
            written.append(int(torch.multinomial(scores.softmax(0), 1)))

    print("".join(alphabet[letter] for letter in written), end="\n\n")
    print(f"text      {len(text):,} letters, {len(alphabet)} different ones")
    print(f"loss      {losses[0]:.2f} at first, {losses[-20:].mean():.2f} at the end")
    print(f"programs  {len(xla_dynamo.compiles())}, for {options.steps} steps")


if __name__ == "__main__":
    main()
