"""Runs scripts written for torch_xla on xla_dynamo's lazy `xla:N` device.

Importing this package activates it: `import torch_xla` then resolves, and `xla:0` is a device.
`python -m xla_dynamo run script.py` and the environment variable XLA_DYNAMO_COMPAT=1 do the same.
Without one of them nothing changes in the process.
"""

from __future__ import annotations

from xla_dynamo import versions

from .device import autocast, grad_scaler, register, torch_patches, torchrun
from .execution.sync import set_option as set_option
from .namespace import finder, operators
from .reporting import debugging, run_report


def install() -> None:
    """Make the names of torch_xla and the device `xla` available; a second call does nothing.

    Raises:
        ImportError: a real torch_xla is imported already.
        InstallationError: a package that this needs is missing or too old.
    """
    versions.require()
    finder.add()
    register.install()
    grad_scaler.install()
    autocast.install()
    torch_patches.install()
    debugging.install()
    operators.install()
    torchrun.install()
    run_report.install()


def uninstall() -> None:
    """Undo install(): names, hooks and defaults. Tensors on `xla` devices stay usable."""
    torch_patches.uninstall()
    finder.remove()


install()
