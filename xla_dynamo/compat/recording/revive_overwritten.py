"""Lets an op that overwrites its whole target revive a target whose computation failed.

Functionalization hands the old value to such an op (zero_, fill_, normal_, ...), which ignores it.
Where the old value failed, the op gets an uninitialised tensor instead.
"""

from __future__ import annotations

from typing import Any

import torch

from xla_dynamo.compat.values.values import Failure, Leaf, Value, leaf

aten = torch.ops.aten

# Of bernoulli, the form that reads its target, as probabilities, is none.
_OVERWRITES = frozenset(
    getattr(packet, overload)
    for packet in (
        *(aten._foreach_zero, aten.bernoulli, aten.cauchy, aten.exponential, aten.fill),
        *(aten.geometric, aten.log_normal, aten.normal_functional, aten.random, aten.uniform),
        aten.zero,
    )
    for overload in packet.overloads()
) - {aten.bernoulli.default}


def without_failed(func: Any, args: Any) -> Any:
    """The arguments with what torch.empty gives for failed targets; None if that changes nothing.

    func: any op; of one that reads its target nothing changes.
    """
    if func not in _OVERWRITES:
        return None
    target = args[0]
    targets = target if isinstance(target, (list, tuple)) else [target]
    if not any(map(_failed, targets)):
        return None
    good = [leaf(Value(t.value.meta, t.value.home)) if _failed(t) else t for t in targets]
    return (good if target is targets else good[0], *args[1:])


def _failed(target: Any) -> bool:
    return type(target) is Leaf and type(target.value.ref) is Failure
