"""What makes programs, here or in the process that loads what torch.compile's user has saved.

`torch.compile(...).aot_compile` keeps functional graphs, after the passes for a platform, and not
programs: they are lowered where they are loaded, by the options they were saved with.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch.fx import GraphModule

from xla_dynamo import versions
from xla_dynamo.backend.capture.aot import GraphInfo
from xla_dynamo.backend.options import Options
from xla_dynamo.backend.runtime import pjrt
from xla_dynamo.backend.runtime.platforms import default_platform
from xla_dynamo.errors import CompileError

from .by_shape import Run, make_program


@dataclass(frozen=True)
class MadeFor:
    """Makes programs of graphs that were made for a platform, by a version; it can be pickled."""

    options: Options
    platform: str
    version: str

    def __call__(self, graph: GraphModule, info: GraphInfo) -> Run:
        """See `make_program`."""
        return make_program(graph, info, self.options)

    def __reduce__(self) -> tuple[Any, ...]:
        return loaded, (self.options, self.platform, self.version)


def loaded(options: Options, platform: str, version: str) -> MadeFor:
    """What was pickled.

    Raises:
        CompileError: this process has another platform, or another version of xla_dynamo.
    """
    here = current(options)
    if (platform, version) != (here.platform, here.version):
        raise CompileError(
            f"this function was saved for {platform} by xla_dynamo {version}, and here is "
            f"{here.platform} with {here.version}. Compile it again, and save it here."
        )
    return here


def current(options: Options) -> MadeFor:
    """For the platform and the version of this process."""
    versions.require()
    device = pjrt.device(options.platform or default_platform())
    return MadeFor(options, pjrt.platform(device), str(versions.installed("xla_dynamo")))
