"""Layer and group norm, and their gradients, against eager."""

from __future__ import annotations

import pytest
import torch

from tests.like_eager.rules import check, check_rounding, run
from xla_dynamo.backend.lowering.rules import layer_norm  # noqa: F401

aten = torch.ops.aten


LAYERS = [((5, 8), [8]), ((2, 3, 8), [8]), ((2, 3, 4, 5), [4, 5]), ((6,), [6]), ((0, 4), [4])]
GROUPS = [((3, 6, 4, 5), 2), ((2, 6), 3), ((2, 4, 7), 4), ((2, 4, 3, 3, 2), 1)]


def _parameters(shape, affine, dtype=torch.float32):
    if not affine:
        return None, None
    return torch.randn(shape).to(dtype), torch.randn(shape).to(dtype)


@pytest.mark.parametrize(("shape", "normalized"), LAYERS)
@pytest.mark.parametrize("affine", [True, False])
def test_layer_norm(shape, normalized, affine):
    x = 2 * torch.randn(shape) + 1
    parameters = _parameters(normalized, affine)
    check(aten.native_layer_norm.default, x, normalized, *parameters, 1e-5)
    _, mean, rstd = aten.native_layer_norm(x, normalized, *parameters, 1e-5)
    args = (torch.randn(shape), x, normalized, mean, rstd, *parameters, [True, affine, affine])
    check(aten.native_layer_norm_backward.default, *args)


def test_layer_norm_of_outliers():
    x = torch.randn(4, 64) + 3000
    x[:, 0] = 0
    check(aten.native_layer_norm.default, x, [64], None, None, 1e-5)


@pytest.mark.parametrize(("shape", "group"), GROUPS)
@pytest.mark.parametrize("affine", [True, False])
def test_group_norm(shape, group, affine):
    x = 2 * torch.randn(shape) + 1
    parameters = _parameters(shape[1], affine)
    sizes = (shape[0], shape[1], x[0, 0].numel(), group)
    check(aten.native_group_norm.default, x, *parameters, *sizes, 1e-5)
    _, mean, rstd = aten.native_group_norm(x, *parameters, *sizes, 1e-5)
    args = (torch.randn(shape), x, mean, rstd, parameters[0], *sizes, [True, affine, affine])
    check(aten.native_group_norm_backward.default, *args)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("mixed", [True, False])
def test_dtypes(dtype, mixed):
    compare = check if dtype == torch.float64 else check_rounding
    parameter_dtype = torch.float32 if mixed and dtype != torch.float64 else dtype
    x, grad = (torch.randn(3, 8, 6).to(dtype) for _ in range(2))
    weight, bias = _parameters(6, True, parameter_dtype)
    compare(aten.native_layer_norm.default, x, [6], weight, bias, 1e-5)
    _, *saved = aten.native_layer_norm(x, [6], weight, bias, 1e-5)
    args = (grad, x, [6], *saved, weight, bias, [True] * 3)
    compare(aten.native_layer_norm_backward.default, *args)
    weight, bias = _parameters(8, True, parameter_dtype)
    compare(aten.native_group_norm.default, x, weight, bias, 3, 8, 6, 2, 1e-5)
    _, *saved = aten.native_group_norm(x, weight, bias, 3, 8, 6, 2, 1e-5)
    args = (grad, x, *saved, weight, 3, 8, 6, 2, [True] * 3)
    compare(aten.native_group_norm_backward.default, *args)


@pytest.mark.parametrize("mask", [[True, False, False], [False, True, False], [False, False, True]])
def test_output_mask(mask):
    x, grad, weight, bias = torch.randn(3, 4), torch.randn(3, 4), torch.randn(4), torch.randn(4)
    _, *saved = aten.native_layer_norm(x, [4], weight, bias, 1e-5)
    args = (grad, x, [4], *saved, weight, bias, mask)
    assert [g is not None for g in run(aten.native_layer_norm_backward.default, *args)] == mask
    _, *saved = aten.native_group_norm(x, weight, bias, 3, 4, 1, 2, 1e-5)
    args = (grad, x, *saved, weight, 3, 4, 1, 2, mask)
    assert [g is not None for g in run(aten.native_group_norm_backward.default, *args)] == mask
