"""Checkpoints every few steps, each in its own folder; one process writes whole tensors."""

from __future__ import annotations

import os
import shutil
import signal
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner as SPMDLoadPlanner  # noqa: F401
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner as SPMDSavePlanner  # noqa: F401
from torch.utils import _pytree as pytree

from xla_dynamo.compat.device import step_barrier

from ...core._transfer import to_cpu

_FILE = "state.pt"


class CheckpointManager:
    """Saves to `path`/<step>.

    Args:
        path: a local folder.
        save_interval: steps between checkpoints.
        max_to_keep: how many are kept, those that were written last; 0: all.
        chkpt_on_preemption: whether SIGTERM asks for a checkpoint at the next step.
    """

    def __init__(
        self,
        path: str,
        save_interval: int,
        max_to_keep: int | None = 0,
        max_pending_async: int | None = 1,
        num_of_threads: int | None = 1,
        process_group: Any = None,
        chkpt_on_preemption: bool = True,
    ) -> None:
        if save_interval < 1:
            raise ValueError(f"save_interval={save_interval} is not at least 1")
        self.base_path = os.fspath(path)
        self.save_interval = save_interval
        self.max_to_keep = max_to_keep or 0
        self._pool = ThreadPoolExecutor(num_of_threads or 1)
        self._pending: list[Future[None]] = []
        self._preempted = False
        if chkpt_on_preemption:
            signal.signal(signal.SIGTERM, self._on_signal)

    def _on_signal(self, *_: Any) -> None:
        self._preempted = True

    def should_save(self, step: int) -> bool:
        """Whether this step is due."""
        return step % self.save_interval == 0 or self._preempted

    def save(self, step: int, state_dict: dict[str, Any], force: bool | None = False) -> bool:
        """Save if the step is due, or with `force`; whether it was saved."""
        if not (self.should_save(step) or force):
            return False
        self._save(step, to_cpu(state_dict))
        return True

    def save_async(self, step: int, state_dict: dict[str, Any], force: bool | None = False) -> bool:
        """`save`, with the file written in another thread."""
        if not (self.should_save(step) or force):
            return False
        self._pending.append(self._pool.submit(self._save, step, to_cpu(state_dict)))
        return True

    def _save(self, step: int, state_dict: dict[str, Any]) -> None:
        folder = Path(self.base_path, str(step))
        folder.mkdir(parents=True, exist_ok=True)
        torch.save(state_dict, folder / (_FILE + ".partial"))
        os.replace(folder / (_FILE + ".partial"), folder / _FILE)
        files = sorted(self._files(), key=lambda file: file.stat().st_mtime_ns)
        for old in files[: max(len(files) - self.max_to_keep, 0)] if self.max_to_keep else []:
            shutil.rmtree(old.parent)

    def restore(self, step: int, state_dict: dict[str, Any]) -> None:
        """Load the checkpoint of a step into the tensors of `state_dict`.

        Raises:
            FileNotFoundError: there is none.
            ValueError: it has another structure.
        """
        saved = torch.load(Path(self.base_path, str(step), _FILE), weights_only=False)
        old, spec = pytree.tree_flatten(saved)
        now, expected = pytree.tree_flatten(state_dict)
        if spec != expected:
            raise ValueError(f"the checkpoint of step {step} has other entries than state_dict")
        with torch.no_grad():
            for target, value in zip(now, old, strict=True):
                if isinstance(target, torch.Tensor):
                    target.copy_(value.to(target.device))

    def all_steps(self) -> list[int]:
        """The steps that have a checkpoint, in order."""
        return sorted(int(file.parent.name) for file in self._files())

    def _files(self) -> list[Path]:
        found = Path(self.base_path).glob(f"*/{_FILE}")
        return [file for file in found if file.parent.name.isdecimal()]

    def join(self) -> None:
        """Return when all files are written; raises what writing raised."""
        pending, self._pending = self._pending, []
        for future in pending:
            future.result()

    def reached_preemption(self, step: int) -> bool:
        """Whether SIGTERM came."""
        return self._preempted


def prime_optimizer(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """Take one step with zero gradients, so that all state exists and can be loaded into.

    The step may change parameters (weight decay): restore them afterwards.
    """
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter.requires_grad:
                parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    step_barrier.mark_step(wait=True)
    return optimizer
