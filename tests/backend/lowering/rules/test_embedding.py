"""Embedding and embedding bag, and their gradients, against eager."""

from __future__ import annotations

import itertools

import pytest
import torch

from tests.like_eager.rules import check, check_rounding, run
from xla_dynamo.backend.lowering.registry import Unsupported
from xla_dynamo.backend.lowering.rules import embedding, embedding_bag  # noqa: F401

aten = torch.ops.aten

INDICES = torch.tensor([1, 2, 3, 3, 0, 9, 2])
OFFSETS = torch.tensor([0, 2, 2, 5])
SUM, MEAN, MAX = range(3)


@pytest.mark.parametrize("shape", [(), (7,), (2, 3), (0,)])
@pytest.mark.parametrize("index_dtype", [torch.int64, torch.int32])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_embedding(shape, index_dtype, dtype):
    weight = torch.randn(10, 4).to(dtype)
    indices = torch.randint(10, shape).to(index_dtype)
    check(aten.embedding.default, weight, indices, 3)
    grad = torch.randn(*shape, 4).to(dtype)
    compare = check_rounding if dtype == torch.bfloat16 else check
    for padding_idx, by_frequency in itertools.product((-1, 3), (False, True)):
        args = (grad, indices, 10, padding_idx, by_frequency)
        compare(aten.embedding_dense_backward.default, *args)


def test_many_16_bit_summands():
    grad, indices = torch.ones(3000, 1).bfloat16(), torch.zeros(3000, dtype=torch.int64)
    total = run(aten.embedding_dense_backward.default, grad, indices, 2, -1, False)
    assert total[0, 0] == 3000


def _bags():
    for mode, last, padding_idx in itertools.product((SUM, MEAN, MAX), (False, True), (-1, 3)):
        offsets = torch.tensor([0, 2, 2, 7]) if last else OFFSETS
        for weights in (None, torch.randn(7)) if mode == SUM else (None,):
            yield offsets, mode, weights, last, padding_idx


@pytest.mark.parametrize(("offsets", "mode", "weights", "last", "padding_idx"), list(_bags()))
def test_embedding_bag(offsets, mode, weights, last, padding_idx):
    # Eager leaves out the bag of each index for float32 only.
    dtype = torch.float64 if last else torch.float32
    table = torch.randint(-3, 4, (10, 5)).to(dtype)
    weights = weights if weights is None else weights.to(dtype)
    args = (table, INDICES, offsets, False, mode, False, weights, last, padding_idx)
    check(aten._embedding_bag.default, *args)
    out, *_ = run(aten._embedding_bag_forward_only.default, *args)
    torch.testing.assert_close(out, aten._embedding_bag_forward_only(*args)[0])
    out, *saved = aten._embedding_bag(*args)
    backward = (torch.randn_like(out), INDICES, offsets, *saved)
    settings = (10, False, mode, False, weights, padding_idx)
    check(aten._embedding_bag_backward.default, *backward, *settings)
    if weights is not None:
        args = (torch.randn_like(out), table, INDICES, offsets, saved[0], mode, padding_idx)
        check(aten._embedding_bag_per_sample_weights_backward.default, *args)


@pytest.mark.parametrize("padding_idx", [-1, 3])
def test_bag_gradient_by_frequency(padding_idx):
    """A sum's gradient is that of the embeddings it sums."""
    grad, bag_of = torch.randn(4, 5), torch.tensor([0, 0, 2, 2, 2, 3, 3])
    args = (INDICES, OFFSETS, bag_of, torch.zeros(4).long(), torch.zeros(4).long())
    settings = (10, True, SUM, False, None, padding_idx)
    actual = run(aten._embedding_bag_backward.default, grad, *args, *settings)
    expected = aten.embedding_dense_backward(grad[bag_of], INDICES, 10, padding_idx, True)
    torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("mode", [SUM, MEAN, MAX])
def test_16_bit_bags(mode):
    args = (torch.randn(10, 5).bfloat16(), INDICES, OFFSETS, False, mode, False, None, False, 3)
    check_rounding(aten._embedding_bag.default, *args)


@pytest.mark.parametrize("mode", [SUM, MEAN, MAX])
def test_empty_bags(mode):
    nothing = torch.zeros(0, dtype=torch.int64)
    out, *_ = run(
        aten._embedding_bag.default, torch.randn(10, 5), nothing, torch.zeros(3).long(), False, mode
    )
    torch.testing.assert_close(out, torch.zeros(3, 5))


def test_sparse_gradient():
    saved = (torch.zeros(7).long(), torch.zeros(4).long(), torch.zeros(4).long())
    args = (torch.randn(4, 5), INDICES, OFFSETS, *saved, 10, False, SUM, True, None)
    with pytest.raises(Unsupported, match="sparse"):
        run(aten._embedding_bag_backward.default, *args)


@pytest.mark.parametrize("norm_type", [2.0, 1.0, float("inf"), 3.0, 0.5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_embedding_renorm(dtype, norm_type):
    weight = torch.randn(10, 4, dtype=dtype)
    weight[3] = 0
    for max_norm in (0.0, 1.0, 100.0):
        check(aten.embedding_renorm.default, weight, INDICES, max_norm, norm_type)
        check(aten.embedding_renorm.default, weight, INDICES.reshape(7, 1).int(), 1.0, norm_type)


def test_embedding_with_max_norm_in_a_compiled_graph():
    weight, indices = torch.randn(10, 4), torch.tensor([[1, 2], [2, 9]])
    compiled = torch.compile(torch.nn.functional.embedding, backend="xla", fullgraph=True)
    tables = weight.clone(), weight.clone()
    got, want = (
        function(indices, table, max_norm=0.5)
        for function, table in zip((compiled, torch.nn.functional.embedding), tables, strict=True)
    )
    torch.testing.assert_close(got, want)
    torch.testing.assert_close(*tables)
