"""What can be known of a GPU's order without one; tests/accelerator/cuda.py has the rest."""

from __future__ import annotations

import os

import pytest
import torch

from xla_dynamo.backend.runtime import buffers, gpu_order, pjrt

RESERVE = "XLA_PYTHON_CLIENT_PREALLOCATE"
ON_GPU = torch.device("cuda:1")


class Gpu:
    """As much of JAX's device as is asked for."""

    platform = "gpu"
    local_hardware_id = 1

    def __init__(self, version: str = "cuda 13000") -> None:
        self.client = type("Client", (), {"platform_version": version})


def test_a_gpu_is_shared_once_pytorch_works_on_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    assert gpu_order.shared_with(Gpu())
    assert not gpu_order.shared_with(pjrt.device("cpu"))
    assert gpu_order.home(Gpu()) == ON_GPU
    monkeypatch.undo()
    assert not gpu_order.shared_with(Gpu())


def test_programs_run_on_the_gpu_of_their_tensors() -> None:
    devices = [torch.device("cpu"), ON_GPU]
    assert gpu_order.ordinal("cuda", devices) == 1
    assert gpu_order.ordinal("cuda", devices[:1]) == 0
    assert gpu_order.ordinal("cpu", devices) == 0


def test_platforms_are_called_as_jax_lowers_for_them() -> None:
    assert pjrt.platform(Gpu()) == "cuda"
    assert pjrt.platform(Gpu("PJRT C API\nROCm 6.2")) == "rocm"


def test_jax_leaves_memory_where_pytorch_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(RESERVE, raising=False)
    with gpu_order.memory_left_to_torch():
        assert RESERVE not in os.environ
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    with gpu_order.memory_left_to_torch():
        assert os.environ[RESERVE] == "false"
    assert RESERVE not in os.environ
    monkeypatch.setenv(RESERVE, "true")
    with gpu_order.memory_left_to_torch():
        assert os.environ[RESERVE] == "true"


def test_one_argument_of_a_launch_is_handed_over_anew() -> None:
    made = buffers.slots(Gpu(), [0, 2, 3], {0, 2, 3}, [2, 3])
    assert [type(slot) for slot in made] == [buffers.Covered, buffers.HandedOver, buffers.Covered]
    without = buffers.slots(Gpu(), [0, 2, 3], {0, 2, 3}, [])
    assert [type(slot) for slot in without] == [buffers.Apart] * 3
    on_cpu = buffers.slots(pjrt.device("cpu"), [0, 2, 3], {0, 2, 3}, [2, 3])
    assert not any(isinstance(slot, buffers.HandedOver) for slot in on_cpu)
