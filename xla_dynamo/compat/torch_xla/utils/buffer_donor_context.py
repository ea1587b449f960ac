"""alias_with_buffer_donor_config: has no effect; updated tensors reuse their old buffers anyway."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator


@contextlib.contextmanager
def alias_with_buffer_donor_config(should_alias: bool = True) -> Iterator[bool]:
    """Yields the setting before: False."""
    yield False
