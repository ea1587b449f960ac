"""Writes to views whose elements share memory, or may: expand(), unfold(), as_strided().

PyTorch's functionalization carries a write to an expanded tensor back to its base by adding up
differences, over elements that share memory too: 1e20 overwritten with 1 would become 0. Elements
that no window of unfold() covers become 0. Eager PyTorch refuses most writes to elements that share
memory; the others are made here through a view of the same strides without the repeated elements.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from xla_dynamo.backend.lowering import operands
from xla_dynamo.compat.values import functionalization, torch_private, values

from . import inplace_views
from .redispatch import on_device, redispatch

# Ops that write the same to elements that share memory. Eager lets index_fill_, index_put_ and
# masked_fill_ pass too, with a warning that it will not for long.
_SAME = frozenset(["conj_physical", "fill", "threshold", "zero"])

# Views of all of a tensor, as it is.
_ALIASES = frozenset(["alias_ViewMeta", "detach_ViewMeta"])

# In-place ops that change what a tensor is a view of, not numbers; the start of their names.
_NOT_WRITES = ("_coalesced", "_mkldnn", "_resize", "as_strided", "copy_sparse", "detach", "resize")
_NOT_WRITES += ("set_", "sparse", "squeeze", "t_", "transpose", "unsqueeze")


def shared_memory(op: Any, target: torch.Tensor) -> torch.Tensor | None:
    """The view that `op` (in place or not) writes to for `target`; None if `target` itself will do.

    Raises:
        RuntimeError: eager's, for elements that share memory, if eager refuses `op` for them; or
            detach() hides which memory that is.
    """
    if not loses_writes(target):
        return None
    several = target.numel() > 0
    repeated = [
        several and n > 1 and step == 0
        for n, step in zip(target.shape, target.stride(), strict=True)
    ]
    same = op._schema.name.removeprefix("aten::").rstrip("_") in _SAME
    if any(repeated) and not same:
        raise RuntimeError(
            "unsupported operation: more than one element of the written-to tensor refers to a "
            "single memory location. Please clone() the tensor before performing the operation."
        )
    shape = [1 if twice else n for n, twice in zip(target.shape, repeated, strict=True)]
    offset = None if target.numel() else 0  # no elements, no place in memory
    try:
        return target.as_strided(shape, target.stride(), offset)
    except RuntimeError:  # what it is a view of is not known, after detach()
        if not target.numel():
            return target.new_empty(shape)
        raise RuntimeError(
            f"{op._schema.name}: a tensor that expand(), unfold() or as_strided() made on an xla "
            "device cannot be written to through detach() or .data, because its base is unknown "
            "there. Write to it under torch.no_grad(), or clone() it"
        ) from None


def loses_writes(target: torch.Tensor) -> bool:
    """Whether functionalization gives the memory of this view other numbers than are written."""
    if torch_private.is_base(target):
        return False
    steps = torch_private.view_of(target)
    names = [type(step).__name__ for step in steps]
    if _ALIASES.issuperset(names):  # as parameters and momenta are
        return False
    if any(name.startswith(("expand", "unfold")) for name in names):
        return True
    # Copies of an element that a view of as_strided()'s result leaves out would overwrite it.
    return any(map(functionalization.repeats_elements, steps[:-1]))


def share_memory(targets: Sequence[torch.Tensor]) -> bool:
    """Whether a list holds a tensor twice, or a view of what another tensor of it is a view of."""
    if all(map(torch_private.is_base, targets)):
        return len(set(map(id, targets))) < len(targets)
    return len({target.untyped_storage()._cdata for target in targets}) < len(targets)


def register_overlapping_writes(library: torch.library.Library, known: set[str]) -> None:
    """Register kernels for in-place ops other than `known` (their full names)."""
    for op in functionalization.inplace_ops():
        name = op.name().removeprefix("aten::")
        if name not in known and _writes(op):
            library.impl(name, inplace_kernel(op))


def _writes(op: Any) -> bool:
    """Whether an in-place op writes numbers to its first argument."""
    first, *_ = op._schema.arguments
    renames = op._schema.name.removeprefix("aten::").startswith(_NOT_WRITES)
    return not renames and first.alias_info is not None and first.alias_info.is_write


def _has_value_of(target: torch.Tensor, source: torch.Tensor) -> bool:
    """Whether a copy would change nothing, as of what a compiled graph has updated where it is."""
    if torch.is_grad_enabled() and (target.requires_grad or source.requires_grad):
        return False
    leaf, other = values.leaf_of(target), values.leaf_of(source)
    return leaf is not None and other is not None and leaf.value is other.value


def inplace_kernel(op: Any) -> Callable[..., Any]:
    """The kernel of an in-place op that PyTorch runs, on the memory that its target shares."""
    first, *others = op._schema.arguments
    tensors = [i for i, other in enumerate(others) if isinstance(other.type, torch.TensorType)]
    is_copy = op is torch.ops.aten.copy_.default

    def one(target: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if is_copy and _has_value_of(target, args[0]):
            torch_private.mark_written([target])
            return target
        if not torch_private.is_functional(target):
            return redispatch(op, (target, *args), kwargs)
        inplace_views.refuse_write(op, [target], args)
        if not target.is_floating_point():
            reason = operands.refusal(op, (target, *args), kwargs)
            if reason is not None:
                raise RuntimeError(reason)
        transformed = functionalization.transformed()
        ordinary = torch_private.is_base(target) and not transformed
        plain = ordinary and all(
            isinstance(args[i], torch.Tensor) for i in tensors if i < len(args)
        )
        if not plain:
            if is_copy and args[0] is target:
                return target  # eager copies nothing, and does not look at the memory
            shared = shared_memory(op, target)
            if shared is not None:
                redispatch(op, (shared, *args), kwargs)
                torch_private.sync(target)
                return target
        strides = target.stride()
        if plain:
            on_device(op)(target, *args, **kwargs)
        else:
            redispatch(op, (target, *args), kwargs)
        if target.stride() != strides and not transformed:
            values.restride(target, strides)
        return target

    def many(targets: Sequence[torch.Tensor], *args: Any, **kwargs: Any) -> None:
        length = len(targets)
        if not all(map(torch_private.is_functional, targets)):
            return redispatch(op, (targets, *args), kwargs)
        inplace_views.refuse_write(op, targets, args)
        if length > 1 and share_memory(targets):  # the second update is of what the first one gave
            lists = [isinstance(a, (list, tuple)) and len(a) == length for a in args]
            for i, target in enumerate(targets):
                own = [[a[i]] if each else a for a, each in zip(args, lists, strict=True)]
                op([target], *own, **kwargs)
            return None
        written = [shared_memory(op, target) for target in targets]
        pairs = list(zip(targets, written, strict=True))
        redispatch(op, ([own if other is None else other for own, other in pairs], *args), kwargs)
        for own, other in pairs:
            if other is not None:
                torch_private.sync(own)
        return None

    return one if isinstance(first.type, torch.TensorType) else many
