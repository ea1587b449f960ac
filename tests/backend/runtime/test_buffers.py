"""Where data lives: aliased on CPU, uploaded once elsewhere, never written, never leaked."""

from __future__ import annotations

import gc

import numpy as np
import pytest
import torch
from torch import nn

import xla_dynamo
from xla_dynamo.backend.runtime import pjrt, transfers
from xla_dynamo.backend.runtime.buffers import Residents, transient


@pytest.fixture
def device() -> pjrt.Device:
    return pjrt.device("cpu")


@pytest.fixture
def separate_memory(monkeypatch: pytest.MonkeyPatch) -> list[torch.Tensor]:
    """Make the CPU client behave as a device with memory of its own; the uploads it sees."""
    uploads: list[torch.Tensor] = []

    def upload(tensor: torch.Tensor, on: pjrt.Device, *, ordered: bool) -> pjrt.Array:
        uploads.append(tensor)
        return transfers.put(tensor.numpy().copy(), on)

    monkeypatch.setattr(transfers, "shares_memory", lambda on, tensor: False)
    monkeypatch.setattr(transfers, "to_array", upload)
    return uploads


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.bfloat16, torch.bool, torch.int64, torch.uint8]
)
def test_aligned_cpu_tensors_are_aliased_both_ways(device: pjrt.Device, dtype: torch.dtype) -> None:
    tensor = torch.ones(64, dtype=dtype)
    array = transient(tensor, device)
    assert transfers.pointer(array) == tensor.data_ptr()
    [back] = transfers.to_tensors([array], device, host=True)
    assert back.data_ptr() == tensor.data_ptr()
    assert back.dtype == dtype


def test_unaligned_memory_is_copied(device: pjrt.Device) -> None:
    tensor = torch.arange(10.0)[1:]
    array = transient(tensor, device)
    torch.testing.assert_close(transfers.to_tensors([array], device, host=True)[0], tensor)


def test_in_place_updates_show_through_an_alias(device: pjrt.Device) -> None:
    residents = Residents(device)
    parameter = nn.Parameter(torch.zeros(16))
    array = residents.array(parameter)
    with torch.no_grad():
        parameter.add_(1)
    parameter.data.mul_(3)
    assert residents.array(parameter) is array
    assert transfers.to_tensors([array], device, host=True)[0].tolist() == [3.0] * 16


def test_replaced_memory_is_seen(device: pjrt.Device) -> None:
    residents = Residents(device)
    parameter = nn.Parameter(torch.arange(16.0).reshape(4, 4))
    residents.array(parameter)
    parameter.data = parameter.data.t()
    got = transfers.to_tensors([residents.array(parameter)], device, host=True)[0]
    torch.testing.assert_close(got, parameter.detach().contiguous())
    parameter.data = torch.ones(4, 4)
    got = transfers.to_tensors([residents.array(parameter)], device, host=True)[0]
    torch.testing.assert_close(got, torch.ones(4, 4))


def test_arrays_die_with_their_tensors(device: pjrt.Device) -> None:
    residents = Residents(device)
    parameter = nn.Parameter(torch.zeros(16))
    residents.array(parameter)
    assert len(residents) == 1
    del parameter
    gc.collect()
    assert len(residents) == 0


def test_a_device_with_its_own_memory_gets_parameters_once(
    device: pjrt.Device, separate_memory: list[torch.Tensor]
) -> None:
    residents = Residents(device)
    parameter = nn.Parameter(torch.zeros(16))
    first = residents.array(parameter)
    assert residents.array(parameter) is first
    assert len(separate_memory) == 1
    with torch.no_grad():
        parameter.add_(1)  # moves the version counter
    assert transfers.to_tensors([residents.array(parameter)], device, host=True)[0].sum() == 16
    assert len(separate_memory) == 2


def test_a_compiled_model_uploads_only_its_inputs(separate_memory: list[torch.Tensor]) -> None:
    model = torch.compile(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)), backend="xla")
    with torch.no_grad():
        for _ in range(5):
            model(torch.randn(3, 4))
    assert len(separate_memory) == 4 + 5


def test_inputs_are_read_again_at_every_call(separate_memory: list[torch.Tensor]) -> None:
    host = np.zeros(8, dtype=np.float32)
    x = torch.from_numpy(host)  # writes to `host` do not move the version counter of `x`
    double = torch.compile(lambda x: x * 2, backend="xla")
    for step in range(4):
        host[:] = step
        assert double(x).tolist() == [2.0 * step] * 8


def test_an_output_is_the_users_to_write() -> None:
    @torch.compile(backend="xla")
    def double(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    x = torch.ones(8)
    first = double(x)
    first.add_(100)
    assert x.tolist() == [1.0] * 8
    assert double(x).tolist() == [2.0] * 8
    assert xla_dynamo.counters() == {}
