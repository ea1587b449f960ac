"""The processes of xmp.spawn, as torch.multiprocessing has them, with their coordination service.

The service is a process of its own: where it ran in threads of the calling process, and that were
forked once more, as by a second xmp.spawn beside the first, the children would wait for threads
that they do not have.
"""

from __future__ import annotations

import multiprocessing.connection
from typing import TYPE_CHECKING, Any

from torch.multiprocessing.spawn import ProcessContext

if TYPE_CHECKING:
    from xla_dynamo.backend.runtime import coordinator


class ReplicaContext(ProcessContext):
    """Processes that have been started, and the coordination service of their job.

    service: None where another host has it.
    """

    def __init__(self, started: ProcessContext, service: coordinator.Apart | None) -> None:
        super().__init__(started.processes, started.error_files)
        self._service = service

    def join(self, *args: Any, **kwargs: Any) -> bool:
        """As torch's; the service ends when all processes have."""
        try:
            return bool(super().join(*args, **kwargs))
        finally:
            self.reap()

    def reap(self) -> bool:
        """Whether all processes have ended; if so, their service does, too."""
        sentinels = [process.sentinel for process in self.processes]
        if len(multiprocessing.connection.wait(sentinels, timeout=0)) < len(sentinels):
            return False
        self._end_service()
        return True

    def stop(self) -> None:
        """End all processes at once, and their service."""
        for process in self.processes:
            if process.is_alive():
                process.terminate()
        self._end_service()

    def _end_service(self) -> None:
        if self._service is not None:
            self._service.end()
            self._service = None
