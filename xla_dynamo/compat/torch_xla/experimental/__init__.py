"""torch_xla.experimental, with the switch to run ops when they are called.

What torch_xla.compile or torch.compile is given is one program in eager mode too.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from xla_dynamo.compat.execution import automatic_barriers


def eager_mode(enable: bool) -> None:
    """Run every op when it is called, or record them and run them at barriers, as usual."""
    automatic_barriers.run_each_op(enable)


def is_eager_mode() -> bool:
    """Whether every op runs when it is called."""
    return automatic_barriers.runs_each_op()


@contextlib.contextmanager
def eager_mode_context(enable: bool) -> Iterator[bool]:
    """A block with the switch set; gives what it was."""
    before = is_eager_mode()
    eager_mode(enable)
    try:
        yield before
    finally:
        eager_mode(before)
