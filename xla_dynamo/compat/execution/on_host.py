"""What is computed of a list that grows, and of nothing else, in each step: the mean of all losses.

`torch.stack(losses).mean()` has an operand of another size in each step, and would be another
program each time. From the fourth size on, the host computes it, from the parts (growing_results),
and so does it what is computed of the result. Whatever the device has a hand in, it computes.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import _pytree as pytree

from xla_dynamo.bounded import Bounded
from xla_dynamo.compat.recording import metrics, shape_inference
from xla_dynamo.compat.recording.trace import Trace
from xla_dynamo.compat.recording.trace_bounds import policy
from xla_dynamo.compat.values.functionalization import honouring_lazy_bits
from xla_dynamo.compat.values.op_table import Op
from xla_dynamo.compat.values.values import Held, Joined, Leaf, Value, meta_of

from . import settings, sync

# Programs for as many sizes of one list; more elements than these are the device's business.
_SIZES, _ELEMENTS = 3, 1 << 20
# The sizes of each list for which an op was called, by the identity of its first value.
_seen: Bounded[tuple[Op, tuple[int, ...], int], set[int]] = Bounded(1024)


def compute(trace: Trace, op: Op, args: Any, kwargs: Any) -> Any:
    """The values of an op, or NotImplemented where the device is to compute it."""
    tensors = [t for t in pytree.tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
    if op.random or not settings.launches_allowed() or not all(_is_the_hosts(t) for t in tensors):
        return NotImplemented

    def held(result: Any) -> Any:
        if not isinstance(result, torch.Tensor):
            return result
        own = shape_inference.like(meta_of(result))
        return Value(own, trace, Held(result, sync.place))

    metrics.count_fallback(op.func)
    args, kwargs = pytree.tree_map(sync.to_cpu, (list(args), dict(kwargs)))
    with honouring_lazy_bits():
        return pytree.tree_map(held, op.func(*args, **kwargs))


def _is_the_hosts(tensor: torch.Tensor) -> bool:
    """Whether a tensor is on the host, or a list of results there that has had many sizes."""
    if type(tensor) is not Leaf:
        return tensor.dim() == 0
    known = tensor.value.ref
    if type(known) is not Joined or not known.listed or tensor.numel() > _ELEMENTS:
        return type(known) is Held and not known.is_upload
    key = known.op, known.rest, id(known.parts[0])
    sizes = _seen.get(key)
    if sizes is None:
        sizes = _seen[key] = set()
    sizes.add(len(known.parts))
    return len(sizes) > _SIZES


policy.on_host = compute
