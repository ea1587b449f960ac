"""A vector times a transposed matrix: eager's numbers, and no matrix is written anew."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import xla_dynamo
import xla_dynamo.compat

MATRIX, BIAS = torch.randn(96, 128), torch.randn(96)
ROW, COLUMN = torch.randn(1, 128), torch.randn(96, 1)
PROGRAMS: dict[str, Callable[..., Tensor]] = {
    "linear": lambda m: F.linear(ROW.to(m), m, BIAS.to(m)),
    "without a bias": lambda m: F.linear(ROW.to(m), m),
    "of a token": lambda m: F.linear(ROW.to(m)[None], m, BIAS.to(m)).relu(),
    "of a vector": lambda m: F.linear(ROW[0].to(m), m, BIAS.to(m)),
    "transpose times column": lambda m: m.t() @ COLUMN.to(m),
    "transpose times vector": lambda m: m.t() @ COLUMN[:, 0].to(m),
    "a sum of products": lambda m: torch.einsum("bi,oi->bo", ROW.to(m), m),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("program", PROGRAMS)
def test_the_matrix_stays_as_it_is(program: str, dtype: torch.dtype) -> None:
    function, matrix = PROGRAMS[program], MATRIX.to(dtype)
    with xla_dynamo.capture() as stages:
        got = torch.compile(function, backend="xla", options={"disk_cache": False})(matrix)
    torch.testing.assert_close(got, function(matrix))
    assert "transpose(" not in stages[-1].hlo.split("ENTRY")[1]
    assert "transpose_" not in stages[-1].hlo.split("ENTRY")[1]


@pytest.mark.parametrize("program", PROGRAMS)
def test_gradients(program: str) -> None:
    function = PROGRAMS[program]
    matrices = [MATRIX.double().requires_grad_() for _ in range(2)]
    runs = function, torch.compile(function, backend="xla")
    for run, matrix in zip(runs, matrices, strict=True):
        run(matrix).square().sum().backward()
    torch.testing.assert_close(matrices[1].grad, matrices[0].grad)


@pytest.mark.parametrize("program", PROGRAMS)
def test_on_the_lazy_device(program: str) -> None:
    function = PROGRAMS[program]
    torch.testing.assert_close(function(MATRIX.to("xla:0")).cpu(), function(MATRIX))


@pytest.mark.parametrize(
    "function",
    [
        lambda m: F.linear(ROW.to(m), m, BIAS.to(m)),  # rounded once, with the bias
        lambda m: torch.addmm(BIAS.to(m), ROW.to(m), m.t(), beta=0.5, alpha=2),
        lambda m: F.linear(torch.cat([ROW, -ROW]).to(m), m),
        lambda m: F.linear(ROW[:, :0].to(m), m[:, :0], BIAS.to(m)),
        lambda m: ROW.to(m)[:, :96] @ m,
        lambda m: (m.t() * 8).long() @ torch.ones(96, 1, dtype=torch.int64),
    ],
)
def test_others_are_right_too(function: Callable[[Tensor], Tensor]) -> None:
    for matrix, bound in ((MATRIX, 1e-5), (MATRIX.bfloat16(), 0.05)):
        got = torch.compile(function, backend="xla")(matrix)
        torch.testing.assert_close(got, function(matrix), atol=bound, rtol=bound)
