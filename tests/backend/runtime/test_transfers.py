"""Tensors as arrays and back, on the CPU's client."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from xla_dynamo.backend.runtime import pjrt, transfers

pytestmark = pytest.mark.spine


@pytest.fixture
def device() -> pjrt.Device:
    return pjrt.device("cpu")


TENSORS: dict[str, Tensor] = {
    "float32": torch.randn(2, 3),
    "float64": torch.randn(3, dtype=torch.float64),
    "bfloat16": torch.randn(3).bfloat16(),
    "float8": torch.randn(3).to(torch.float8_e4m3fn),
    "int64": torch.tensor([2**40, -1]),
    "bool": torch.tensor([True, False]),
    "complex64": torch.randn(2, dtype=torch.complex64),
    "empty": torch.empty(0, 2),
    "number": torch.tensor(2.5),
}


@pytest.mark.parametrize("name", TENSORS)
def test_tensors_go_to_the_device_and_back(device: pjrt.Device, name: str) -> None:
    tensor = TENSORS[name]
    for array in (transfers.to_array(tensor, device), transfers.upload(tensor, device)):
        back = transfers.download(array)
        assert back.dtype == tensor.dtype
        assert back.shape == tensor.shape
        assert back.tolist() == tensor.tolist()
        (shared,) = transfers.to_tensors([array], device, host=True)
        assert shared.tolist() == tensor.tolist()


def test_to_array_shares_memory_and_upload_does_not(device: pjrt.Device) -> None:
    tensor = torch.zeros(64)
    assert transfers.shares_memory(device, tensor)
    shared, copied = transfers.to_array(tensor, device), transfers.upload(tensor, device)
    assert transfers.pointer(shared) == tensor.data_ptr()
    assert transfers.pointer(copied) != tensor.data_ptr()
    tensor.fill_(1)
    assert transfers.download(copied).sum() == 0
    (back,) = transfers.to_tensors([copied], device, host=True)
    assert back.data_ptr() == transfers.pointer(copied)


def test_views_of_conjugates_are_resolved(device: pjrt.Device) -> None:
    z = torch.tensor([1 + 2j, 3 - 4j])
    assert transfers.download(transfers.upload(z.conj(), device)).tolist() == [1 - 2j, 3 + 4j]
    assert transfers.download(transfers.upload(z.conj().imag, device)).tolist() == [-2.0, 4.0]
