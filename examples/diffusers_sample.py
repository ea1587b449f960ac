"""A diffusion model of diffusers, trained and sampled: python examples/diffusers_sample.py

A small U-Net learns handwritten digits of 8 x 8 pixels. The times of the sampler's steps are inputs
of one program.
"""

# diffusers is installed by its users.
# pyright: reportMissingImports=false

from __future__ import annotations

import argparse

import torch
from diffusers import DDIMScheduler, UNet2DModel
from rich.progress import track
from sklearn.datasets import load_digits
from torch import Tensor
from torch.nn import functional as F

import xla_dynamo

SHADES = " .:-=+*#%@"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1500, help="of training")
    parser.add_argument("--sampling-steps", type=int, default=25)
    options = parser.parse_args()

    torch.manual_seed(0)
    pixels = torch.tensor(load_digits(n_class=2, return_X_y=True)[0]).float() / 8 - 1
    pixels = pixels.reshape(-1, 1, 8, 8)
    model = UNet2DModel(
        sample_size=8,
        in_channels=1,
        out_channels=1,
        block_out_channels=(32, 64),
        layers_per_block=1,
        norm_num_groups=8,
        down_block_types=("DownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "UpBlock2D"),
    )
    scheduler = DDIMScheduler(num_train_timesteps=1000)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    @torch.compile(backend="xla")
    def loss_of(noisy: Tensor, time: Tensor, noise: Tensor) -> Tensor:
        return F.mse_loss(model(noisy, time).sample, noise)

    losses = []
    for _ in track(range(options.steps), "Training"):
        images = pixels[torch.randint(len(pixels), (32,))]
        noise, time = torch.randn_like(images), torch.randint(1000, (32,))
        loss = loss_of(scheduler.add_noise(images, noise, time), time, noise)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())

    predict = torch.compile(model, backend="xla")
    before = len(xla_dynamo.compiles())
    scheduler.set_timesteps(options.sampling_steps)
    images = torch.randn(6, 1, 8, 8)
    with torch.no_grad():
        for time in track(scheduler.timesteps, "Sampling"):
            images = scheduler.step(predict(images, time).sample, time, images).prev_sample
    shades = ((images.clamp(-1, 1) + 1) * 4.999).long()
    for row in range(8):
        print("   ".join("".join(SHADES[i] * 2 for i in image[0, row]) for image in shades))
    print(f"programs  {len(xla_dynamo.compiles()) - before}, for {options.sampling_steps} steps")
    print(f"loss      {losses[0]:.2f} at first, {torch.stack(losses[-20:]).mean():.2f} at the end")


if __name__ == "__main__":
    main()
