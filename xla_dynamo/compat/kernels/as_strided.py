"""as_strided and view on views: their strides address the memory of the view's base.

A recorded view has no memory. Its base is dense, so that as_strided of the base, with dimensions
in the order of memory, selects the elements that it selects in eager PyTorch; where the view begins
in the base is computed by taking the same view of the base's addresses. A `.view()` whose strides
do not allow it is a copy, as in torch_xla.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from xla_dynamo.backend.graph import memory_layout
from xla_dynamo.compat.values.functionalization import transformed, view_names
from xla_dynamo.compat.values.torch_private import is_functional, same_view, view_of

from .redispatch import on_device, redispatch

aten = torch.ops.aten


def register_as_strided(library: torch.library.Library) -> None:
    """Register the kernels for dispatch key AutogradXLA."""
    plain = on_device(aten.view.default)

    def as_strided(
        tensor: torch.Tensor,
        size: Sequence[int],
        stride: Sequence[int],
        storage_offset: int | None = None,
    ) -> torch.Tensor:
        if not is_functional(tensor):
            return redispatch(aten.as_strided.default, (tensor, size, stride, storage_offset), {})
        base = _dense_base(tensor)
        order = memory_layout.physical_order(base)
        offset = storage_offset
        if offset is None:
            offset = 0 if base is tensor else _offset_in(tensor, base)
        _check(base, size, stride, offset)
        memory = base if order is None else base.permute(order)
        result = redispatch(aten.as_strided.default, (memory, size, stride, offset), {})
        if result.requires_grad and base is not tensor and not transformed():
            indices = torch.arange(base.numel(), device="cpu").as_strided(size, stride, offset)
            _stop_gradients(result, indices, tensor, base)
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
            return redispatch(op, (tensor, source, size, stride, storage_offset), {})
        if memory_layout.repeats_elements(tensor.shape, tensor.stride()):
            tensor = tensor.contiguous()  # eager writes to a dense copy
        base = _dense_base(tensor)
        begin = 0 if base is tensor else _offset_in(tensor, base)
        offset = begin if storage_offset is None else storage_offset
        _check(base, size, stride, offset)
        if spans_base(tensor):
            return redispatch(op, (tensor, source, size, stride, offset), {})
        order = memory_layout.physical_order(base)
        memory = (base if order is None else base.permute(order)).reshape(-1)
        written = redispatch(op, (memory, source, size, stride, offset), {})
        return written.as_strided(tensor.shape, tensor.stride(), begin).clone()

    def view(tensor: torch.Tensor, size: Sequence[int]) -> torch.Tensor:
        try:
            if is_functional(tensor) and not transformed():
                return plain(tensor, size)
            return redispatch(aten.view.default, (tensor, size), {})
        except RuntimeError:
            if not tensor.is_contiguous():  # legal in torch_xla, whose strides are row-major
                return tensor.reshape(size)
            raise

    library.impl("as_strided", as_strided)
    library.impl("as_strided_scatter", as_strided_scatter)
    library.impl("view", view)


def _dense_base(tensor: torch.Tensor) -> torch.Tensor:
    """The dense tensor whose memory a tensor addresses: itself, or the base of the view."""
    if _is_dense(tensor):
        return tensor
    base = tensor._base if tensor._is_view() else None
    # A view that became a parameter has a gradient that its base has no part in.
    if base is not None and base.requires_grad >= tensor.requires_grad and _is_dense(base):
        return base if base.dtype is tensor.dtype else base.reshape(-1).view(tensor.dtype)
    raise RuntimeError(
        "as_strided: the base of this view on an xla device is unknown after .detach(), .data, "
        ".requires_grad_() or .view(dtype) of a part of a tensor; index the tensor instead"
    )


# Views of all elements in their order, by the start of their names.
_IN_ORDER = ("_reshape", "_unsafe_view", "alias", "detach", "lift", "squeeze", "unsqueeze", "view")
# The same, and views that reorder dimensions.
_DENSE = (*_IN_ORDER, "permute", "t_", "transpose")
# Views that begin where their base begins.
_SAME_START = (*_DENSE, "expand")


def _is_dense(tensor: torch.Tensor) -> bool:
    return all(name.startswith(_DENSE) for name in view_names(tensor))


def spans_base(tensor: torch.Tensor) -> bool:
    """Whether a tensor has all elements of its base, in their order."""
    return tensor.is_contiguous() and all(n.startswith(_IN_ORDER) for n in view_names(tensor))


def _offset_in(view: torch.Tensor, base: torch.Tensor) -> int:
    """Where a view begins in the memory of `base`: the same view of addresses tells."""
    if all(name.startswith(_SAME_START) for name in view_names(view)):
        return 0
    if _changes_dtype(view) or not view.numel():
        raise RuntimeError(
            "as_strided: where this view on an xla device begins in its base is unknown: it is "
            "empty, or of another dtype. Give storage_offset, or index the tensor instead"
        )
    return int(_addresses(view, base).flatten()[0])


def _changes_dtype(view: torch.Tensor) -> bool:
    return any(name.startswith(("view_dtype", "view_as_")) for name in view_names(view))


def _addresses(view: torch.Tensor, base: torch.Tensor) -> torch.Tensor:
    """Where the elements of a view are in the memory of `base`."""
    addresses = torch.arange(base.numel(), device="cpu").as_strided(base.shape, base.stride())
    return same_view(addresses, view_of(view))


def _stop_gradients(
    result: torch.Tensor, indices: torch.Tensor, part: torch.Tensor, base: torch.Tensor
) -> None:
    """Give no gradient to elements that as_strided() of a view takes from outside it, as eager."""
    if _changes_dtype(part):
        return
    beyond = ~torch.isin(indices, _addresses(part, base))
    if beyond.any():
        result.register_hook(lambda grad: grad.masked_fill(beyond.to(grad.device), 0))


def _check(base: torch.Tensor, size: Sequence[int], stride: Sequence[int], offset: int) -> None:
    """Raise eager's error for addresses beyond the tensor's memory."""
    if 0 in size:
        return
    end = offset + memory_layout.extent(size, stride)
    if end > base.numel():
        raise RuntimeError(
            f"setStorage: sizes {list(size)}, strides {list(stride)}, storage offset {offset}, and "
            f"itemsize {base.itemsize} requiring a storage size of {end * base.itemsize} are out "
            f"of bounds for storage of size {base.numel() * base.itemsize}"
        )
