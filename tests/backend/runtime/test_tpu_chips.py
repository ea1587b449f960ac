"""TPU chips are counted by their device files and their numbers on the PCI bus."""

from __future__ import annotations

from pathlib import Path

import pytest

from xla_dynamo.backend.runtime.tpu_chips import Chips, on_host

pytestmark = pytest.mark.spine


def host(root: Path, files: list[str], *pci: tuple[str, str]) -> Path:
    for name in files:
        path = root / "dev" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    for number, (vendor, device) in enumerate(pci):
        folder = root / f"sys/bus/pci/devices/0000:00:{number:02}.0"
        folder.mkdir(parents=True)
        (folder / "vendor").write_text(f"{vendor}\n")
        (folder / "device").write_text(f"{device}\n")
    return root


GOOGLE, INTEL, NVIDIA = "0x1ae0", "0x8086", "0x10de"
NETWORK = (GOOGLE, "0x0042")  # Google's, and no TPU
ACCELERATORS = [f"accel{i}" for i in range(4)]
GROUPS = ["vfio/vfio", *(f"vfio/{i}" for i in range(8))]


@pytest.mark.parametrize(
    ("files", "pci", "expected", "devices"),
    [
        (ACCELERATORS, [NETWORK, *[(GOOGLE, "0x0027")] * 4], Chips(4, "v3"), 2),
        (ACCELERATORS, [(GOOGLE, "0x005e")] * 4, Chips(4, "v4"), 1),
        (GROUPS, [NETWORK, *[(GOOGLE, "0x0063")] * 8], Chips(8, "v5e"), 1),
        (GROUPS[:2], [(GOOGLE, "0x006f")] * 8, Chips(1, "v6e"), 1),  # a container with one
        (GROUPS, [(GOOGLE, "0x0062")] * 4, Chips(4, "v5p"), 1),
        (ACCELERATORS, [], Chips(4), 1),  # a container without /sys
        (GROUPS, [], Chips(8), 1),
        (GROUPS, [(NVIDIA, "0x2330"), NETWORK], Chips(0), 1),  # a GPU that a guest is given
        (["accel/accel0"], [(INTEL, "0x7d1d")], Chips(0), 1),  # an NPU of Linux's accel subsystem
        ([], [(GOOGLE, "0x0063")], Chips(0), 1),
        ([], [], Chips(0), 1),
    ],
)
def test_chips_of_a_host(
    tmp_path: Path,
    files: list[str],
    pci: list[tuple[str, str]],
    expected: Chips,
    devices: int,
) -> None:
    found = on_host(host(tmp_path, files, *pci))
    assert found == expected
    assert found.devices_of_each == devices
