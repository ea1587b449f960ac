"""Where tensors land: "xla" without a number, and data given as Python numbers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch_xla

from tests.programs import python

XLA = torch.device("xla:0")


@pytest.mark.parametrize("device", ["xla", torch.device("xla"), "xla:0"])
def test_a_device_without_number_is_the_default_one(device: torch.device | str) -> None:
    assert torch.ones(2).to(device).device == XLA
    assert torch.empty(2, device=device).device == XLA
    assert torch.nn.Linear(2, 2).to(device).weight.device == XLA
    assert torch.zeros(2, device=XLA).to(device).device == XLA


def test_the_default_device_is_that_of_the_thread() -> None:
    printed = python(
        """
        import threading, torch, torch_xla.core.xla_model as xm
        def other():
            xm.xla_device(1)
            print(torch.ones(2).to("xla").device, torch.zeros(2, device="xla").device)
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        print(torch.ones(2).to("xla").device, torch.zeros(2, device="xla").device)
        """,
        CPU_NUM_DEVICES="2",
    )
    assert printed.split() == ["xla:1", "xla:1", "xla:0", "xla:0"]


@pytest.mark.parametrize(
    "data", [3.5, [[1, 2], [3, 4]], [True, False], [1.0 + 2j], np.arange(3.0), [], np.float64(2)]
)
def test_torch_tensor_of_numbers(data: object) -> None:
    made = torch.tensor(data, device=XLA)
    assert made.device == XLA
    torch.testing.assert_close(made.cpu(), torch.tensor(data))
    torch.testing.assert_close(torch.as_tensor(data, device=XLA).cpu(), torch.as_tensor(data))


def test_torch_tensor_takes_part_in_autograd() -> None:
    x = torch.tensor([1.0, 2.0], device=XLA, requires_grad=True)
    (x * x).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [2.0, 4.0]


def test_a_tensor_of_data_is_an_upload_alone() -> None:
    """torch.tensor() makes a view of it: no program, and none more in a loop's first step."""
    x = torch.tensor([[1.0, 2.0]], device=XLA)
    for same in (x, x.view(1, 2), x.reshape(1, -1), x.expand(1, -1)):
        assert same.requires_grad is False
        assert "aten" not in torch_xla._XLAC._get_xla_tensors_text([same])
    view = x.view(1, 2)
    view.add_(1)
    x.mul_(2)
    assert x.tolist() == view.tolist() == [[4.0, 6.0]]
