"""Why Dynamo captured a function again: which argument differs from the last capture's."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from xla_dynamo.bookkeeping import optional
from xla_dynamo.bounded import Bounded

_last: Bounded[int, Mapping[str, Any]] = Bounded(4096)
_lock = threading.Lock()

FIRST = "first call"


@optional("not known")
def reason(frame: int, capture: int, names: Sequence[str], arguments: Sequence[Any]) -> str:
    """Which argument differs from the previous capture of Dynamo's frame number `frame`.

    `capture` counts the captures of the frame from 0; `names` are Dynamo's source expressions.
    """
    now = {name: _describe(argument) for name, argument in zip(names, arguments, strict=True)}
    with _lock:
        before = _last.get(frame) if capture else None
        _last[frame] = now
    if before is None:
        return FIRST
    changes = [_change(name, before[name], now[name]) for name in now if name in before]
    found = ", ".join(change for change in changes if change)
    return found or "Dynamo captured the function again (TORCH_LOGS=recompiles shows its guards)"


def _describe(argument: Any) -> Any:
    if isinstance(argument, torch.Tensor):
        # str: the sizes of a fake tensor may be symbolic, and comparing those adds guards.
        return argument.dtype, argument.requires_grad, [str(size) for size in argument.shape]
    return str(argument)


def _change(name: str, before: Any, now: Any) -> str:
    if before == now:
        return ""
    if not (isinstance(before, tuple) and isinstance(now, tuple)):
        return f"{name} changed from {_text(before)} to {_text(now)}"
    (old_dtype, _, old_shape), (dtype, grad, shape) = before, now
    if old_dtype != dtype:
        return f"{name} changed from {old_dtype} to {dtype}"
    if len(old_shape) != len(shape):
        return f"{name} changed from {len(old_shape)} to {len(shape)} dimensions"
    for dimension, (old, new) in enumerate(zip(old_shape, shape, strict=True)):
        if old != new:
            became = f"changed from {old} to {new}" if new.isdecimal() else f"was {old}, now varies"
            return f"{name} dimension {dimension} {became}"
    return f"{name} {'now' if grad else 'no longer'} requires a gradient"


def _text(described: Any) -> str:
    return f"a {described[0]} tensor" if isinstance(described, tuple) else described
