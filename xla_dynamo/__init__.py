"""Run PyTorch on XLA devices.

    model = torch.compile(model, backend="xla")

is all that most programs need; the entry point in pyproject.toml makes the backend known to
PyTorch without this import. What is here: the backend as a callable, its errors, and what it
compiled and why. Importing this imports neither jax nor torch_mlir and changes nothing.
"""

from __future__ import annotations

import typing

from .backend.metrics import BucketWarning as BucketWarning
from .backend.metrics import CompileRecord as CompileRecord
from .backend.metrics import FallbackWarning as FallbackWarning
from .backend.metrics import PassRecord as PassRecord
from .backend.metrics import RecompileWarning as RecompileWarning
from .backend.metrics import Stages as Stages
from .backend.metrics import Transfers as Transfers
from .backend.metrics import capture as capture
from .backend.metrics import compiles as compiles
from .backend.metrics import counters as counters
from .backend.metrics import passes as passes
from .backend.metrics import reset_metrics as reset_metrics
from .backend.metrics import transfers as transfers
from .errors import CompileError as CompileError
from .errors import DeviceUnavailable as DeviceUnavailable
from .errors import InstallationError as InstallationError
from .errors import OptionError as OptionError
from .errors import OutOfMemory as OutOfMemory
from .errors import UnsupportedOp as UnsupportedOp
from .errors import XlaDynamoError as XlaDynamoError

if typing.TYPE_CHECKING:
    from .backend import xla as xla
    from .backend.jax_functions import jax_function as jax_function
    from .backend.training_step import training_step as training_step
    from .reporting.session import report as report

    __version__: str


def __getattr__(name: str) -> object:
    """What loads more than this: `xla`, `jax_function`, `training_step`, `report`, a version."""
    if name == "__version__":
        from .versions import installed

        return installed("xla_dynamo") or "0+unknown"
    if name == "jax_function":
        from .backend import jax_functions

        return jax_functions.jax_function
    if name == "training_step":
        from .backend import training_step

        return training_step.training_step
    if name == "report":
        from .reporting import session

        return session.report
    if name != "xla":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import backend

    return backend.xla


def device() -> str:
    """The device that `backend="xla"` compiles for by default, and the versions behind it.

    "cpu/cpu/cpu/0.10.2" is platform/device kind/platform version/jaxlib version. Initialises the
    platform.

    Raises:
        DeviceUnavailable: the platform cannot be initialised here.
    """
    from .backend.runtime import pjrt
    from .backend.runtime.platforms import default_platform

    return pjrt.describe(pjrt.device(default_platform()))
