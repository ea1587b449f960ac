"""torch_xla.distributed.spmd.debugging: a sharding as a table of the devices of its parts."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import torch

from xla_dynamo.compat.recording import devices

from ..._sharding import spec_of

try:
    from rich.align import Align
    from rich.box import SQUARE
    from rich.console import Console
    from rich.padding import Padding
    from rich.table import Table
except ImportError:  # torch does not need it
    Console = None

# As HLO writes it: '{devices=[2,1,2]0,1,2,3 last_tile_dim_replicate}'
_TILED = re.compile(r"\{devices=\[([\d,]+)\]([\d,]+)( last_tile_dim_replicate)?\}")


def visualize_sharding(
    sharding: str,
    use_color: bool = True,
    scale: float = 1.0,
    min_width: int = 9,
    max_width: int = 80,
) -> Any:
    """Print which devices hold which part of the first two dimensions; gives the table, of rich.

    use_color: no lines around the parts, where the terminal has colors. scale and min_width, of the
    cells, change nothing.

    Raises:
        ValueError: rich is not installed, or the text is no sharding.
    """
    if Console is None:
        raise ValueError("`visualize_sharding` requires `rich` to be installed.")
    print(f"Visualizing {sharding} (showing up to the first two dimensions)")
    console = Console(width=max_width)
    lines = not (use_color and console.color_system is not None)
    box = SQUARE if lines else None
    table = Table(
        show_header=False, show_lines=lines, padding=0, highlight=lines, pad_edge=False, box=box
    )
    kind = devices.hardware()
    for row in _parts(sharding):
        cells = [Align(f"{kind} {part}", "center", vertical="middle") for part in row]
        table.add_row(*(Padding(cell, (1, 1, 1, 1)) for cell in cells))
    console.print(table, end="\n\n")
    return table


def visualize_tensor_sharding(t: torch.Tensor, **kwargs: Any) -> Any:
    """visualize_sharding of a tensor's sharding."""
    return visualize_sharding(spec_of(t), **kwargs)


def _parts(sharding: str) -> list[list[Any]]:
    """The devices of each part, in rows and columns: one, or the list of its replicas."""
    if sharding in ("", "{replicated}"):
        return [[list(range(len(devices.everywhere())))]]
    found = _TILED.fullmatch(sharding)
    if found is None:
        raise ValueError(f"sharding {sharding} is not organized as expected")
    tiles, of, replicates = found.groups()
    shape = [int(size) for size in tiles.split(",")]
    grid = np.array([int(device) for device in of.split(",")]).reshape(shape)
    if not replicates:
        grid = grid[..., None]
    grid = grid.reshape(*grid.shape[:-1], *[1] * (3 - grid.ndim), grid.shape[-1])
    plane = grid[(slice(None), slice(None), *[0] * (grid.ndim - 3))].tolist()
    return [[part if replicates else part[0] for part in row] for row in plane]
