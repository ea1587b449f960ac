"""Views and in-place ops of torch.prims, by the aten ops that they stand for.

PyTorch's functionalization knows those of aten alone.
"""

from __future__ import annotations

import torch

from xla_dynamo.compat.values.torch_private import PRIMS


def register_prims(library: torch.library.Library) -> None:
    """Register kernels in `library`, of namespace prims and dispatch key AutogradXLA."""
    for name in PRIMS:
        op = getattr(getattr(torch.ops.prims, name, None), "default", None)
        if op is not None and any(result.alias_info for result in op._schema.returns):
            library.impl(name, op.impl_aten)
