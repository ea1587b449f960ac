"""Shapes, dtypes and strides of an op's results, from its signature: metas and static arguments.

PyTorch's own fake tensors infer them, once for each signature. An op whose results they cannot tell
(shapes that depend on values, ops without a meta kernel) is computed at once on the CPU.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import threading
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils import _pytree as pytree

from xla_dynamo import interrupts
from xla_dynamo.backend.decompositions import eager_layout
from xla_dynamo.backend.decompositions.dynamic_shapes import padded, tells_on_zeros
from xla_dynamo.backend.decompositions.matmul_backward import PRODUCT_DECOMPOSITIONS
from xla_dynamo.backend.decompositions.mended import MENDED
from xla_dynamo.backend.lowering import dtypes, operands
from xla_dynamo.bounded import Bounded
from xla_dynamo.compat.values import storage
from xla_dynamo.compat.values.forks import fork_safe
from xla_dynamo.compat.values.op_table import Op
from xla_dynamo.compat.values.torch_private import FAKE_TENSOR_LOG, UNKNOWN_SHAPE, FakeTensorMode
from xla_dynamo.compat.values.values import Leaf, Meta, blank, meta, meta_of
from xla_dynamo.errors import UnsupportedOp

from . import eager_strides
from .op_forms import without_copy

# Instead of metas: the op must run now, on the CPU.
EAGER = object()

_KEPT = 16_384  # signatures and fake tensors, of some KB each; more than one model has
_known: Bounded[Any, Any] = Bounded(_KEPT)
_fakes: Bounded[Meta, torch.Tensor] = Bounded(_KEPT)
# Threads on different devices share the fakes, and PyTorch's mode is for one thread at a time.
lock = fork_safe(threading.RLock())
_log = logging.getLogger(FAKE_TENSOR_LOG)


@functools.cache
def _mode() -> FakeTensorMode:
    """PyTorch's mode, made when it is needed: it imports Dynamo."""
    with interrupts.deferred():
        return FakeTensorMode(allow_non_fake_inputs=True)


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Keep PyTorch from logging a traceback for what is an ordinary error of the user's."""
    before, _log.disabled = _log.disabled, True
    try:
        yield
    finally:
        _log.disabled = before


def fake(of: Meta) -> torch.Tensor:
    """The fake CPU tensor of a meta: one for all its uses."""
    found = _fakes.get(of)
    if found is None:
        with lock, interrupts.deferred(), _mode():
            found = _fakes[of] = torch.empty_strided(
                of.shape, of.layout, dtype=of.dtype, device="cpu"
            )
    return found


@functools.lru_cache(maxsize=_KEPT)
def like(of: Meta, dtype: torch.dtype | None = None, memory_format: Any = None) -> Meta:
    """The meta of torch.empty_like of such a tensor, and of its `.to()`."""
    if of.strides is None and memory_format is None:
        return meta(of.shape, dtype or of.dtype)
    return meta_of(torch.empty_like(blank(of), dtype=dtype, memory_format=memory_format))


def infer(signature: Any, op: Op, args: Any, kwargs: Any) -> Any:
    """The results of `op` for arguments of this signature: metas in its structure, or `EAGER`.

    Raises:
        What eager PyTorch raises.
    """
    signature = (torch.get_default_dtype(), signature)
    known = _known.get(signature)
    if known is None:
        with lock, interrupts.deferred():
            known = _known[signature] = _infer(op, args, kwargs)
    return known


def _infer(op: Op, args: Any, kwargs: Any) -> Any:
    if _depends_on_values(op, args, kwargs):
        # No shape is inferred that would show what eager refuses.
        if padded(op.func) and tells_on_zeros(op.func, args):
            eager_strides.eager(op, args, kwargs)
        return EAGER
    fake_args, fake_kwargs = pytree.tree_map(_faked, (list(args), dict(kwargs)))
    if operands.refusal(op.func, fake_args, fake_kwargs, mixes_floats=True) is not None:
        eager_strides.eager(op, args, kwargs)  # raises, with the text that users know
    # PyTorch has no shape inference for the gradients of matmul, and a wrong one for some ops.
    function: Any = PRODUCT_DECOMPOSITIONS.get(op.func) or MENDED.get(op.func) or op.func
    try:
        result = view = _as_view(op, args, kwargs)
        if view is None:
            with _quietly(), _mode():
                result = function(*fake_args, **fake_kwargs)
                result = eager_layout.with_eager_strides(op.func, fake_args, result)
        _refuse_dtypes(op, args, kwargs)
        metas = _metas(result, op)
    except UnsupportedOp:
        raise
    except (*UNKNOWN_SHAPE, NotImplementedError):
        return EAGER
    except Exception:
        eager_strides.eager(op, args, kwargs)
        return EAGER  # only PyTorch's inference fails
    return metas if view is not None else eager_strides.mended(op, args, kwargs, metas)


def _as_view(op: Op, args: Any, kwargs: Any) -> Any:
    """The result of the view that functionalization has replaced by `op`, a view_copy; else None.

    A copy is contiguous; the user's tensor is still a view, and has a view's strides. They come
    from eager's kernels for device "meta": fake tensors differ in dimensions of size one.
    """
    view = without_copy(op.func)
    if view is op.func:
        return None
    args, kwargs = pytree.tree_map_only(
        Leaf, lambda leaf: blank(leaf.value.meta), (list(args), dict(kwargs))
    )
    try:
        return view(*args, **kwargs)
    except RuntimeError:  # strides that do not allow it, after a write to what it is a view of
        return None


def _refuse_dtypes(op: Op, args: Any, kwargs: Any) -> None:
    """Raise for a dtype that XLA lacks: shape inference does not know quantized results."""
    for leaf in pytree.tree_leaves((list(args), dict(kwargs))):
        if isinstance(leaf, torch.dtype) and not dtypes.is_supported(leaf):
            raise storage.refuse(torch.strided, leaf, op.func)


def _depends_on_values(op: Op, args: Any, kwargs: Any) -> bool:
    tags = op.func.tags
    if torch.Tag.data_dependent_output in tags:
        return True
    if torch.Tag.dynamic_output_shape not in tags:
        return False
    if op.func is torch.ops.aten.index.Tensor:
        masks = (torch.bool, torch.uint8)
        return any(index is not None and index.dtype in masks for index in args[1])
    return kwargs.get("output_size") is None  # repeat_interleave may be told


def _faked(leaf: Any) -> Any:
    if type(leaf) is Leaf:
        return fake(leaf.value.meta)
    if type(leaf) is torch.device:
        return torch.device("cpu")
    return None if type(leaf) is torch.Generator else leaf


def _metas(result: Any, op: Op) -> Any:
    if isinstance(result, torch.Tensor):
        if not storage.is_dense(result):
            raise storage.refuse(result.layout, result.dtype, op.func)
        if any(type(n) is not int for n in result.shape):
            raise NotImplementedError
        return meta_of(result)
    if isinstance(result, (list, tuple)):
        metas = [_metas(item, op) for item in result]
        return metas if type(result) is list else tuple(metas)
    if result is None:
        return None
    raise NotImplementedError
