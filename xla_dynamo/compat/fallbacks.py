"""An op that runs on the CPU at once -> the warning: the op, the user's line, why, what to do."""

from __future__ import annotations

from typing import Any

import torch

from . import explain
from .place import Place

_MASK = "torch.where(mask, x, 0) or x * mask keeps the shape"
_REMEDIES = {
    "aten::nonzero": f"With a mask instead of indices the shape is fixed: {_MASK}.",
    "aten::masked_select": f"{_MASK}.",
    "aten::index": f"Instead of x[mask], {_MASK}.",
    "aten::_unique2": "Do it once, on the CPU, before the loop.",
    "aten::multinomial": "argmax(log(p) - log(-log(rand_like(p)))) draws the same on the device.",
}


def message(func: Any, place: Place | None) -> str:
    """The warning for an op that runs on the CPU at once."""
    values = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape} & {*func.tags}
    why = (
        "the shape of its result depends on values, which XLA cannot express"
        if values
        else "PyTorch cannot tell the shape of its result beforehand"
    )
    remedy = _REMEDIES.get(func._schema.name, "Do it outside the training step if you can.")
    return (
        f"{explain.op_name(func)} at {explain.where(place)} runs on the CPU: {why}. "
        f"Each time, this waits for the device and copies operands and results. {remedy}"
    )
