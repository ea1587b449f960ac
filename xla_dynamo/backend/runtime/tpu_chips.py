"""The TPU chips of this host, counted without libtpu, which would take them for this process."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_GOOGLE = "0x1ae0"
# PCI device -> generation; v2 and v3 have the same number.
_GENERATIONS = {
    "0x0027": "v3",
    "0x0056": "v4",
    "0x005e": "v4",
    "0x0062": "v5p",
    "0x0063": "v5e",
    "0x006f": "v6e",
    "0x0076": "tpu7x",
}
_TWO_DEVICES = frozenset({"v3", "tpu7x"})


@dataclass(frozen=True)
class Chips:
    """The chips of a host: how many, and of which generation ("" if it is not known)."""

    count: int
    generation: str = ""

    @property
    def devices_of_each(self) -> int:
        """How many devices a chip is to PJRT."""
        return 2 if self.generation in _TWO_DEVICES else 1


@functools.cache
def here() -> Chips:
    """The chips of this host."""
    return on_host(Path("/"))


def on_host(root: Path) -> Chips:
    """The chips that have a device file below `root`.

    A container may have the files of some of the machine's chips, which /sys lists all. Numbers in
    /dev/vfio are TPUs only where /sys lists one, or nothing at all: they may be any hardware.
    """
    accelerators = len(list(root.glob("dev/accel[0-9]*")))
    groups = 0 if accelerators else len(list(root.glob("dev/vfio/[0-9]*")))
    if not accelerators and not groups:
        return Chips(0)
    listed = list(_listed(root))
    if groups and not listed and any(root.glob("sys/bus/pci/devices/*")):
        return Chips(0)
    count = accelerators or groups
    return Chips(min(count, len(listed)) if listed else count, listed[0] if listed else "")


def _listed(root: Path) -> Iterator[str]:
    """The generation of each TPU chip on the PCI bus."""
    for vendor in root.glob("sys/bus/pci/devices/*/vendor"):
        if vendor.read_text().strip() == _GOOGLE:
            found = _GENERATIONS.get(vendor.with_name("device").read_text().strip())
            if found is not None:  # Google makes other devices, too
                yield found
