"""Ops that strides decide about: as_strided and its kin on a view -> on what it is a view of; view.

as_strided's strides and offset address memory. A recorded view has none; the tensor that it is a
view of is dense, so that there, with its dimensions in the order of memory, they mean what they
mean in eager PyTorch. A `.view()` that strides do not allow is a copy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from xla_dynamo.compat.values.functionalization import transformed, view_names
from xla_dynamo.compat.values.torch_private import is_functional, same_view, view_of

aten = torch.ops.aten


def register_strided(
    library: torch.library.Library, slow: Callable[..., Any], straight: Callable[[Any], Any]
) -> None:
    """Register the kernels; `slow(op, args, kwargs)` is the way that PyTorch has for `op`.

    `straight(op)(*args)` is the same, outside transforms like torch.func.grad.
    """
    plain = straight(aten.view.default)

    def as_strided(
        tensor: torch.Tensor,
        size: Sequence[int],
        stride: Sequence[int],
        storage_offset: int | None = None,
    ) -> torch.Tensor:
        if not is_functional(tensor):
            return slow(aten.as_strided.default, (tensor, size, stride, storage_offset), {})
        whole = _whole(tensor)
        order = _memory_order(whole)
        offset = storage_offset
        if offset is None:
            offset = 0 if whole is tensor else _beginning(tensor, whole)
        _check(whole, size, stride, offset)
        memory = whole if order is None else whole.permute(order)
        result = slow(aten.as_strided.default, (memory, size, stride, offset), {})
        if result.requires_grad and whole is not tensor and not transformed():
            places = torch.arange(whole.numel()).as_strided(size, stride, offset)
            _stop_gradients(result, places, tensor, whole)
        return result

    def as_strided_scatter(
        tensor: torch.Tensor,
        source: torch.Tensor,
        size: Sequence[int],
        stride: Sequence[int],
        storage_offset: int | None = None,
    ) -> torch.Tensor:
        op = aten.as_strided_scatter.default
        if not is_functional(tensor):
            return slow(op, (tensor, source, size, stride, storage_offset), {})
        if any(n > 1 and step == 0 for n, step in zip(tensor.shape, tensor.stride(), strict=True)):
            tensor = tensor.contiguous()  # eager writes to a dense copy
        whole = _whole(tensor)
        begin = 0 if whole is tensor else _beginning(tensor, whole)
        offset = begin if storage_offset is None else storage_offset
        _check(whole, size, stride, offset)
        if is_whole(tensor):
            return slow(op, (tensor, source, size, stride, offset), {})
        order = _memory_order(whole)
        memory = (whole if order is None else whole.permute(order)).reshape(-1)
        written = slow(op, (memory, source, size, stride, offset), {})
        return written.as_strided(tensor.shape, tensor.stride(), begin).clone()

    def view(tensor: torch.Tensor, size: Sequence[int]) -> torch.Tensor:
        try:
            if is_functional(tensor) and not transformed():
                return plain(tensor, size)
            return slow(aten.view.default, (tensor, size), {})
        except RuntimeError:
            if not tensor.is_contiguous():  # legal in torch_xla, whose strides are row-major
                return tensor.reshape(size)
            raise

    library.impl("as_strided", as_strided)
    library.impl("as_strided_scatter", as_strided_scatter)
    library.impl("view", view)


def _whole(tensor: torch.Tensor) -> torch.Tensor:
    """The dense tensor whose memory a tensor addresses: itself, or what it is a view of."""
    if _is_dense(tensor):
        return tensor
    base = tensor._base if tensor._is_view() else None
    # A view that became a parameter has a gradient that its base has no part in.
    if base is not None and base.requires_grad >= tensor.requires_grad and _is_dense(base):
        return base if base.dtype is tensor.dtype else base.reshape(-1).view(tensor.dtype)
    raise RuntimeError(
        "as_strided: what the .detach(), .data, .requires_grad_() or .view(dtype) of a part of a "
        "tensor on an xla device has for memory is not known; index the tensor instead"
    )


def _memory_order(whole: torch.Tensor) -> list[int] | None:
    """The permutation that makes a dense tensor row-major; None if it is."""
    if whole.is_contiguous():
        return None
    strides = whole.stride()
    return sorted(range(whole.dim()), key=lambda dim: -strides[dim])


# Views of all elements, in their order; the start of their names.
_WHOLE = ("_reshape", "_unsafe_view", "alias", "detach", "lift", "squeeze", "unsqueeze", "view")
# Those and the views that reorder dimensions.
_DENSE = (*_WHOLE, "permute", "t_", "transpose")
# Views that begin where what they are a view of begins.
_KEEP = (*_DENSE, "expand")


def _is_dense(tensor: torch.Tensor) -> bool:
    return all(name.startswith(_DENSE) for name in view_names(tensor))


def is_whole(tensor: torch.Tensor) -> bool:
    """Whether a tensor has all elements of its memory, in their order."""
    return tensor.is_contiguous() and all(n.startswith(_WHOLE) for n in view_names(tensor))


def _beginning(view: torch.Tensor, whole: torch.Tensor) -> int:
    """Where a view begins in the memory of `whole`: the same view of addresses tells."""
    if all(name.startswith(_KEEP) for name in view_names(view)):
        return 0
    if _changes_dtype(view) or not view.numel():
        raise RuntimeError(
            "as_strided: this view on an xla device (empty, or of another dtype) does not know "
            "where it begins in memory; give storage_offset, or index the tensor instead"
        )
    return int(_addresses(view, whole).flatten()[0])


def _changes_dtype(view: torch.Tensor) -> bool:
    return any(name.startswith(("view_dtype", "view_as_")) for name in view_names(view))


def _addresses(view: torch.Tensor, whole: torch.Tensor) -> torch.Tensor:
    """Where the elements of a view are in the memory of `whole`."""
    addresses = torch.arange(whole.numel()).as_strided(whole.shape, whole.stride())
    return same_view(addresses, view_of(view))


def _stop_gradients(
    result: torch.Tensor, places: torch.Tensor, part: torch.Tensor, whole: torch.Tensor
) -> None:
    """What as_strided() of a part takes from outside the part has no gradient, as in eager."""
    if _changes_dtype(part):
        return
    beyond = ~torch.isin(places, _addresses(part, whole))
    if beyond.any():
        result.register_hook(lambda grad: grad.masked_fill(beyond.to(grad.device), 0))


def _check(whole: torch.Tensor, size: Sequence[int], stride: Sequence[int], offset: int) -> None:
    """Raise eager's error for addresses beyond the tensor's memory."""
    if 0 in size:
        return
    end = offset + 1 + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    if end > whole.numel():
        raise RuntimeError(
            f"setStorage: sizes {list(size)}, strides {list(stride)}, storage offset {offset}, and "
            f"itemsize {whole.itemsize} requiring a storage size of {end * whole.itemsize} are out "
            f"of bounds for storage of size {whole.numel() * whole.itemsize}"
        )
