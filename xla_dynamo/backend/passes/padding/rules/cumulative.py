"""Running sums and the like: what is before the padding does not see it."""

from __future__ import annotations

from typing import Any

import torch

from xla_dynamo.backend.passes.padding.padder import Fill, Padded, Padder
from xla_dynamo.backend.passes.padding.registry import pads

aten = torch.ops.aten


_FILLS: dict[Any, Fill] = {
    aten.cumsum.default: 0,
    aten.cumprod.default: 1,
    aten.cummax.default: "lowest",
    aten.cummin.default: "highest",
    aten.logcumsumexp.default: "lowest",
}


@pads(*_FILLS)
def running(p: Padder, x: Padded, dim: int, *rest: Any) -> Any:
    """All that go from the first element on; masked, as devices compute them by products too."""
    if x.dims:
        x = p.masked(p.plainly(x, [dim]), [dim], _FILLS[p.node.target])
    made = p.again(x, dim, *rest)
    several = isinstance(made.meta["val"], (tuple, list))
    return p.give_all(made, [x.dims, x.dims]) if several else p.give(made, x.dims)
