"""Variables that a script sets after its imports, before and after the first use of a device."""

from __future__ import annotations

import pytest

from tests.programs import python

STORED = """
import os
import torch, torch_xla
import torch_xla.core.xla_model as xm
device = xm.xla_device()
os.environ["{name}"] = "1"  # as Lightning does for precision="bf16-true"
for dtype in (torch.float32, torch.float64):
    x = torch.tensor([3.14159], dtype=dtype, device=device)
    assert x.dtype is dtype
    print((x + 0).item())
print(torch.tensor([2**40 + 1], device=device).item())
"""
PI = 3.14159
PI_BF16, PI_FP16, PI_FP32 = 3.140625, 3.140625, 3.141590118408203
LONG = 2**40 + 1


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("XLA_USE_BF16", [PI_BF16, PI_BF16, LONG]),
        ("XLA_DOWNCAST_BF16", [PI_BF16, PI_FP32, LONG]),
        ("XLA_USE_FP16", [PI_FP16, PI_FP16, LONG]),
        ("XLA_DOWNCAST_FP16", [PI_FP16, PI_FP32, LONG]),
        ("XLA_USE_32BIT_LONG", [PI_FP32, PI, 1]),
    ],
)
def test_storage_is_chosen_at_the_first_tensor(name: str, expected: list[float]) -> None:
    printed = python(STORED.format(name=name), PJRT_DEVICE="CPU")
    assert [float(word) for word in printed.split()] == expected


def test_platform_and_reports_are_chosen_at_first_use() -> None:
    printed = python(
        """
        import os
        import torch, torch_xla
        os.environ.update(CPU_NUM_DEVICES="2", PT_XLA_DEBUG_LEVEL="1", XLA_METRICS_FILE="STDOUT")
        print(torch_xla.device_count(), "devices")
        torch.ones(2, device="xla").add(1)
        torch_xla.sync()
        """
    )
    assert "2 devices" in printed
    assert "Compilation Analysis" in printed
    assert "[MetricsData; step=0]" in printed


def test_what_comes_too_late_is_told_once() -> None:
    printed = python(
        """
        import os
        import torch, torch_xla
        x = torch.tensor([3.14159], device="xla")
        os.environ.update(XLA_USE_BF16="1", CPU_NUM_DEVICES="4", XLA_FLAGS="--xla_dump_to=/nowhere")
        for n in (2, 3):
            print((x.expand(n) * 1)[0].item(), torch_xla.device_count())
        """
    )
    assert printed.count("3.141590118408203 1") == 2
    for name in ("XLA_USE_BF16", "CPU_NUM_DEVICES", "XLA_FLAGS"):
        assert printed.count(f"UserWarning: {name} is '") == 1
    assert "XLA_USE_BF16 is '1' now, but was unset when an xla device was first used" in printed
