"""XLA_DYNAMO_COMPAT=1 -> torch_xla's names in this process; runs at the end of `import torch`.

PyTorch calls this in every process (entry point group `torch.backends`), so without the variable it
imports nothing, and it never raises. A module outside the package, because importing the package
takes milliseconds.
"""

from __future__ import annotations

import os


def autoload() -> None:
    """Activate xla_dynamo.compat if the environment says so."""
    if os.environ.get("XLA_DYNAMO_COMPAT", "0") in ("", "0"):
        return
    try:
        import xla_dynamo.compat  # noqa: F401
    except Exception as error:
        import warnings

        warnings.warn(f"XLA_DYNAMO_COMPAT is set, but torch_xla's names: {error!r}", stacklevel=2)
