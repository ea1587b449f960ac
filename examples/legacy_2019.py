"""A script of 2019, unchanged: python -m xla_dynamo run examples/legacy_2019.py

torch_xla_py was torch_xla's first name, and DataParallel its way to use several cores: a thread for
each, that runs a function. CPU_NUM_DEVICES=2 makes two devices of a CPU.
"""

from __future__ import annotations

import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
import torch_xla_py.data_parallel as dp
import torch_xla_py.xla_model as xm
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset


class MNIST(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, kernel_size=3, padding=1)
        self.conv2 = nn.Conv2d(16, 32, kernel_size=3, padding=1)
        self.fc = nn.Linear(32 * 2 * 2, 10)

    def forward(self, x):
        x = F.relu(F.max_pool2d(self.conv1(x), 2))
        x = F.relu(F.max_pool2d(self.conv2(x), 2))
        return F.log_softmax(self.fc(x.flatten(1)), dim=1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100, help="batches of each epoch")
    parser.add_argument("--epochs", type=int, default=5)
    options = parser.parse_args()

    torch.manual_seed(0)
    images, labels = (torch.tensor(part) for part in load_digits(return_X_y=True))
    data = TensorDataset(images.float().reshape(-1, 1, 8, 8) / 16, labels)
    train, test = torch.utils.data.random_split(data, [1440, 357])
    steps = range(min(options.steps * 16, len(train)))
    train = torch.utils.data.Subset(train, steps)
    train_loader = DataLoader(train, batch_size=16, shuffle=True, drop_last=True)
    test_loader = DataLoader(test, batch_size=51)

    devices = xm.get_xla_supported_devices()
    model_parallel = dp.DataParallel(MNIST, device_ids=devices)

    def train_loop_fn(model, loader, device, context):
        optimizer = context.getattr_or(
            "optimizer", lambda: optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        )
        model.train()
        for _, (data, target) in loader:
            optimizer.zero_grad()
            loss = F.nll_loss(model(data), target)
            loss.backward()
            xm.optimizer_step(optimizer)

    def test_loop_fn(model, loader, device, context):
        model.eval()
        correct = total = 0
        for _, (data, target) in loader:
            correct += (model(data).argmax(1) == target).sum().item()
            total += len(target)
        return correct / total

    for epoch in range(1, options.epochs + 1):
        model_parallel(train_loop_fn, train_loader)
        accuracies = model_parallel(test_loop_fn, test_loader)
        accuracy = sum(accuracies) / len(accuracies)
        print(f"epoch {epoch}, {len(devices)} device(s): {accuracy:.2%} right", flush=True)


if __name__ == "__main__":
    main()
