"""torch_xla.experimental, with the switch to run ops one by one, which is stored and no more.

Lazy recording computes the same values, and reports what makes a program slow.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from xla_dynamo.compat.execution import settings


def eager_mode(enable: bool) -> None:
    """Set the switch."""
    settings.set_flag("eager", enable)


def is_eager_mode() -> bool:
    """The switch."""
    return settings.flag("eager")


@contextlib.contextmanager
def eager_mode_context(enable: bool) -> Iterator[bool]:
    """A block with the switch set; gives what it was."""
    before = is_eager_mode()
    eager_mode(enable)
    try:
        yield before
    finally:
        eager_mode(before)
