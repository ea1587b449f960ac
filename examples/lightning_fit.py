"""Lightning on an XLA device: python -m xla_dynamo run examples/lightning_fit.py

accelerator="tpu" is xla:0, whatever the hardware is; the CPU stands in where there is no TPU.
"""

# lightning is installed by its users.
# pyright: reportMissingImports=false

from __future__ import annotations

import argparse

import lightning
import torch
import torch_xla.debug.metrics as met
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset


class Classifier(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
        self.right = []

    def training_step(self, batch, index):
        images, labels = batch
        scores = self.layers(images)
        self.right.append((scores.detach().argmax(1) == labels).float().mean())
        return F.cross_entropy(scores, labels)

    def on_train_epoch_end(self):
        right = torch.stack(self.right).mean().item()
        print(f"epoch {self.current_epoch + 1} on {self.device}: {right:.2%} right")
        self.right.clear()

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=-1, help="at most; default: all epochs")
    parser.add_argument("--epochs", type=int, default=5)
    options = parser.parse_args()

    torch.manual_seed(0)
    images, labels = (torch.tensor(part) for part in load_digits(return_X_y=True))
    data = TensorDataset(images.float() / 16, labels)
    trainer = lightning.Trainer(
        accelerator="tpu",
        devices=1,
        max_epochs=options.epochs,
        max_steps=options.steps,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Classifier(), DataLoader(data, batch_size=32, shuffle=True, drop_last=True))
    print(f"programs  {met.counter_value('UncachedCompile')}")


if __name__ == "__main__":
    main()
