"""Ops over which all leading dimensions are a batch: its padding is computed as the rest is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from xla_dynamo.backend.passes.padding.layouts import Dim
from xla_dynamo.backend.passes.padding.padder import Padded, Padder, dims_of
from xla_dynamo.backend.passes.padding.registry import pads
from xla_dynamo.backend.passes.padding.sizes import Refused

# The trailing dimensions that an op mixes, of each of its tensor operands; of results, the rest of
# what is no batch.
_CORE: Mapping[str, tuple[int, ...]] = {
    **{f"reflection_pad{n}d": (n,) for n in (1, 2, 3)},
    **{f"replication_pad{n}d": (n,) for n in (1, 2, 3)},
    **{f"reflection_pad{n}d_backward": (n, n) for n in (1, 2, 3)},
    **{f"replication_pad{n}d_backward": (n, n) for n in (1, 2, 3)},
    **{f"upsample_nearest{n}d": (n,) for n in (1, 2, 3)},
    **{f"_upsample_nearest_exact{n}d": (n,) for n in (1, 2, 3)},
    **{
        f"{name}{backward}": (count,)
        for name, count in (
            *(("upsample_linear1d", 1), ("upsample_bilinear2d", 2), ("upsample_bicubic2d", 2)),
            *(("upsample_trilinear3d", 3), ("_upsample_bilinear2d_aa", 2)),
            ("_upsample_bicubic2d_aa", 2),
        )
        for backward in ("", "_backward")
    },
    **{f"grid_sampler_{n}d": (n + 1, n + 1) for n in (2, 3)},
    **{f"grid_sampler_{n}d_backward": (n + 1, n + 1, n + 1) for n in (2, 3)},
    **{f"upsample_nearest{n}d_backward": (n,) for n in (1, 2, 3)},
    **{f"_upsample_nearest_exact{n}d_backward": (n,) for n in (1, 2, 3)},
    "im2col": (3,),
    "col2im": (2,),
    "_cdist_forward": (2, 2),
    "_cdist_backward": (2, 2, 2, 2),
    "glu_backward": (1, 1),
}


def _lead(x: Padded, core: int) -> int:
    return max(len(x.dims) - core, 0)


def _rule(core: tuple[int, ...]) -> Any:
    def rule(p: Padder, *args: Any) -> Any:
        cores = iter(core)
        operands = {i: (x, next(cores)) for i, x in enumerate(args) if isinstance(x, Padded)}
        for x, count in operands.values():
            inner = range(_lead(x, count), len(x.dims))
            if x.padded_in(inner):
                raise Refused("it mixes a padded dimension", [x.dims[d].size for d in inner])
        batch, given = _batch(p, operands)
        others = (_padded_sizes(p, given.get(i, arg)) for i, arg in enumerate(args))
        made = p.again(*others)
        dims = [None if out is None else [*batch, *dims_of(out[len(batch) :])] for out in p.outs()]
        several = isinstance(made.meta["val"], (tuple, list))
        return p.give_all(made, dims) if several else p.give(made, dims[0] or ())

    return rule


def _padded_sizes(p: Padder, arg: Any) -> Any:
    """A shape that an op takes, padded."""
    return [p.padded(n) for n in arg] if isinstance(arg, (list, tuple)) else arg


def _batch(
    p: Padder, operands: Mapping[int, tuple[Padded, int]]
) -> tuple[list[Dim], dict[int, Any]]:
    """The dimensions of the batch, and the operands with its layout."""
    first, core = next(iter(operands.values()))
    batch = list(p.varying(first).dims[: _lead(first, core)])
    given: dict[int, Any] = {}
    for i, (x, count) in operands.items():
        lead = _lead(x, count)
        if lead != len(batch):
            raise Refused("its operands have different batches")
        for d in range(lead):
            if x.dims[d] != batch[d] and x.dims[d].size != 1:
                x = p.moved(x, d, batch[d])
        given[i] = x
    return batch, given


for _name, _counts in _CORE.items():
    pads(f"aten.{_name}.default")(_rule(_counts))
