"""Checkpoints every few steps, each in its own folder, by torch.distributed.checkpoint."""

from __future__ import annotations

import os
import shutil
import signal
import threading
import warnings
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from xla_dynamo.compat.device import step_barrier

from ._helpers import _sharded_cpu_state_dict
from .planners import SPMDLoadPlanner, SPMDSavePlanner

_FILE = ".metadata"  # what torch.distributed.checkpoint writes last


class CheckpointManager:
    """Saves to `path`/<step>; with several processes, each writes its parts of tensors.

    Args:
        path: a folder that all processes see.
        save_interval: steps between checkpoints.
        max_to_keep: how many are kept, those that were written last; 0: all.
        max_pending_async: how many may wait to be written; save_async waits for the others.
        num_of_threads: how many write the files of one checkpoint.
        process_group: of the processes that save together; default: all.
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
        self._group, self._threads = process_group, num_of_threads or 1
        self._pool = ThreadPoolExecutor(1)
        self._free = threading.Semaphore(max_pending_async or 1)
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
        step_barrier.mark_step(wait=True)
        self._save(step, state_dict)
        return True

    def save_async(self, step: int, state_dict: dict[str, Any], force: bool | None = False) -> bool:
        """`save`, with the files written in another thread."""
        if not (self.should_save(step) or force):
            return False
        parts = _sharded_cpu_state_dict(state_dict)
        self._free.acquire()
        future = self._pool.submit(self._save, step, parts)
        future.add_done_callback(lambda _: self._free.release())
        self._pending.append(future)
        return True

    def _save(self, step: int, state_dict: dict[str, Any]) -> None:
        folder = Path(self.base_path, str(step))
        is_first = not _in_group() or dist.get_rank(self._group) == 0
        if is_first:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / _FILE).unlink(missing_ok=True)
        writer = FileSystemWriter(folder, thread_count=self._threads, overwrite=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # says that there is one process
            save(
                state_dict,
                storage_writer=writer,
                planner=SPMDSavePlanner(),
                process_group=self._group,
            )
        if not is_first or not self.max_to_keep:
            return
        files = sorted(self._files(), key=lambda file: file.stat().st_mtime_ns)
        for old in files[: max(len(files) - self.max_to_keep, 0)]:
            shutil.rmtree(old.parent)

    def restore(self, step: int, state_dict: dict[str, Any]) -> None:
        """Load the checkpoint of a step into `state_dict`; tensors keep how they are split.

        Raises:
            FileNotFoundError: there is none.
            RuntimeError: it lacks an entry.
        """
        folder = Path(self.base_path, str(step))
        if not (folder / _FILE).exists():
            raise FileNotFoundError(f"{folder} holds no checkpoint; there are {self.all_steps()}")
        step_barrier.mark_step()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            load(
                state_dict,
                storage_reader=FileSystemReader(folder),
                planner=SPMDLoadPlanner(),
                process_group=self._group,
            )

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


def _in_group() -> bool:
    return dist.is_available() and dist.is_initialized()
