"""Locks that a forked process finds free: who held them in the parent is not in the child."""

from __future__ import annotations

import os
from typing import Any, TypeVar

Lock = TypeVar("Lock")


def fork_safe(lock: Lock) -> Lock:
    """`lock`, made anew in every child process, as the standard library does with its own."""
    made: Any = lock
    os.register_at_fork(after_in_child=made._at_fork_reinit)
    return lock
