"""Generate text with a static key-value cache: python examples/generate.py

A small GPT learns the Zen of Python by heart and recites it. The cache has its full size from the
start and the position is a number, so all letters are one program that reads one letter.
"""

from __future__ import annotations

import argparse
import codecs
import importlib.util
import time
from pathlib import Path

import torch
from rich.progress import track
from torch import Tensor, nn
from torch.nn import functional as F

import xla_dynamo

LENGTH, WIDTH, HEADS, LAYERS = 320, 96, 4, 2


class Block(nn.Module):
    """Attention to what is in the cache, then a two-layer network."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)])
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
        )

    def forward(self, x: Tensor, cache: Tensor | None, at: Tensor | None) -> Tensor:
        parts = self.qkv(self.norms[0](x)).chunk(3, -1)
        q, k, v = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in parts)
        if cache is None or at is None:
            attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:  # one letter: its key and value go into the cache, which it then attends to
            cache[0].index_copy_(2, at, k)
            cache[1].index_copy_(2, at, v)
            seen = (torch.arange(LENGTH) <= at)[None]
            attended = F.scaled_dot_product_attention(q, cache[0], cache[1], seen)
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norms[1](x))


class Gpt(nn.Module):
    """Scores for the next letter: of a whole text, or of one letter `at` a position."""

    def __init__(self, letters: int) -> None:
        super().__init__()
        self.letter, self.place = nn.Embedding(letters, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, letters)

    def forward(
        self, text: Tensor, caches: Tensor | None = None, at: Tensor | None = None
    ) -> Tensor:
        places = torch.arange(text.shape[1]) if at is None else at
        x = self.letter(text) + self.place(places)
        for number, block in enumerate(self.blocks):
            x = block(x, None if caches is None else caches[number], at)
        return self.head(x)


def zen() -> str:
    """The first lines of the Zen of Python, which Python has as a riddle; importing prints it."""
    found = importlib.util.find_spec("this")
    assert found is not None
    assert found.origin is not None
    return codecs.decode(Path(found.origin).read_text().split('"""')[1], "rot13")[: LENGTH + 1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300, help="of learning")
    parser.add_argument("--letters", type=int, default=LENGTH)
    options = parser.parse_args()

    torch.manual_seed(0)
    text = zen()
    alphabet = sorted(set(text))
    data = torch.tensor([[alphabet.index(letter) for letter in text]])
    model = Gpt(len(alphabet))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

    @torch.compile(backend="xla")
    def loss_of(inputs: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(model(inputs)[0], targets[0])

    for _ in track(range(options.steps), "Learning  "):
        loss_of(data[:, :-1], data[:, 1:]).backward()
        optimizer.step()
        optimizer.zero_grad()

    step = torch.compile(model, backend="xla")
    before = len(xla_dynamo.compiles())
    caches = torch.zeros(LAYERS, 2, 1, HEADS, LENGTH, WIDTH // HEADS)
    letter, recited = torch.tensor([[data[0, 0]]]), [int(data[0, 0])]
    start = 0.0
    with torch.no_grad():
        for position in track(range(options.letters), "Generating"):
            if position < 2:  # the first one compiles
                start = time.perf_counter()
            scores = step(letter, caches, torch.tensor([position]))
            letter = scores[:, -1:].argmax(-1)
            recited.append(int(letter))
    each = (time.perf_counter() - start) / (options.letters - 1)

    print("".join(alphabet[letter] for letter in recited), end="\n\n")
    print(f"right     {sum(map(int.__eq__, recited, data[0].tolist())) / len(recited):.0%} of it")
    print(f"programs  {len(xla_dynamo.compiles()) - before}, for {options.letters} letters")
    print(f"speed     {each * 1e3:.2f} ms a letter")


if __name__ == "__main__":
    main()
