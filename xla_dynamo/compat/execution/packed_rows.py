"""Rows of a packed batch that are padded again are not packed: their number is in no program.

Packing puts itself off. What pads the rows again, as layers and pad_packed_sequence do, takes the
padded tensor instead; whatever else uses them has them made then.
"""

from __future__ import annotations

from typing import Any

import torch

from xla_dynamo.compat.recording.trace_bounds import policy
from xla_dynamo.compat.values.op_table import Op, handles, op_of
from xla_dynamo.compat.values.values import Leaf, PutOff, Value, leaf, meta

from .dispatch import record

ops = torch.ops.xla_dynamo


@handles(ops.pack_rows.default)
def _pack(op: Op, args: Any, kwargs: Any) -> Any:
    x, lengths, *rest = args
    if policy.each_op or type(x) is not Leaf or type(lengths) is not Leaf:
        return record(op, args, kwargs)
    of = meta(torch.Size([rest[0], *x.shape[2:]]), x.dtype)
    return leaf(Value(of, x.value.home, PutOff(op, (x.value, lengths.value), tuple(rest))))


@handles(ops.pad_rows.default)
def _pad(op: Op, args: Any, kwargs: Any) -> Any:
    rows, lengths, *rest = args
    known = rows.value.ref if type(rows) is Leaf else None
    if isinstance(known, PutOff) and known.op is _PACK and known.parts[1] is lengths.value:
        return record(op_of(ops.repad_rows.default), (leaf(known.parts[0]), lengths, *rest), kwargs)
    return record(op, args, kwargs)


_PACK = op_of(ops.pack_rows.default)
