"""Sparse tensors that enter, leave and arise in a compiled function: on the CPU, with a warning."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import xla_dynamo
from tests.like_eager.compiled import fallbacks

fell_back = pytest.warns(xla_dynamo.FallbackWarning, match="layout torch.sparse_coo, and XLA's")
INDICES = torch.tensor([1, 2, 2, 4])


def table() -> nn.Module:
    return nn.Embedding(5, 3, sparse=True)


class Tagger(nn.Module):
    """A table with a sparse gradient, a buffer that changes, and one that is sparse."""

    def __init__(self) -> None:
        super().__init__()
        self.table = table()
        self.linear = nn.Linear(3, 3)
        self.seen = nn.Buffer(torch.zeros(3))
        self.graph = nn.Buffer(torch.eye(3).to_sparse())

    def forward(self, indices: Tensor) -> Tensor:
        y = self.linear(self.table(indices))
        self.seen.add_(y.detach().sum(0))
        return torch.sparse.mm(self.graph, y.t()).sin()


MODULES: dict[str, Callable[[], nn.Module]] = {
    "a table": table,
    "bags": lambda: nn.EmbeddingBag(5, 3, sparse=True, mode="sum"),
    "more than a table": Tagger,
}


def dense(tree: Any) -> Any:
    return pytree.tree_map_only(
        Tensor, lambda x: x if x.layout == torch.strided else x.to_dense(), tree
    )


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", MODULES)
def test_sparse_gradients(name: str, dynamic: bool | None) -> None:
    def train(backend: str | None) -> list[Any]:
        torch.manual_seed(0)
        module = MODULES[name]().double()
        run = torch.compile(module, backend=backend, dynamic=dynamic) if backend else module
        tables = [p for p in module.parameters() if p.shape == (5, 3)]
        optimizer = torch.optim.SparseAdam(tables, 0.1)
        found: list[Any] = []
        for rows in (2, 4, 6):
            module.zero_grad()
            given = INDICES.repeat(2)[:rows]
            run(given.view(2, -1) if name == "bags" else given).square().sum().backward()
            assert [p.grad.layout for p in tables if p.grad is not None] == [torch.sparse_coo]
            found.append(dense([p.grad for p in module.parameters()]))
            optimizer.step()
        return [*found, dense(dict(module.state_dict()))]

    with fell_back:
        actual = train("xla")
    torch.testing.assert_close(actual, train(None))
    assert set(fallbacks()) & {
        "fallback.aten::_embedding_bag_backward",
        "fallback.aten::_sparse_coo_tensor_with_dims_and_tensors",
    }


EYE = torch.eye(4).to_sparse()
# A function, and what it is called with.
FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...]]] = {
    "a product": (lambda s, x: (s @ x).sin(), (EYE, torch.ones(4, 2))),
    "a product of rows": (lambda s, x: (s @ x).sin(), (EYE.to_sparse_csr(), torch.ones(4, 2))),
    "an argument that is returned": (lambda s, x: (x.sin(), s), (EYE, torch.ones(4))),
    "a result": (lambda x: (x * 2).to_sparse(), (torch.eye(3),)),
    "made dense": (lambda s: s.to_dense() + 1, (EYE,)),
    "both": (lambda s: s * 3, (EYE,)),
}


@pytest.mark.filterwarnings("ignore::xla_dynamo.FallbackWarning")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_sparse_arguments_and_results(name: str) -> None:
    function, arguments = FUNCTIONS[name]
    compiled = torch.compile(function, backend="xla")
    for _ in range(2):
        actual, expected = compiled(*arguments), function(*arguments)
        leaves = [pytree.tree_leaves(results) for results in (actual, expected)]
        assert [x.layout for x in leaves[0]] == [x.layout for x in leaves[1]]
        torch.testing.assert_close(dense(actual), dense(expected))


@pytest.mark.filterwarnings("ignore::xla_dynamo.FallbackWarning")
def test_a_gradient_by_a_sparse_argument() -> None:
    def gradients(run: Callable[..., Tensor]) -> list[Tensor]:
        given = EYE.clone().requires_grad_(), torch.arange(8.0).view(4, 2).requires_grad_()
        return dense(list(torch.autograd.grad(run(*given).sum(), given)))

    def product(s: Tensor, x: Tensor) -> Tensor:
        return torch.sparse.mm(s, x).sin()

    actual = gradients(torch.compile(product, backend="xla"))
    torch.testing.assert_close(actual, gradients(product))


def test_nothing_falls_back_in_forward_of_a_table() -> None:
    compiled = torch.compile(table(), backend="xla", options={"fallback": "error"})
    with torch.no_grad():
        compiled(INDICES)
    with pytest.raises(xla_dynamo.UnsupportedOp, match="XLA's arrays are dense"):
        compiled(INDICES).sum().backward()
