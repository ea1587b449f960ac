"""Scripts written for torch_xla -> programs on xla_dynamo's lazy `xla:N` device.

Importing this activates it: `import torch_xla` then resolves, and `xla:0` is a device. The same do
`python -m xla_dynamo run script.py` and the environment variable XLA_DYNAMO_COMPAT=1. Without one
of them nothing changes in the process.
"""

from __future__ import annotations

from . import finder


def install() -> None:
    """Make the names of torch_xla and the device `xla` available; a second call does nothing.

    Raises:
        ImportError: a real torch_xla is imported already.
    """
    from . import autocast, debugging, device, scaling, torch_hooks

    finder.add()
    device.install()
    scaling.install()
    autocast.install()
    torch_hooks.install()
    debugging.install()


def uninstall() -> None:
    """Undo install(): names, hooks and defaults. Tensors on `xla` devices stay usable."""
    from . import torch_hooks

    torch_hooks.uninstall()
    finder.remove()


install()
