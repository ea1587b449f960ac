"""torch_xla's version: that of its last release, with ours."""

from __future__ import annotations

import torch

from xla_dynamo.compat.namespace.finder import VERSION

__version__ = VERSION
__xla_gitrev__ = ""
__torch_gitrev__ = torch.version.git_version
