"""Tensors, modules and optimizers of the device -> copies, pickles and files, and back."""

from __future__ import annotations

import copy
import io
import pickle
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch as safetensors
import torch
import torch_xla.core.xla_model as xm
from torch import Tensor, nn

from tests.like_eager.lazy import XLA, assert_same

X = torch.arange(6.0).reshape(2, 3)


def through_file(value: object, **options: Any) -> Any:
    """torch.save and torch.load by way of memory."""
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, **options)


def state_on_cpu(module: nn.Module) -> dict[str, Tensor]:
    return {name: value.cpu() for name, value in module.state_dict().items()}


def test_deepcopy_keeps_device_values_and_grad() -> None:
    x = X.to(XLA).requires_grad_()
    (x * x).sum().backward()
    twin = copy.deepcopy(x)
    with torch.no_grad():
        x.zero_()
    assert twin.requires_grad
    assert twin.is_leaf
    assert_same(twin.detach(), X)
    assert_same(twin.grad, 2 * X)


def test_deepcopy_of_what_is_pending() -> None:
    y = X.to(XLA) + 1
    twin = copy.deepcopy({"y": y, "again": y})
    y.mul_(0)
    assert_same(twin["y"], X + 1)
    assert twin["y"] is twin["again"]
    assert_same(y, X * 0)


def test_deepcopy_of_modules_keeps_tied_weights() -> None:
    module = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3)).to(XLA)
    module[1].weight = module[0].weight
    twin = copy.deepcopy(module)
    assert twin[1].weight is twin[0].weight
    assert isinstance(twin[0].weight, nn.Parameter)
    assert_same(twin(X.to(XLA)).detach(), module(X.to(XLA)).detach().cpu())


@pytest.mark.parametrize("protocol", [2, 4, pickle.HIGHEST_PROTOCOL])
def test_pickle(protocol: int) -> None:
    x = X.to(XLA)
    back = pickle.loads(pickle.dumps({"x": x + 1, "p": nn.Parameter(x)}, protocol))
    assert_same(back["x"], X + 1)
    assert type(back["p"]) is nn.Parameter
    assert back["p"].requires_grad


@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.bfloat16, torch.int64, torch.bool, torch.complex64, torch.uint8]
)
def test_load_returns_to_the_device(dtype: torch.dtype) -> None:
    expected = torch.tensor([[0, 1], [2, 3]]).to(dtype)
    assert_same(through_file(expected.to(XLA)), expected)
    assert_same(through_file(expected.to(XLA), weights_only=False), expected)


def test_map_location() -> None:
    assert_same(through_file(X, map_location=XLA), X)
    assert_same(through_file(X, map_location="xla:0"), X)
    assert_same(through_file(X, map_location="xla"), X)
    assert_same(through_file({"a": X}, map_location={"cpu": "xla:0"}), {"a": X})
    assert_same(through_file(X.to(XLA), map_location=XLA), X)
    host = through_file(X.to(XLA), map_location="cpu")
    assert host.device.type == "cpu"
    torch.testing.assert_close(host, X)


def test_files_written_on_the_cpu_load_on_the_device(tmp_path: Path) -> None:
    module = nn.Linear(3, 2)
    torch.save(module.state_dict(), tmp_path / "weights.pt")
    ours = nn.Linear(3, 2).to(XLA)
    ours.load_state_dict(torch.load(tmp_path / "weights.pt", map_location=XLA))
    assert_same(ours(X.to(XLA)).detach(), module(X).detach())
    ours.load_state_dict(torch.load(tmp_path / "weights.pt"))
    assert ours.weight.device == XLA
    torch.save(module, tmp_path / "module.pt")
    whole = torch.load(tmp_path / "module.pt", map_location=XLA, weights_only=False)
    assert_same(whole(X.to(XLA)).detach(), module(X).detach())


def test_views_are_saved_as_what_they_show() -> None:
    x = X.to(XLA)
    assert_same(through_file([x[1], x.t(), x]), [X[1], X.t(), X])


def test_xm_save_writes_cpu_tensors(tmp_path: Path) -> None:
    xm.save({"x": X.to(XLA), "step": 3}, str(tmp_path / "checkpoint.pt"))
    back = torch.load(tmp_path / "checkpoint.pt", map_location=lambda storage, location: storage)
    assert back["step"] == 3
    assert back["x"].device.type == "cpu"
    torch.testing.assert_close(back["x"], X)


def test_modules_round_trip() -> None:
    module = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.LSTM(4, 2)).to(XLA)
    back = through_file(module, weights_only=False)
    assert_same(dict(back.state_dict()), state_on_cpu(module))


def test_state_dicts_cross_devices() -> None:
    ours, theirs = nn.BatchNorm1d(3).to(XLA), nn.BatchNorm1d(3)
    ours(X.to(XLA))
    theirs.load_state_dict(ours.state_dict())
    torch.testing.assert_close(theirs.running_mean, 0.1 * X.mean(0))
    other = nn.BatchNorm1d(3).to(XLA)
    other.load_state_dict(theirs.state_dict())
    assert_same(other.running_mean, 0.1 * X.mean(0))
    adopted = nn.BatchNorm1d(3, device="meta")
    adopted.load_state_dict(ours.state_dict(), assign=True)
    assert_same(adopted.running_mean, 0.1 * X.mean(0))


@pytest.mark.parametrize("by_file", [True, False])
def test_optimizers_resume(by_file: bool) -> None:
    def fresh(device: str | torch.device) -> tuple[nn.Linear, torch.optim.Optimizer]:
        torch.manual_seed(0)
        module = nn.Linear(3, 2).double().to(device)
        return module, torch.optim.AdamW(module.parameters(), lr=0.1)

    def steps(module: nn.Linear, optimizer: torch.optim.Optimizer, count: int) -> None:
        for _ in range(count):
            optimizer.zero_grad()
            module(X.double().to(module.weight.device)).square().sum().backward()
            optimizer.step()

    theirs, optimizer = fresh("cpu")
    steps(theirs, optimizer, 4)
    ours, optimizer = fresh(XLA)
    steps(ours, optimizer, 2)
    saved: Any = {"module": ours.state_dict(), "optimizer": optimizer.state_dict()}
    saved = through_file(saved) if by_file else copy.deepcopy(saved)
    ours, optimizer = fresh(XLA)
    ours.load_state_dict(saved["module"])
    optimizer.load_state_dict(saved["optimizer"])
    steps(ours, optimizer, 2)
    expected = theirs.weight.detach()
    torch.testing.assert_close(ours.weight.detach().cpu(), expected, rtol=1e-12, atol=1e-12)


def test_safetensors(tmp_path: Path) -> None:
    file = tmp_path / "x.safetensors"
    tensors = {"half": X.to(XLA, torch.bfloat16), "x": X.to(XLA), "y": X.to(XLA)[1] * 2}
    safetensors.save_file(tensors, file)
    expected = {"half": X.bfloat16(), "x": X, "y": X[1] * 2}
    torch.testing.assert_close(safetensors.load_file(file), expected)
    loaded = safetensors.load_file(file, device="xla:0")
    assert_same([loaded[name] for name in expected], list(expected.values()))
    torch.testing.assert_close(safetensors.load(safetensors.save(tensors)), expected)


def test_safetensors_of_models_with_tied_weights(tmp_path: Path) -> None:
    module = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3)).to(XLA)
    module[1].weight = module[0].weight
    safetensors.save_model(module, str(tmp_path / "model.safetensors"))
    back = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3)).to(XLA)
    back[1].weight = back[0].weight
    assert safetensors.load_model(back, str(tmp_path / "model.safetensors")) == (set(), [])
    assert_same(dict(back.state_dict()), state_on_cpu(module))


def test_storages_have_a_size_and_a_device_and_no_address() -> None:
    storage = X.to(XLA).untyped_storage()
    assert storage.nbytes() == 24
    assert storage.device == XLA
    assert storage.data_ptr() == 0
    assert X.untyped_storage().data_ptr() == X.data_ptr()
