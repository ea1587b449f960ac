"""Which ops a thread dispatches."""

from __future__ import annotations

from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode


class Seen(TorchDispatchMode):
    """Notes the ops of its thread."""

    def __init__(self) -> None:
        super().__init__()
        self.ops: list[str] = []

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.ops.append(str(op))
        return op(*args, **(kwargs or {}))
