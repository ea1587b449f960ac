"""convolution and convolution_backward against eager, in every combination that changes shapes."""

from __future__ import annotations

import pytest
import torch

import xla_dynamo.backend.lowering.rules.convolution  # noqa: F401
from tests.like_eager.rules import check, check_rounding, run

aten = torch.ops.aten

# name: (input, weight, stride, padding, dilation, transposed, output_padding, groups)
CASES = {
    "1d": ((2, 3, 9), (4, 3, 3), [1], [1], [1], False, [0], 1),
    "2d": ((2, 3, 8, 9), (4, 3, 3, 3), [1, 1], [1, 1], [1, 1], False, [0, 0], 1),
    "one setting": ((2, 3, 8, 9), (4, 3, 3, 3), [2], [1], [1], False, [0], 1),
    "3d": ((2, 2, 5, 6, 5), (3, 2, 3, 2, 3), [1, 2, 1], [1, 0, 1], [1] * 3, False, [0] * 3, 1),
    "stride": ((2, 3, 11, 8), (4, 3, 3, 2), [3, 2], [0, 1], [1, 1], False, [0, 0], 1),
    "pointwise": ((2, 3, 5, 5), (4, 3, 1, 1), [1, 1], [0, 0], [1, 1], False, [0, 0], 1),
    "strided pointwise": ((2, 3, 6, 5), (4, 3, 1, 1), [2, 2], [0, 0], [1, 1], False, [0, 0], 1),
    "dilated": ((2, 3, 11, 9), (4, 3, 3, 3), [2, 1], [2, 1], [2, 3], False, [0, 0], 1),
    "grouped": ((2, 4, 7, 7), (6, 2, 3, 3), [2, 2], [1, 1], [1, 1], False, [0, 0], 2),
    "depthwise": ((2, 4, 7, 7), (8, 1, 3, 3), [1, 1], [1, 1], [1, 1], False, [0, 0], 4),
    "wide padding": ((1, 2, 3, 3), (2, 2, 2, 2), [1, 1], [4, 3], [1, 1], False, [0, 0], 1),
    "transposed": ((2, 3, 5, 6), (3, 4, 3, 3), [2, 2], [1, 1], [1, 1], True, [1, 0], 1),
    "transposed 1d": ((2, 3, 5), (3, 4, 3), [1], [0], [1], True, [0], 1),
    "transposed 3d": (
        (1, 2, 3, 3, 4),
        (2, 3, 2, 3, 2),
        [2] * 3,
        [1] * 3,
        [1] * 3,
        True,
        [1] * 3,
        1,
    ),
    "transposed grouped": ((2, 4, 5, 4), (4, 3, 3, 3), [2, 1], [1, 2], [1, 2], True, [1, 1], 2),
    "transposed depthwise": ((2, 4, 5, 4), (4, 1, 4, 4), [2, 2], [1, 1], [1, 1], True, [0, 0], 4),
    "output padding": ((2, 3, 5, 4), (3, 2, 3, 2), [1, 2], [1, 0], [3, 3], True, [2, 2], 1),
    "empty batch": ((0, 3, 8, 9), (4, 3, 3, 3), [1, 1], [1, 1], [1, 1], False, [0, 0], 1),
}


def _tensors(case, dtype=torch.float32):
    x, weight, *settings = case
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(x, generator=generator).to(dtype)
    weight = torch.randn(weight, generator=generator).to(dtype)
    channels = weight.shape[1] * settings[-1] if settings[3] else weight.shape[0]
    return x, weight, torch.randn(channels, generator=generator).to(dtype), settings


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@pytest.mark.parametrize("biased", [True, False])
def test_forward(case, biased):
    x, weight, bias, settings = _tensors(case)
    operands = x, weight, bias if biased else None
    check(aten.convolution.default, *operands, *settings)
    if x.numel():
        check(aten._convolution.default, *operands, *settings, False, True, True, True)
        check(aten._convolution.deprecated, *operands, *settings, False, True, True)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_backward(case):
    x, weight, bias, settings = _tensors(case)
    out = aten.convolution.default(x, weight, bias, *settings)
    grad = torch.randn(out.shape, generator=torch.Generator().manual_seed(1))
    check(
        aten.convolution_backward.default,
        *(grad, x, weight, [bias.shape[0]], *settings, [True, True, True]),
    )


@pytest.mark.parametrize("name", ["2d", "grouped", "transposed"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_dtypes(name, dtype):
    x, weight, bias, settings = _tensors(CASES[name], dtype)
    grad = torch.randn_like(aten.convolution.default(x, weight, bias, *settings))
    backward = (grad, x, weight, [bias.shape[0]], *settings, [True, True, True])
    compare = check if dtype == torch.float64 else check_rounding
    compare(aten.convolution.default, x, weight, bias, *settings)
    compare(aten.convolution_backward.default, *backward)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_integers(case):
    x, weight, bias, settings = _tensors(case)
    operands = ((10 * value).to(torch.int64) for value in (x, weight, bias))
    check(aten.convolution.default, *operands, *settings)


@pytest.mark.parametrize("transposed", [False, True])
def test_bias_joins_before_the_only_rounding(transposed):
    just_above = torch.full((1, 1, 1, 1), 1 + 2**-7, dtype=torch.bfloat16)
    bias = torch.tensor([-1 - 2**-6], dtype=torch.bfloat16)
    settings = ([1, 1], [0, 0], [1, 1], transposed, [0, 0], 1)
    out = run(aten.convolution.default, just_above, just_above, bias, *settings)
    assert out.item() == 2**-14


@pytest.mark.parametrize("wanted", [0, 1, 2])
def test_output_mask(wanted):
    x, weight, bias, settings = _tensors(CASES["grouped"])
    grad = torch.ones_like(aten.convolution.default(x, weight, bias, *settings))
    args = (grad, x, weight, [6], *settings, [i == wanted for i in range(3)])
    actual = run(aten.convolution_backward.default, *args)
    assert [out is not None for out in actual] == args[-1]
    expected = aten.convolution_backward.default(*args)[wanted]
    torch.testing.assert_close(actual[wanted], expected)


@pytest.mark.parametrize("pad", [0, 2])
def test_sequences(pad):
    x, weight, bias = torch.randn(9, 2, 3), torch.randn(4, 3, 5), torch.randn(5)
    check(aten.conv_tbc.default, x, weight, bias, pad)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("groups", [1, 3])
def test_depthwise_of_float64_and_its_gradients(groups: int, transposed: bool) -> None:
    x, weight = torch.randn(2, groups, 19).double(), torch.randn(groups, 1, 3).double()
    settings = ([2], [1], [1], transposed, [int(transposed)], groups)
    check(aten.convolution.default, x, weight, None, *settings)
    grad = torch.randn_like(aten.convolution.default(x, weight, None, *settings))
    check(aten.convolution_backward.default, grad, x, weight, None, *settings, [True, True, False])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kernel", [(3,), (3, 3), (51,)])
@pytest.mark.parametrize("shape", [(4, 1), (8, 1), (4, 2), (8, 2)])
@pytest.mark.parametrize("transposed", [False, True])
def test_nan_stays_in_its_group(
    transposed: bool, shape: tuple[int, int], kernel: tuple[int, ...], dtype: torch.dtype
) -> None:
    """No padding: eager's kernels differ in whether a nan times what is padded is one."""
    outputs, inputs = shape
    channels, image = (outputs if transposed else 4 * inputs), [53 if kernel == (51,) else 6]
    x = torch.randn(2, channels, *image * len(kernel), dtype=dtype)
    weight = torch.randn(outputs, inputs, *kernel, dtype=dtype)
    ones = [1] * len(kernel)
    settings = (ones, [0] * len(kernel), ones, transposed, [0] * len(kernel), 4)
    grad = torch.randn_like(aten.convolution.default(x, weight, None, *settings))
    x[1, -1], grad[0, 0] = float("nan"), float("nan")
    check(aten.convolution.default, x, weight, None, *settings)
    mask = [True, True, False]
    check(aten.convolution_backward.default, grad, x, weight, None, *settings, mask)
