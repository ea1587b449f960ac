"""torch_xla._dynamo.dynamo_backend2: a backend for torch.compile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

import xla_dynamo


def dynamo_backend(fx: torch.fx.GraphModule, args: Sequence[Any]) -> Callable[..., Any]:
    """Backend "xla"."""
    return xla_dynamo.xla(fx, list(args))
