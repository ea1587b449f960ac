"""torch_xla.debug.model_comparator: save tensors by name in two runs, and see where they differ.

configure("/tmp/run"); save("logits", y, step=3)  ->  /tmp/run/step-3/logits.0
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

_NUMBERED = re.compile(r"(?P<name>.*)\.(?P<number>\d+)")
_folder: str | None = None
_numbers: dict[tuple[int | None, str], int] = {}


def configure(save_dir: str | None) -> None:
    """Where `save` writes; None: nowhere (or the folder MODELCMP_SAVEDIR)."""
    global _folder
    _folder = save_dir
    _numbers.clear()


def save(name: str | None, tensor: torch.Tensor, step: int | None = None) -> torch.Tensor:
    """Save a tensor under a name (default: the caller's line), numbered; returns the tensor."""
    folder = _folder or os.environ.get("MODELCMP_SAVEDIR")
    if folder is None:
        return tensor
    if name is None:
        caller = sys._getframe(1)
        name = f"{os.path.basename(caller.f_code.co_filename)}.l{caller.f_lineno}"
    number = _numbers.get((step, name), 0)
    _numbers[step, name] = number + 1
    path = Path(folder) if step is None else Path(folder) / f"step-{step}"
    path.mkdir(exist_ok=True)
    torch.save(tensor.cpu(), path / f"{name}.{number}")
    return tensor


def compare_tensors(
    tensor1: torch.Tensor,
    tensor2: torch.Tensor,
    rtol: float = 1e-05,
    atol: float = 1e-08,
    max_diffs: int = 25,
) -> str:
    """A line for each of the largest differences beyond both tolerances; "" if there is none."""
    shapes = list(tensor1.shape), list(tensor2.shape)
    if shapes[0] != shapes[1]:
        return f"Tensors have different shape: {shapes[0]} vs. {shapes[1]}\n"
    first, second = (tensor.detach().cpu().double().numpy() for tensor in (tensor1, tensor2))
    error = np.abs(first - second)
    allowed = np.maximum(np.maximum(np.abs(first), np.abs(second)) * rtol, atol)
    places = np.argwhere(error > allowed)
    places = sorted(map(tuple, places.tolist()), key=lambda place: -error[place])
    lines = [
        f"{list(place)}: {first[place]} vs. {second[place]}\terror={error[place]}\n"
        for place in places[:max_diffs]
    ]
    if len(places) > max_diffs:
        lines.append(f"... aborting after {max_diffs} differences\n")
    return "".join(lines)


def tensor_file_compare(
    path1: str, path2: str, rtol: float = 1e-05, atol: float = 1e-08, max_diffs: int = 25
) -> str:
    """`compare_tensors` of two files of `save`."""
    report = compare_tensors(torch.load(path1), torch.load(path2), rtol, atol, max_diffs)
    match = _NUMBERED.fullmatch(os.path.basename(path1))
    if not report or match is None:
        return report
    parent = os.path.basename(os.path.dirname(path1))
    at = f" at step={parent[5:]}" if re.fullmatch(r"step-\d+", parent) else ""
    title = f'Changes in saved tensor "{match["name"]}" with id={match["number"]}{at}\n'
    return title + "".join(f"  {line}\n" for line in report.splitlines())


def compare(
    save_dir1: str,
    save_dir2: str,
    rtol: float = 1e-05,
    atol: float = 1e-08,
    max_diffs: int = 25,
) -> str:
    """The differences of two folders of `save`: tensors missing on one side, and values."""
    first, second = set(_saved(save_dir1)), set(_saved(save_dir2))
    lines = []
    for path in sorted(first | second):
        if path not in second:
            lines.append(f"Mismatch: {path} not in {save_dir2}\n")
        elif path not in first:
            lines.append(f"Mismatch: {path} not in {save_dir1}\n")
        else:
            both = os.path.join(save_dir1, path), os.path.join(save_dir2, path)
            lines.append(tensor_file_compare(*both, rtol, atol, max_diffs))
    return "".join(lines)


def _saved(folder: str) -> Iterator[str]:
    for path in Path(folder).rglob("*"):
        if path.is_file() and _NUMBERED.fullmatch(path.name):
            yield str(path.relative_to(folder))
