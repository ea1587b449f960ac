"""Lets an op that overwrites its whole target revive a target whose computation failed.

Functionalization hands the old value to such an op (zero_, fill_, normal_, ...), which ignores it.
Where the old value failed, the op gets an uninitialised tensor instead.
"""

from __future__ import annotations

from typing import Any

import torch

from xla_dynamo.compat.values.values import Failure, Leaf, Value, leaf

aten = torch.ops.aten

_OVERWRITES = frozenset(
    {
        aten._foreach_zero.default,
        aten.bernoulli.p,
        aten.bernoulli.Tensor,
        aten.cauchy.default,
        aten.exponential.default,
        aten.fill.Scalar,
        aten.fill.Tensor,
        aten.geometric.default,
        aten.log_normal.default,
        aten.normal_functional.default,
        getattr(aten.random, "from"),
        aten.random.default,
        aten.random.to,
        aten.uniform.default,
        aten.zero.default,
    }
)


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
