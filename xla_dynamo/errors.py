"""Every error that xla_dynamo raises on purpose.

One root, so that `except XlaDynamoError` catches them all. A message says what failed, where in the
user's program, why, and what to do about it.
"""

from __future__ import annotations

import torch


class XlaDynamoError(RuntimeError):
    """Root of all errors raised by xla_dynamo."""


class UnsupportedOp(XlaDynamoError):
    """An op has no lowering to XLA for these arguments."""


class OptionError(XlaDynamoError, ValueError):
    """An option or environment variable has an unknown name or an illegal value."""


class CompileError(XlaDynamoError):
    """torch-mlir or XLA refused a program."""


class DeviceUnavailable(XlaDynamoError):
    """The PJRT platform asked for does not exist or cannot be initialised here."""


class NotAvailable(XlaDynamoError, NotImplementedError):
    """A name of torch_xla that cannot do its work here; the message says what to use instead."""


class OutOfMemory(XlaDynamoError, torch.OutOfMemoryError):
    """A program or a tensor does not fit into the memory of its device."""
