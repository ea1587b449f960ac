"""Save big checkpoints as a small file and a folder with one file for each tensor.

    path            what was saved, with TensorReference(i) for tensor i
    path.tensors/   tensor_0.pt, tensor_1.pt, ...

Only one tensor at a time is copied to the CPU, in saving and in loading.
"""

from __future__ import annotations

import os
import shutil
from typing import Any

import torch

from ..core import xla_model as xm
from .nested import for_each_instance_rewrite


class TensorReference:
    """Stands for tensor number `tid` of the folder."""

    def __init__(self, tid: int) -> None:
        self.tid = tid


def _folder(path: Any) -> str:
    return f"{os.fspath(path)}.tensors"


def _file(path: Any, tid: int) -> str:
    return os.path.join(_folder(path), f"tensor_{tid}.pt")


def save(
    data: Any, path: str | os.PathLike[str], master_only: bool = True, global_master: bool = False
) -> None:
    """Save nested data, its tensors each in a file of its own.

    Args:
        data: tensors in dicts, lists, tuples and objects.
        path: the file; `path + ".tensors"` is replaced.
        master_only: with False every replica writes.
        global_master: whether the master of all hosts writes, or that of each host.
    """
    writes = not master_only or xm.is_master_ordinal(local=not global_master)
    if writes:
        shutil.rmtree(_folder(path), ignore_errors=True)
        os.mkdir(_folder(path))
    xm.mark_step()
    count = 0

    def store(tensor: torch.Tensor) -> TensorReference:
        nonlocal count
        reference = TensorReference(count)
        count += 1
        if writes:
            torch.save(tensor.cpu(), _file(path, reference.tid))
        return reference

    references = for_each_instance_rewrite(data, lambda v: isinstance(v, torch.Tensor), store)
    if writes:
        torch.save(references, path)
    xm.rendezvous("torch_xla.utils.serialization.save")


def load(path: str | os.PathLike[str]) -> Any:
    """What `save` saved, its tensors on the CPU."""
    references = torch.load(path, weights_only=False)
    return for_each_instance_rewrite(
        references,
        lambda value: isinstance(value, TensorReference),
        lambda reference: torch.load(_file(path, reference.tid), weights_only=False),
    )
