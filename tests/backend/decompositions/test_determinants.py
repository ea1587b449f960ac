from __future__ import annotations

import pytest
import torch

from xla_dynamo.backend.decompositions import determinants


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex128])
@pytest.mark.parametrize("batch", [(), (2, 3), (0,)])
@pytest.mark.parametrize("transposed", [False, True])
def test_determinants_decompose_with_eagers_factors(dtype, batch, transposed):
    a = torch.randn(*batch, 4, 4, dtype=dtype)
    a = a.mT if transposed else a
    for op, how in determinants.LINEAR_ALGEBRA_DECOMPOSITIONS.items():
        for want, got in zip(op(a), how(a), strict=True):
            torch.testing.assert_close(got, want)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("name", ["det", "slogdet"])
def test_gradients_through_decomposed_determinants(transposed, name):
    def function(a: torch.Tensor) -> torch.Tensor:
        result = getattr(torch.linalg, name)(a.mT if transposed else a)
        return result.logabsdet if name == "slogdet" else result

    a = torch.randn(4, 4, dtype=torch.float64).requires_grad_()
    traced = torch.fx.experimental.proxy_tensor.make_fx(
        lambda x: torch.autograd.grad(function(x), x)[0],
        decomposition_table=determinants.LINEAR_ALGEBRA_DECOMPOSITIONS,
    )(a)
    ops = {node.target for node in traced.graph.nodes}
    assert not ops & set(determinants.LINEAR_ALGEBRA_DECOMPOSITIONS)
    torch.testing.assert_close(traced(a), torch.autograd.grad(function(a), a)[0])


def test_determinants_of_singular_and_empty_matrices():
    for a in (torch.zeros(3, 3), torch.zeros(0, 0), torch.zeros(2, 0, 0), torch.ones(2, 2)):
        for op, how in determinants.LINEAR_ALGEBRA_DECOMPOSITIONS.items():
            for want, got in zip(op(a), how(a), strict=True):
                torch.testing.assert_close(got, want)
