"""What a script sets for the whole process, and who asks: compiler options, whether to launch."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from xla_dynamo.compat.recording.trace import Window

_options: dict[str, Any] = {}
_flags: dict[str, Any] = {"eager": False, "graph_name": "", "ir_debug": False}


def options() -> Mapping[str, Any]:
    """Options for every program compiled from now on, as torch.compile takes them."""
    return _options


def set_option(name: str, value: Any) -> None:
    """Set an option of `xla_dynamo.backend.options.Options`; None: its default.

    What was compiled with another value is compiled again.
    """
    from xla_dynamo.compat.device import register

    from . import sync

    before = dict(_options)
    if value is None:
        _options.pop(name, None)
    else:
        _options[name] = value
    if _options != before:
        windows = register.windows()
        try:
            for window in windows:
                sync.cut(window)
        finally:  # also where an op raises
            for window in windows:
                with window.lock:
                    _forget_programs(window)


def _forget_programs(window: Window) -> None:
    states = [window.root]
    while states:
        state = states.pop()
        state.programs.clear()
        states.extend(state.children.values())


def flag(name: str) -> Any:
    """A setting that is only remembered."""
    return _flags[name]


def set_flag(name: str, value: Any) -> None:
    """Remember a setting."""
    _flags[name] = value


def launches_allowed() -> bool:
    """Whether a barrier may launch a program."""
    from . import sync

    return sync.refusal is None


def allow_launches(allowed: bool) -> None:
    """Let barriers launch, or raise instead."""
    from . import sync

    message = "Unexpected execution happens inside the compiled function, exiting"
    sync.refusal = None if allowed else message


@contextlib.contextmanager
def no_launches(active: bool = True) -> Iterator[None]:
    """A block in which a launch is an error."""
    before = launches_allowed()
    allow_launches(before and not active)
    try:
        yield
    finally:
        allow_launches(before)
