"""torch_xla.utils.serialization, and plain torch.save of tensors on the device."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest
import torch
import torch_xla.utils.serialization as xser

XLA = torch.device("xla:0")


@pytest.mark.parametrize("master_only", [True, False])
def test_each_tensor_has_a_file(tmp_path: Path, master_only: bool) -> None:
    path = str(tmp_path / "checkpoint")
    shared = torch.arange(4.0, device=XLA) * 2
    data = {
        "weights": [shared, {"again": shared}, (torch.ones(2, dtype=torch.bfloat16, device=XLA),)],
        "on_cpu": torch.tensor(3),
        "step": 7,
    }
    xser.save(data, path, master_only=master_only)
    assert sorted(os.listdir(f"{path}.tensors")) == ["tensor_0.pt", "tensor_1.pt", "tensor_2.pt"]
    loaded = xser.load(path)
    assert loaded["step"] == 7
    assert loaded["on_cpu"].item() == 3
    assert type(loaded["weights"][2]) is tuple
    assert loaded["weights"][2][0].dtype == torch.bfloat16
    assert loaded["weights"][0].device.type == "cpu"
    assert loaded["weights"][0].tolist() == [0, 2, 4, 6]
    assert loaded["weights"][1]["again"] is loaded["weights"][0]
    assert data["weights"][0] is shared


def test_saving_replaces_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    xser.save([torch.ones(1, device=XLA), torch.zeros(1, device=XLA)], path)
    xser.save({"only": torch.full((1,), 5.0, device=XLA)}, path)
    assert os.listdir(f"{path}.tensors") == ["tensor_0.pt"]
    assert xser.load(path)["only"].item() == 5


def test_modules_and_optimizers_resume(tmp_path: Path) -> None:
    def step() -> None:
        optimizer.zero_grad()
        model(x).square().sum().backward()
        optimizer.step()

    torch.manual_seed(0)
    x = torch.ones(1, 3, device=XLA)
    model = torch.nn.Linear(3, 2).to(XLA)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    step()
    xser.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "c")
    step()
    expected = model.weight.tolist()
    loaded = xser.load(tmp_path / "c")
    model.load_state_dict(loaded["model"])
    optimizer.load_state_dict(loaded["optimizer"])
    step()
    assert model.weight.tolist() == expected


def test_torch_save_loads_back_to_the_device() -> None:
    buffer = io.BytesIO()
    torch.save({"x": torch.arange(3, device=XLA)}, buffer)
    buffer.seek(0)
    loaded = torch.load(buffer, weights_only=True)
    assert loaded["x"].device == XLA
    assert loaded["x"].tolist() == [0, 1, 2]
    buffer.seek(0)
    assert torch.load(buffer, map_location="cpu")["x"].device.type == "cpu"
