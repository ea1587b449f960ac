"""A training run with things to see: both ways in, sizes that change, an op on the CPU."""

from __future__ import annotations

import torch
import torch_xla.core.xla_model as xm
from torch import Tensor, nn


@torch.library.custom_op("vendor::clip_rows", mutates_args=())
def clip_rows(x: Tensor, limit: float) -> Tensor:
    return x * (limit / x.norm(dim=1, keepdim=True)).clamp(max=1)


clip_rows.register_fake(lambda x, limit: torch.empty_like(x))


def compiled() -> None:
    model = nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.LayerNorm(512), nn.Linear(512, 256))
    optimizer = torch.optim.AdamW(model.parameters())

    @torch.compile(backend="xla")
    def loss_of(x: Tensor) -> Tensor:
        return (model(x) - x).square().mean()

    update = torch.compile(optimizer.step, backend="xla")
    for step in range(240):
        loss = loss_of(torch.randn(64 if step % 80 or step == 0 else 64 - step // 5, 256))
        loss.backward()
        update()
        optimizer.zero_grad()
    model.requires_grad_(False)
    clipped = torch.compile(lambda x: clip_rows(model(x), 1.0).sum(), backend="xla")
    for _ in range(20):
        clipped(torch.randn(8, 256))


def lazy() -> None:
    device = xm.xla_device()
    model = nn.Sequential(
        nn.Conv2d(1, 8, 5, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(1152, 10)
    )
    model.to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for step in range(150):
        images = torch.randn(64 if step < 140 else 23, 1, 28, 28).to(device)
        labels = torch.randint(10, (len(images),)).to(device)
        loss = nn.functional.cross_entropy(model(images), labels)
        if step == 80:
            print(f"loss {loss.item():.3f}")  # inside a step: a barrier more
        optimizer.zero_grad()
        loss.backward()
        xm.optimizer_step(optimizer, barrier=True)


torch.manual_seed(0)
compiled()
lazy()
