"""Libraries that own the training loop and choose the device: accelerate and lightning.

They take the device that they find, and on the CPU are told to take that.
"""

# The libraries are installed in the lane's environment only.
# pyright: reportMissingImports=false, reportUnknownVariableType=false

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from .programs import Door, Program


def _batches() -> DataLoader[Any]:
    return DataLoader(TensorDataset(torch.randn(8, 8), torch.arange(8) % 3), batch_size=4)


def _is_on_cpu(place: Door) -> bool:
    return place(torch.zeros(())).device.type == "cpu"


def accelerate_trains(place: Door, compiled: Door) -> list[Tensor]:
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState

    AcceleratorState._reset_state(reset_partial_state=True)  # it keeps the device of a process
    model, data = nn.Linear(8, 3), _batches()
    accelerator = Accelerator(cpu=_is_on_cpu(place))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer, data = accelerator.prepare(model, optimizer, data)
    call, losses = compiled(model), []
    for inputs, labels in data:
        optimizer.zero_grad()
        loss = F.cross_entropy(call(inputs), labels)
        accelerator.backward(loss)
        optimizer.step()
        losses.append(loss.detach())
    return losses


def lightning_trains(place: Door, compiled: Door) -> list[Tensor]:
    import lightning

    class Classifier(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 3)
            self.call = compiled(self.layer)
            self.losses: list[Tensor] = []

        def training_step(self, batch: list[Tensor], index: int) -> Tensor:
            loss = F.cross_entropy(self.call(batch[0]), batch[1])
            self.losses.append(loss.detach())
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    model = Classifier()
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    device = "cpu" if _is_on_cpu(place) else "tpu"
    trainer = lightning.Trainer(
        accelerator=device, devices=1, max_epochs=1, enable_model_summary=False, **quiet
    )
    trainer.fit(model, _batches())
    return model.losses


LOOPS: Mapping[str, Program] = MappingProxyType(
    {"accelerate: trains": accelerate_trains, "lightning: trains": lightning_trains}
)
