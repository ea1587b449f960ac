"""Tensors that stand for device arrays: downloaded once, when they are read."""

from __future__ import annotations

import copy

import pytest
import torch

import xla_dynamo
from tests.backend.separate_memory import separate_memory as separate_memory
from xla_dynamo.backend.runtime import on_device, pjrt, transfers

pytestmark = pytest.mark.usefixtures("separate_memory")
HOST = torch.arange(6.0).reshape(2, 3)


@pytest.fixture
def kept() -> on_device.OnDevice:
    device = pjrt.device("cpu")
    array = transfers.to_array(HOST, device)
    xla_dynamo.reset_metrics()
    return on_device.keep(array, device, torch.float32)


def test_metadata_and_aliases_download_nothing(kept):
    alias = kept.detach()
    assert alias.shape == (2, 3)
    assert (alias.dtype, alias.device.type) == (torch.float32, "cpu")
    device = pjrt.device("cpu")
    assert on_device.array_of(alias, device) is on_device.array_of(kept, device)
    assert on_device.array_of(HOST, device) is None
    assert xla_dynamo.transfers().to_host == 0


def test_reads_download_once(kept):
    assert torch.equal(kept + 1, HOST + 1)
    assert type(kept * 2) is torch.Tensor
    assert kept.detach().sum().item() == 15
    assert kept.numpy().tolist() == HOST.tolist() == kept.tolist()
    assert torch.equal(copy.deepcopy(kept), HOST)
    assert torch.equal(torch.cat([kept, HOST]), torch.cat([HOST, HOST]))
    assert torch.equal(torch.from_dlpack(kept), HOST)
    assert "4." in repr(kept)
    moved = xla_dynamo.transfers()
    assert (moved.to_host, moved.bytes_to_host) == (1, HOST.nbytes)


def test_what_the_host_wrote_is_what_programs_take(kept):
    kept.detach().mul_(2)
    assert on_device.array_of(kept, pjrt.device("cpu")) is None
    assert torch.equal(on_device.host_of(kept), 2 * HOST)
    kept[0, 0] = 7
    assert torch.equal(on_device.on_host([kept])[0].sum(), torch.tensor(37.0))


def test_another_device_takes_a_copy(kept):
    assert on_device.array_of(kept, object()) is None
