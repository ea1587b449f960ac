"""A JAX function inside a PyTorch model: python examples/jax_op.py

xla_dynamo.jax_function makes it an op on torch tensors: a part of the program that torch.compile
makes, with the gradient that JAX finds. Here a recurrence that PyTorch has no op for is one loop.
"""

from __future__ import annotations

import argparse

import jax
import jax.numpy as jnp
import torch
from rich.progress import track
from torch import Tensor, nn

import xla_dynamo


@xla_dynamo.jax_function
def leaky(x, decay):
    """The running sum of x along dimension 1, of which a part is forgotten at each step."""

    def step(memory, now):
        memory = memory * decay + now
        return memory, memory

    _, sums = jax.lax.scan(step, jnp.zeros_like(x[:, 0]), x.swapaxes(0, 1))
    return sums.swapaxes(0, 1)


class Memory(nn.Module):
    """Learns how fast to forget."""

    def __init__(self) -> None:
        super().__init__()
        self.logit = nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        return leaky(x, self.logit.sigmoid())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=150)
    options = parser.parse_args()

    torch.manual_seed(0)
    model = Memory()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    target = leaky(x := torch.randn(16, 100), torch.tensor([0.9]))

    @torch.compile(backend="xla", fullgraph=True)
    def loss_of(x: Tensor, target: Tensor) -> Tensor:
        return (model(x) - target).square().mean()

    for _ in track(range(options.steps), "Training"):
        loss = loss_of(x, target)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    by_hand, memory = [], torch.zeros(16)
    for now in x.T:
        memory = memory * 0.9 + now
        by_hand.append(memory)
    torch.testing.assert_close(target, torch.stack(by_hand, 1))
    print(f"programs  {len(xla_dynamo.compiles())}")
    print(f"decay     {model.logit.sigmoid().item():.3f}, and 0.900 is right")


if __name__ == "__main__":
    main()
