"""What a training step costs on a TPU, without one: python examples/tpu_cost.py

The TPU's own compiler (pip install 'jax[tpu]') compiles the step for a core of a v5e and says what
it will compute, move and hold. A model that returns its loss is all that it takes.
"""

from __future__ import annotations

import argparse

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.nn import functional as F

from xla_dynamo.backend.tpu_cost import analyze_training_step


class Classifier(nn.Module):
    """A transformer that says which of ten kinds a text is of; its output is the loss."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(1024, width)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, 0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, 10)

    def forward(self, text: Tensor, label: Tensor) -> Tensor:
        return F.cross_entropy(self.head(self.layers(self.embedding(text)).mean(1)).float(), label)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--dtypes", nargs="+", default=["bfloat16"])
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--layers", type=int, default=2)
    options = parser.parse_args()

    table = Table("dtype", "batch", "GFLOP", "MB moved", "MB temporary", "k cycles")
    for dtype in options.dtypes:
        for batch in options.batches:
            model = Classifier(options.width, options.layers).to(getattr(torch, dtype))
            text, label = torch.randint(1024, (batch, 128)), torch.randint(10, (batch,))
            cost = analyze_training_step(model, {"text": text, "label": label})
            table.add_row(
                dtype,
                str(batch),
                f"{cost.flops / 1e9:.2f}",
                f"{cost.bytes_accessed / 1e6:.1f}",
                f"{cost.temporary / 1e6:.2f}",
                f"{cost.cycles / 1e3:.0f}",
            )
    Console(width=80).print(table)


if __name__ == "__main__":
    main()
