"""Random ops through torch.compile: fresh, reproducible, independent, rightly distributed."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from scipy import stats
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import xla_dynamo

N = 20_000
DRAWS: dict[str, Callable[[Tensor], Tensor]] = {
    "rand": lambda x: torch.rand(N),
    "rand_like": torch.rand_like,
    "randn": lambda x: torch.randn(N),
    "randn_like": torch.randn_like,
    "randint": lambda x: torch.randint(-7, 1000, (N,)),
    "bernoulli": lambda x: torch.bernoulli(x * 0 + 0.3),
    "dropout": lambda x: F.dropout(x + 1, 0.3),
    "multinomial": lambda x: torch.multinomial(x * 0 + 1, 500),
    "randperm": lambda x: torch.randperm(N),
    "normal": lambda x: torch.normal(x, 2.0),
    "exponential": lambda x: x.clone().exponential_(2.0),
    "uniform": lambda x: x.clone().uniform_(-3, 5),
}


def compiled(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    return torch.compile(lambda x: function(x), backend="xla", fullgraph=True)


@pytest.mark.parametrize("name", DRAWS)
def test_fresh_on_every_call_and_reproducible(name: str) -> None:
    draw, x = compiled(DRAWS[name]), torch.zeros(N)
    torch.manual_seed(5)
    first, second = draw(x), draw(x)
    assert not torch.equal(first, second)
    torch.manual_seed(5)
    assert torch.equal(draw(x), first)
    assert torch.equal(draw(x), second)
    assert len(xla_dynamo.compiles()) == 1
    assert xla_dynamo.counters() == {}


@pytest.mark.parametrize("name", DRAWS)
def test_shape_and_dtype_are_eagers(name: str) -> None:
    x = torch.zeros(N)
    got, want = compiled(DRAWS[name])(x), DRAWS[name](x)
    assert (got.shape, got.dtype) == (want.shape, want.dtype)


@pytest.mark.parametrize(
    ("name", "distribution"),
    [
        ("rand", stats.uniform()),
        ("randn", stats.norm()),
        ("normal", stats.norm(0, 2)),
        ("exponential", stats.expon(scale=1 / 2)),
        ("uniform", stats.uniform(-3, 8)),
    ],
)
def test_continuous_distributions(name: str, distribution: object) -> None:
    draw, x = compiled(DRAWS[name]), torch.zeros(N)
    sample = torch.cat([draw(x) for _ in range(5)]).double().numpy()
    # The seed is fixed: a p-value of 1e-4 is no chance failure.
    assert stats.kstest(sample, distribution.cdf).pvalue > 1e-4  # type: ignore[attr-defined]


def test_randint_is_uniform_over_its_range() -> None:
    sample = compiled(DRAWS["randint"])(torch.zeros(N))
    assert (int(sample.min()), int(sample.max())) == (-7, 999)
    counts = torch.bincount(((sample + 7) // 53), minlength=19)
    assert stats.chisquare(counts.numpy()).pvalue > 1e-4


def test_bernoulli_and_dropout_rates() -> None:
    x = torch.zeros(N)
    deviation = math.sqrt(0.3 * 0.7 / N)
    assert abs(compiled(DRAWS["bernoulli"])(x).mean().item() - 0.3) < 5 * deviation
    dropped = compiled(DRAWS["dropout"])(x)
    assert abs((dropped == 0).float().mean().item() - 0.3) < 5 * deviation
    kept = dropped[dropped != 0]
    torch.testing.assert_close(kept, torch.full_like(kept, 1 / 0.7))


def test_randperm_and_multinomial_without_replacement_are_permutations() -> None:
    x = torch.zeros(N)
    assert torch.equal(compiled(DRAWS["randperm"])(x).sort().values, torch.arange(N))
    assert compiled(DRAWS["multinomial"])(x).unique().numel() == 500


def test_streams_in_one_graph_are_independent() -> None:
    @torch.compile(backend="xla", fullgraph=True)
    def three(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return torch.randn_like(x), torch.randn_like(x), torch.rand_like(x)

    a, b, c = three(torch.zeros(N))
    matrix = torch.corrcoef(torch.stack([a, b, c]))
    assert (matrix - torch.eye(3)).abs().max() < 5 / math.sqrt(N)


def test_two_graphs_draw_independently() -> None:
    first, second = compiled(DRAWS["randn"]), compiled(DRAWS["randn_like"])
    x = torch.zeros(N)
    assert abs(torch.corrcoef(torch.stack([first(x), second(x)]))[0, 1]) < 5 / math.sqrt(N)


def test_forward_and_backward_use_one_mask() -> None:
    x = torch.ones(N, requires_grad=True)
    y = compiled(DRAWS["dropout"])(x)
    y.backward(torch.ones(N))
    assert x.grad is not None
    torch.testing.assert_close(x.grad, y.detach() / 2)  # y = mask / 0.7 * (x + 1)


def test_checkpointed_dropout_draws_its_mask_once() -> None:
    def block(x: Tensor) -> Tensor:
        return F.dropout(x.sin(), 0.5) * 2

    @torch.compile(backend="xla", fullgraph=True)
    def run(x: Tensor) -> Tensor:
        return checkpoint(block, x, use_reentrant=False)

    x = torch.rand(N, requires_grad=True)
    y = run(x)
    y.sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad, torch.where(y == 0, 0.0, 4 * x.cos()).detach())


def test_an_rng_state_that_is_restored_gives_the_same_numbers() -> None:
    draw, x = compiled(DRAWS["randn"]), torch.zeros(N)
    with torch.random.fork_rng():
        inside = draw(x)
    assert torch.equal(draw(x), inside)


OWN: dict[str, Any] = {"random_bits": "rbg"}


@pytest.mark.parametrize("name", ["rand", "normal", "dropout", "exponential"])
def test_the_devices_own_generator(name: str) -> None:
    """As fresh and reproducible, with numbers of its own."""
    x = torch.zeros(N)
    draw = torch.compile(lambda x: DRAWS[name](x), backend="xla", options=OWN, fullgraph=True)
    torch.manual_seed(5)
    first, second = draw(x), draw(x)
    assert not torch.equal(first, second)
    torch.manual_seed(5)
    assert torch.equal(draw(x), first)
    torch.manual_seed(5)
    assert not torch.equal(compiled(DRAWS[name])(x), first)


def test_the_devices_own_generator_gives_backward_the_mask_of_forward() -> None:
    x = torch.ones(400, requires_grad=True)

    @partial(torch.compile, backend="xla", options=OWN)
    def program(x: Tensor) -> Tensor:
        y = F.dropout(x, 0.5)
        return y + checkpoint(lambda x: F.dropout(x, 0.25), x, use_reentrant=False)

    y = program(x)
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert torch.equal(gradient, y)
    assert len(y.unique()) == 4  # two masks, which are independent


def test_the_devices_own_generator_draws_parts_that_share_no_numbers() -> None:
    z = torch.compile(lambda: torch.randn(N, dtype=torch.complex64), backend="xla", options=OWN)()
    assert torch.isin(z.real, z.imag).float().mean() < 0.01


@pytest.mark.parametrize(("probability", "dtype"), [(0.1, torch.float32), (0.6, torch.bfloat16)])
def test_chances_of_the_devices_own_generator(probability: float, dtype: torch.dtype) -> None:
    drop = torch.compile(lambda x: F.dropout(x, probability), backend="xla", options=OWN)
    kept = int((drop(torch.ones(N, dtype=dtype)) != 0).sum())
    assert stats.binomtest(kept, N, 1 - probability).pvalue > 1e-4
