"""Every error that xla_dynamo raises on purpose.

One root, so that `except XlaDynamoError` catches them all. A message says what failed, where in the
user's program, why, and what to do about it.
"""

from __future__ import annotations

import torch


class XlaDynamoError(RuntimeError):
    """Root of all errors raised by xla_dynamo."""


class UnsupportedOp(XlaDynamoError):
    """An op cannot be compiled for XLA with these arguments.

    Attributes:
        op: its name ("aten.sort.default").
        location: the user's line ("train.py:12").
        reason: why, as a sentence.
        remedy: what to do about it, as a sentence.

    Each is None where it is not known.
    """

    def __init__(
        self,
        message: str,
        *,
        op: str | None = None,
        location: str | None = None,
        reason: str | None = None,
        remedy: str | None = None,
    ) -> None:
        super().__init__(message)
        self.op = op
        self.location = location
        self.reason = reason
        self.remedy = remedy


class OptionError(XlaDynamoError, ValueError):
    """An option or environment variable has an unknown name or an illegal value."""


class CompileError(XlaDynamoError):
    """torch-mlir or XLA refused a program."""


class InstallationError(XlaDynamoError, ImportError):
    """Packages are missing, too old, or do not go together; no program is at fault."""


class DeviceUnavailable(XlaDynamoError):
    """The PJRT platform asked for does not exist or cannot be initialised here."""


class ReplicaError(XlaDynamoError):
    """Replicas of a program did not come together; the message names rank and cause."""


class NotAvailable(XlaDynamoError, NotImplementedError):
    """A name of torch_xla that cannot do its work here; the message says what to use instead."""


class OutOfMemory(XlaDynamoError, torch.OutOfMemoryError):
    """A program or a tensor does not fit into the memory of its device."""
