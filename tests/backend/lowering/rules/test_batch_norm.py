"""Every functional batch norm op, and its gradients, against eager."""

from __future__ import annotations

import pytest
import torch

from tests.like_eager.rules import check, check_rounding, run
from xla_dynamo.backend.lowering.registry import Target, Unsupported, lowering_for

aten = torch.ops.aten

SHAPES = [(6, 4), (3, 4, 5), (3, 4, 5, 6), (2, 4, 3, 4, 2)]


def _inputs(shape, dtype=torch.float32, stats_dtype=None):
    torch.manual_seed(0)
    channels = (shape[1],)
    x = (2 * torch.randn(shape) + 3).to(dtype)
    parameters = torch.randn(channels), torch.randn(channels)
    statistics = torch.randn(channels), torch.rand(channels) + 0.5
    return x, *(t.to(stats_dtype or dtype) for t in (*parameters, *statistics))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("affine", [True, False])
def test_training(shape, affine):
    x, *parameters, mean, var = _inputs(shape)
    parameters = parameters if affine else [None, None]
    functional = aten._native_batch_norm_legit_functional.default
    check(functional, x, *parameters, mean, var, True, 0.1, 1e-5)
    update = aten._batch_norm_with_update_functional.default
    check(update, x, *parameters, mean, var, 0.3, 1e-3)
    check(aten._native_batch_norm_legit.no_stats, x, *parameters, True, 0.1, 1e-5)
    check(aten.native_batch_norm.default, x, *parameters, None, None, True, 0.1, 1e-5)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("affine", [True, False])
def test_frozen(shape, affine):
    x, *parameters, mean, var = _inputs(shape)
    parameters = parameters if affine else [None, None]
    functional = aten._native_batch_norm_legit_functional.default
    check(functional, x, *parameters, mean, var, False, 0.1, 1e-5)
    check(aten.native_batch_norm.default, x, *parameters, mean, var, False, 0.1, 1e-5)
    check(aten._batch_norm_no_update.default, x, *parameters, mean, var, 0.1, 1e-5)
    no_training = aten._native_batch_norm_legit_no_training.default
    check(no_training, x, *parameters, mean, var, 0.1, 1e-5)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("affine", [True, False])
def test_backward(shape, train, affine):
    x, weight, bias, mean, var = _inputs(shape)
    _, save_mean, save_invstd = aten.native_batch_norm(x, weight, bias, None, None, True, 0, 1e-5)
    saved = (mean, var, save_mean, save_invstd, train, 1e-5)
    weight = weight if affine else None
    grad, mask = torch.randn(shape), [True, affine, affine]
    check(aten.native_batch_norm_backward.default, grad, x, weight, *saved, mask)
    if affine:
        reserve = torch.zeros(0, dtype=torch.uint8)
        check(aten.batch_norm_backward.default, grad, x, weight, *saved, mask, reserve)


@pytest.mark.parametrize("mask", [[True, False, False], [False, True, False], [False, False, True]])
def test_output_mask(mask):
    x, weight, _, mean, var = _inputs((3, 4, 5))
    args = (torch.randn(x.shape), x, weight, mean, var, mean, var, True, 1e-5, mask)
    check(aten.native_batch_norm_backward.default, *args)
    actual = run(aten.native_batch_norm_backward.default, *args)
    assert [out is not None for out in actual] == mask


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("mixed", [True, False])
def test_dtypes(dtype, mixed):
    stats_dtype = torch.float32 if mixed and dtype != torch.float64 else None
    x, weight, bias, mean, var = _inputs((3, 4, 5, 6), dtype, stats_dtype)
    compare = check if dtype == torch.float64 else check_rounding
    functional = aten._native_batch_norm_legit_functional.default
    for training in (True, False):
        compare(functional, x, weight, bias, mean, var, training, 0.1, 1e-5)
        args = (torch.randn(x.shape).to(dtype), x, weight, mean, var, mean, var, training, 1e-5)
        compare(aten.native_batch_norm_backward.default, *args, [True, True, True])


@pytest.mark.parametrize("shape", [(64, 4), (16, 4, 9), (8, 4, 9, 9)])
def test_mean_far_from_running_mean(shape):
    _check_statistics(shape, offset=2000)


@pytest.mark.parametrize(("shape", "offset"), [((64, 4), 2000), ((8, 4, 9, 9), 20)])
def test_accelerator_statistics(shape, offset):
    """On images, accelerators promise precision at moderate distances only."""

    with lowering_for(Target("tpu")):
        _check_statistics(shape, offset)


def _check_statistics(shape, offset):
    x, *parameters = _inputs(shape)
    x = x + offset
    functional = aten._native_batch_norm_legit_functional.default
    actual = run(functional, x, *parameters, True, 0.1, 1e-5)
    exact = functional(x.double(), *(t.double() for t in parameters), True, 0.1, 1e-5)
    for got, truth in zip(actual, exact, strict=True):
        torch.testing.assert_close(got.double(), truth, rtol=5e-4, atol=5e-4)


def test_constant_channels_without_eps():
    x, weight, bias, mean, var = _inputs((3, 4))
    functional = aten._native_batch_norm_legit_functional.default
    check(functional, torch.ones_like(x), weight, bias, mean, var, True, 0.1, 0.0)


def test_in_place_statistics():
    x, weight, bias, mean, var = _inputs((3, 4))
    with pytest.raises(Unsupported, match="in place"):
        run(aten.native_batch_norm.default, x, weight, bias, mean, var, True, 0.1, 1e-5)
