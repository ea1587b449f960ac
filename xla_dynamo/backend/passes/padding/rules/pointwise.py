"""Pointwise ops: padding in, padding out. A size that is an operand becomes a tensor."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from xla_dynamo.backend.passes.padding.layouts import Dim, constant, plain
from xla_dynamo.backend.passes.padding.padder import Padded, Padder
from xla_dynamo.backend.passes.padding.sizes import Refused, Size, is_symbolic

aten = torch.ops.aten

# Pointwise, though PyTorch does not tag them so.
_MORE = (
    *(aten.clone.default, aten._to_copy.default, aten.contiguous.default, aten.copy.default),
    *(aten.where.self, aten.where.ScalarOther, aten.where.ScalarSelf, aten.where.Scalar),
    *(aten.masked_fill.Scalar, aten.masked_fill.Tensor, aten.fill.Scalar, aten.fill.Tensor),
    *(aten.gelu_backward.default, aten.threshold_backward.default, aten.lift_fresh_copy.default),
    *(aten.hardshrink_backward.default, aten.softshrink_backward.default),
    *(aten.isclose.default, aten.floor_divide.default),
    *(aten.floor_divide.Scalar, aten.complex.default, aten.polar.default, aten.real.default),
    *(aten.imag.default, aten.conj.default, aten._conj.default, aten.resolve_conj.default),
    *(aten.resolve_neg.default, aten._conj_copy.default, aten._neg_view.default),
    *(aten.__and__.Tensor, aten.__or__.Tensor, aten.__and__.Scalar, aten.__or__.Scalar),
    *(aten.special_ndtr.default, aten.rsub.Tensor, aten.lift_fresh.default, aten.lift.default),
    *(aten.hardswish_backward.default, aten.hardsigmoid_backward.default),
    *(aten.hardtanh_backward.default, aten.leaky_relu_backward.default, aten.elu_backward.default),
    *(aten.silu_backward.default, aten.sigmoid_backward.default, aten.tanh_backward.default),
    *(aten.mish_backward.default, aten.softplus_backward.default, aten.logit_backward.default),
    *(aten.log_sigmoid_backward.default,),
    *(aten.log_sigmoid_forward.default, aten._prelu_kernel.default, aten.nan_to_num.default),
    *(aten.rrelu_with_noise_backward.default,),
    *("prims.fma.default", "prims.convert_element_type.default"),
    *("prims.device_put.default", "prims.view_of.default"),
)
_POINTWISE = frozenset(map(str, _MORE))
# For a Scalar that is a size: the overload that takes a tensor.
_TENSOR_FORMS = {
    f"aten.{name}.{scalar}": getattr(getattr(aten, name), tensor)
    for name, scalar, tensor in (
        *((n, "Scalar", "Tensor") for n in ("add", "sub", "mul", "div", "remainder", "fmod")),
        *((n, "Scalar", "Tensor") for n in ("eq", "ne", "lt", "le", "gt", "ge")),
        ("pow", "Tensor_Scalar", "Tensor_Tensor"),
        ("masked_fill", "Scalar", "Tensor"),
        ("fill", "Scalar", "Tensor"),
    )
}


def is_pointwise(op: Any) -> bool:
    """Whether each element of the results depends on the same element of the operands alone."""
    return str(op) in _POINTWISE or torch.Tag.pointwise in getattr(op, "tags", ())


def pointwise(p: Padder, *args: Any) -> Any:
    """The rule of all pointwise ops."""
    outs = p.outs()
    dims, made = agreed(p, args, outs[0])
    op: Any = p.node.target
    positional, keywords = _as_tensors(p, op, made)
    if any(isinstance(leaf, Padded) for leaf in pytree.tree_leaves(keywords)):
        raise Refused("it takes a size as a number")
    op = _TENSOR_FORMS.get(str(op), op) if _takes_number(p, args) else op
    result = p.emit(op, *positional, **keywords)
    if isinstance(p.node.meta["val"], torch.Tensor):
        wanted = p.node.meta["val"].dtype
        if result.meta["val"].dtype != wanted:
            result = p.emit(aten._to_copy.default, result, dtype=wanted)
        return p.give(result, dims)
    return p.give_all(result, [dims for _ in outs])


def agreed(p: Padder, args: Sequence[Any], out: Sequence[Size]) -> tuple[list[Dim], list[Any]]:
    """The dimensions of what operands broadcast to, and the operands in that layout."""
    leaves, spec = pytree.tree_flatten(list(args))
    tensors = [leaf for leaf in leaves if isinstance(leaf, Padded)]
    dims = [_dim(tensors, d - len(out), size) for d, size in enumerate(out)]
    moved = [p.laid_out(leaf, dims) if isinstance(leaf, Padded) else leaf for leaf in leaves]
    return dims, pytree.tree_unflatten(moved, spec)


def _dim(tensors: Sequence[Padded], d: int, size: Size) -> Dim:
    found = [x.dims[d] for x in tensors if -d <= len(x.dims) and x.dims[d].size != 1]
    found = [dim for dim in found if dim.factors is not None]
    if not found:
        return constant(size)
    return found[0] if all(dim == found[0] for dim in found) else plain(size)


def _takes_number(p: Padder, args: Sequence[Any]) -> bool:
    """Whether an argument that the schema calls a Scalar is a size, or an int of the graph."""
    kinds = [a.type for a in p.node.target._schema.arguments]  # type: ignore[union-attr]
    return any(
        is_symbolic(arg) or (isinstance(arg, Padded) and not isinstance(kind, torch.TensorType))
        for kind, arg in zip(kinds, args, strict=True)
        if not isinstance(arg, (list, tuple))
    )


def _as_tensors(p: Padder, op: Any, args: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
    """The arguments with sizes as 0-d tensors, of a dtype that promotes as a number does."""
    positional, keywords = [], {}
    arguments = op._schema.arguments
    beside = [x.value.dtype for x in args if isinstance(x, Padded) and not x.is_number]
    for argument, arg in zip(arguments, args, strict=True):
        number = arg
        if is_symbolic(arg) or (isinstance(arg, Padded) and arg.is_number):
            is_scalar = not isinstance(argument.type, torch.TensorType)
            if is_scalar and str(op) not in _TENSOR_FORMS:
                raise Refused("it takes a size as a number")
            number = _number(p, arg, beside)
        if argument.kwarg_only:
            if number is not arg:
                raise Refused("it takes a size as a number")
            if number != argument.default_value:
                keywords[argument.name] = number
        else:
            positional.append(number)
    return positional, keywords


def as_number(p: Padder, number: Any) -> Any:
    """A size of the call, or an int of the graph, as a 0-d tensor."""
    if isinstance(number, Padded):
        return number
    return p.runtime(number, torch.int64 if number.is_integer else torch.float64)


def _number(p: Padder, number: Any, beside: Sequence[torch.dtype]) -> Any:
    made = as_number(p, number)
    if not beside:
        return made
    is_int = isinstance(number, Padded) or bool(number.is_integer)
    common = functools.reduce(torch.promote_types, beside)
    if common == torch.bool and is_int:
        return made
    if not is_int and not (common.is_floating_point or common.is_complex):
        common = torch.get_default_dtype()
    return p.emit(aten._to_copy.default, made, dtype=common)
