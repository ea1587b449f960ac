"""Ops of ours have the strides of what they replace, and fake tensors the strides of real ones.

Views that come after an op were traced for these strides, and raise for others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils import _pytree as pytree

from xla_dynamo.backend.graph.torch_private import FakeTensorMode
from xla_dynamo.backend.ops import attention, barriers, fused, packed, padded, recurrent

aten = torch.ops.aten
ops = torch.ops.xla_dynamo


def rand(*shape: int) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(0))


MATRIX = rand(3, 4).t()
IMAGES = rand(2, 5, 6, 3).permute(0, 3, 1, 2)  # channels last
INTEGERS = (rand(3, 4) * 3).long().t()
START = torch.tensor(1)
# Heads that are parts of features, one row-major, and one with its key positions outermost.
HEADS = [rand(2, 6, 4, 8).transpose(1, 2), rand(2, 4, 6, 8), rand(6, 2, 4, 8).permute(1, 2, 0, 3)]
SAVED = (*HEADS, rand(2, 4, 6, 8), rand(2, 4, 6, 6), rand(2, 4, 6, 1))
CLASSES = rand(2, 5, 6).transpose(1, 2).log_softmax(1)  # [batch, classes, positions]
TARGET = (rand(5, 2) * 6).long().t()


def layer(gates: int, states: int) -> tuple[Any, ...]:
    """x, the states, whose memory is transposed, and the weights of a recurrent layer."""
    size = 4 * gates
    transposed = [rand(4, 3).t() for _ in range(states)]
    return rand(3, 7, 5).transpose(0, 1), *transposed, rand(size, 5), rand(size, 4), None, None


def gradient(name: str, states: int, arguments: Sequence[Any]) -> tuple[Any, ...]:
    """The arguments of a recurrent layer's backward."""
    results = getattr(ops, f"{name}_layer")(*arguments)
    grads = [rand(*reversed(y.shape)).permute(*reversed(range(y.dim()))) for y in results]
    x, h0, *_ = arguments
    weights = arguments[1 + states :]
    saved = [results[0], *results[1 + states :]]
    tensors = [w for w in weights if not isinstance(w, bool)]
    flags = [w for w in weights if isinstance(w, bool)]
    return *grads[: 1 + states], x, h0, *tensors, *saved, *flags


LSTM = (*layer(4, 2), None, False)
GRU = (*layer(3, 1), False)
RNN = (*layer(1, 1), False, True)
CASES: dict[Any, list[tuple[Any, ...]]] = {
    ops.attention: [(*HEADS, None, False, None), (*HEADS[::-1], None, True, 0.5)],
    ops.attention_backward: [(x, *SAVED, None) for x in HEADS],
    ops.optimization_barrier: [(MATRIX,), (IMAGES,)],
    ops.materialize: [(MATRIX,), (IMAGES,)],
    ops.rounded_to: [(MATRIX, torch.bfloat16)],
    ops.reverse_cumsum: [(MATRIX, 0), (IMAGES, 2)],
    ops.relu_backward: [(MATRIX, MATRIX), (MATRIX, MATRIX.contiguous()), (IMAGES, IMAGES)],
    ops.hardtanh_backward: [(MATRIX, MATRIX.contiguous(), 0.0, 0.5), (IMAGES, IMAGES, 0.0, 0.5)],
    ops.hardswish: [(MATRIX,), (IMAGES,)],
    ops.hardswish_backward: [(MATRIX, MATRIX.contiguous()), (IMAGES.contiguous(), IMAGES)],
    ops.leaky_relu_backward: [(MATRIX, MATRIX.contiguous(), 0.1), (IMAGES, IMAGES, 0.1)],
    ops.dynamic_slice: [(MATRIX, 0, START, 2), (MATRIX, 1, START, 2), (IMAGES, 2, START, 2)],
    ops.dynamic_slice_backward: [(MATRIX, [4, 9], 1, START)],
    ops.dynamic_update: [(MATRIX, rand(4, 2), 1, START), (IMAGES, rand(2, 3, 5, 2), 3, START)],
    ops.rows_product: [(rand(2, 3, 5), rand(2, 3, 4))],
    ops.nll_loss_of_parts: [
        (rand(5, 7), rand(5, 1), TARGET[0], None, 0, -100),
        (rand(5, 7), rand(5, 1), TARGET[0], rand(7), 1, 2),
    ],
    ops.nll_loss_row_gradient: [
        (rand(2, 5).t().t(), TARGET, None, 0, -100, torch.tensor(10.0)),
        (torch.tensor(2.0), TARGET, rand(6), 1, 2, torch.tensor(7.0)),
    ],
    ops.nonzero_padded: [(INTEGERS,)],
    ops.pack_rows: [(IMAGES, torch.tensor([2, 1, 0]), 3)],
    ops.pad_rows: [(MATRIX, torch.tensor([3, 1]), 3, 0.5)],
    ops.repad_rows: [(IMAGES, torch.tensor([2, 1, 0]), 3, 0.5)],
    ops.masked_select_padded: [(MATRIX, INTEGERS > 1)],
    ops.index_padded: [(MATRIX, INTEGERS[0] > 0, 1), (IMAGES, rand(5) > 0.5, 2)],
    ops.unique_padded: [(INTEGERS, None, False), (INTEGERS, 0, False), (INTEGERS, 1, True)],
    ops.bincount_size: [(INTEGERS[0], 2)],
    ops.repeats_size: [(INTEGERS[0],)],
    ops.sized_bincount: [(INTEGERS[0], None, 4), (INTEGERS[0], MATRIX[0], 4)],
    ops.lstm_layer: [LSTM],
    ops.gru_layer: [GRU],
    ops.rnn_layer: [RNN],
    ops.lstm_layer_backward: [gradient("lstm", 2, LSTM)],
    ops.gru_layer_backward: [gradient("gru", 1, GRU)],
    ops.rnn_layer_backward: [gradient("rnn", 1, RNN)],
}
CALLS = [
    pytest.param(op, arguments, id=f"{op._qualified_op_name.removeprefix('xla_dynamo::')} {n}")
    for op, listed in CASES.items()
    for n, arguments in enumerate(listed)
]


def layouts(results: Any) -> list[tuple[list[int], list[int]]]:
    """Sizes and strides of every tensor; the stride of a dimension of one element says nothing."""
    return [
        (
            [int(n) for n in x.shape],
            [int(s) for n, s in zip(x.shape, x.stride(), strict=True) if int(n) != 1],
        )
        for x in pytree.tree_leaves(results)
    ]


def test_every_op_is_here() -> None:
    defined = {
        value._qualname
        for module in (attention, barriers, fused, packed, padded, recurrent)
        for value in vars(module).values()
        if isinstance(value, type(fused.reverse_cumsum))
    }
    backward = {f"xla_dynamo::{name}_layer_backward" for name in ("lstm", "gru", "rnn")}
    defined.remove("xla_dynamo::nms_padded")  # it calls torchvision, which is not installed here
    assert {op._qualified_op_name for op in CASES} == defined | backward


@pytest.mark.parametrize("symbolic", [False, True], ids=["static", "symbolic"])
@pytest.mark.parametrize(("op", "arguments"), CALLS)
def test_fakes_have_the_strides_of_the_ops(
    op: Any, arguments: tuple[Any, ...], symbolic: bool
) -> None:
    mode = FakeTensorMode(shape_env=ShapeEnv() if symbolic else None)
    with mode:
        fakes = op(*pytree.tree_map_only(Tensor, mode.from_tensor, arguments))
    assert layouts(fakes) == layouts(op(*arguments))


def sliced(dim: int) -> Callable[[Tensor], Tensor]:
    return lambda x: x.narrow(dim, 1, 2).clone()


def nll_gradient() -> Tensor:
    one, maps = START * 1.0, (CLASSES[..., None], TARGET[..., None])
    gradient = aten.nll_loss2d_backward(one, *maps, None, 1, -100, one)
    return gradient.sum(1, keepdim=True).squeeze(-1)


# What stands for an op of ours where no pass has put it in: its result, and ATen's.
REPLACED: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    **{
        f"attention of query {n}": (
            lambda q=q: ops.attention(q, *HEADS[1:], None, False, None)[0],
            lambda q=q: F.scaled_dot_product_attention(q, HEADS[1], HEADS[2]),
        )
        for n, q in enumerate(HEADS)
    },
    "gradients of attention": (
        lambda: ops.attention_backward(HEADS[0], *SAVED, None),
        lambda: aten._scaled_dot_product_flash_attention_for_cpu_backward(
            HEADS[0], *SAVED[:4], rand(2, 6, 4).transpose(1, 2), 0.0, False
        ),
    ),
    "reverse cumsum": (
        lambda: ops.reverse_cumsum(IMAGES, 1),
        lambda: IMAGES.flip(1).cumsum(1).flip(1),
    ),
    "gradient of ReLU": (
        lambda: ops.relu_backward(IMAGES.contiguous(), IMAGES),
        lambda: torch.where(IMAGES <= 0, 0.0, IMAGES.contiguous()),
    ),
    "gradient of ReLU6": (
        lambda: ops.hardtanh_backward(IMAGES.contiguous(), IMAGES, 0.0, 0.5),
        lambda: torch.where((IMAGES <= 0) | (IMAGES >= 0.5), 0.0, IMAGES.contiguous()),
    ),
    "gradient of leaky ReLU": (
        lambda: ops.leaky_relu_backward(IMAGES.contiguous(), IMAGES, 0.1),
        lambda: torch.where(IMAGES > 0, IMAGES.contiguous(), IMAGES.contiguous() * 0.1),
    ),
    "slice": (lambda: ops.dynamic_slice(MATRIX, 1, START, 2), lambda: sliced(1)(MATRIX)),
    "gradient of a slice": (
        lambda: ops.dynamic_slice_backward(MATRIX, [4, 9], 1, START),
        lambda: aten.slice_backward(MATRIX, [4, 9], 1, 1, 4, 1),
    ),
    "rows of the gradient of nll_loss": (
        lambda: ops.nll_loss_row_gradient(START * 1.0, TARGET, None, 1, -100, START * 1.0),
        nll_gradient,
    ),
    "groups of unique": (
        lambda: ops.unique_padded(INTEGERS, None, False)[1],
        lambda: torch.unique(INTEGERS, return_inverse=True)[1],
    ),
}


@pytest.mark.parametrize("name", REPLACED)
def test_strides_are_those_of_what_is_replaced(name: str) -> None:
    ours, theirs = REPLACED[name]
    assert layouts(ours()) == layouts(theirs())
