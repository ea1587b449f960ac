"""Padded forms of ops, family by family, with padding that spoils whatever reads it.

The padded graphs run in eager PyTorch: what is compared is the pass, and nothing is compiled.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.fx import Graph, GraphModule

import xla_dynamo
from xla_dynamo.backend.executable import padded_layout, static_program
from xla_dynamo.backend.executable.request import Request
from xla_dynamo.backend.graph import edit

aten = torch.ops.aten

SIZES = ((5, 6), (8, 7), (6, 5))  # of a bucket of 8 each


@pytest.fixture(autouse=True)
def _poisoned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(padded_layout, "poison", True)


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> list[Graph]:
    """The graphs that would be compiled; they run in eager."""
    found: list[Graph] = []

    def run_eagerly(graph: Graph, _: Any) -> Callable[[list[Any]], Any]:
        found.append(graph)
        # Padded values are row-major for XLA; in eager, a view may be of what is not.
        edit.exchange_targets(graph, {aten.view.default: aten.reshape.default})
        module = GraphModule({}, graph)
        return lambda arguments: module(*arguments)

    monkeypatch.setattr(static_program, "_or_eager", run_eagerly)
    return found


def numbers(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64)


def _mark(value: Tensor, *dims: int) -> Tensor:
    for d in dims:
        torch._dynamo.maybe_mark_dynamic(value, d)
    return value


def assert_as_unpadded(
    function: Callable[..., Any], make: Callable[[int, int], tuple[Tensor, ...]], **options: Any
) -> None:
    """Results, gradients and arguments are eager's for all sizes of a bucket."""
    torch.compiler.reset()
    options.setdefault("bucket", "powers_of_two")
    compiled = torch.compile(function, backend="xla", fullgraph=True, options=options)
    for n, m in SIZES:
        given = make(n, m)
        seen = []
        for run in (function, compiled):
            ours = copy.deepcopy(given)
            for x, y in zip(ours, given, strict=True):
                _mark(x, *[d for d, size in enumerate(y.shape) if size in (n, m)])
                x.requires_grad_(x.is_floating_point())
            results = run(*ours)
            results = results if isinstance(results, tuple) else (results,)
            floats = [r for r in results if r.requires_grad]
            weights = [torch.linspace(-1, 1, r.numel()).view_as(r).to(r) for r in floats]
            slopes = (
                torch.autograd.grad(
                    floats, [x for x in ours if x.requires_grad], weights, allow_unused=True
                )
                if floats
                else ()
            )
            seen.append((results, [r.stride() for r in results], slopes, ours))
        torch.testing.assert_close(seen[1], seen[0], rtol=1e-11, atol=1e-12, equal_nan=True)


def matrix(n: int, m: int) -> tuple[Tensor, ...]:
    return (numbers(n, m),)


def rows(n: int, m: int) -> tuple[Tensor, ...]:
    return (numbers(n, m, 4),)


def attention(q: Tensor, k: Tensor, **options: Any) -> Tensor:
    def heads(x: Tensor) -> Tensor:
        return x.unflatten(-1, (2, 2)).transpose(1, 2)

    return F.scaled_dot_product_attention(heads(q), heads(k), heads(k), **options)


slice_of = torch.ops.xla_dynamo.dynamic_slice.default
slice_gradient = torch.ops.xla_dynamo.dynamic_slice_backward.default
update_of = torch.ops.xla_dynamo.dynamic_update.default
WEIGHT = torch.linspace(-1, 1, 24, dtype=torch.float64).view(6, 4)
FAMILIES: dict[str, tuple[Callable[..., Any], Callable[[int, int], tuple[Tensor, ...]]]] = {
    "pointwise, with sizes": (
        lambda x: (x.sin() * x.shape[0] + x.shape[1], x / (x.shape[0] - 0.5), x**2 > x.shape[1]),
        matrix,
    ),
    "creation": (
        lambda x: (
            x + torch.arange(x.shape[1]).double(),
            torch.ones(x.shape[0]).cumsum(0),
            torch.full((x.shape[1],), x.shape[0]),
            torch.eye(x.shape[0]),
            (x.new_zeros(x.shape[1], 2) + 1).sum(),
        ),
        matrix,
    ),
    "views": (
        lambda x: (
            x.view(-1, 4).cos(),
            x.view(-1).sum(),
            x.permute(2, 1, 0).reshape(-1, x.shape[0]).exp(),
            (x[:, None] * 2).expand(-1, 3, -1, -1).flatten(0, 1),
            x.transpose(0, 1).reshape(-1).cumsum(0),
            x.repeat(2, 1, 1).sum(1),
        ),
        rows,
    ),
    "reductions": (
        lambda x: (
            *(x.mean(), x.sum(1), x.var(0), x.std(), x.amax(1), x.amin(), x.prod(1)),
            *(x.argmax(1), x.argmin(), x.max(0).values, x.logsumexp(0), x.norm(dim=1)),
            *(x.count_nonzero(), (x > 0).all(1), (x > 2).any(0)),
        ),
        matrix,
    ),
    "products": (
        lambda x: (
            *(x.mT @ x, x @ x.mT, x.flatten(0, 1).mT @ x.flatten(0, 1), x @ WEIGHT[:4]),
            F.linear(x, WEIGHT),
            torch.einsum("bsd,btd->st", x, x),
        ),
        rows,
    ),
    "softmax": (
        lambda x: (x.softmax(0), x.log_softmax(1), x.flatten(0, 1).softmax(0), x.softmax(2)),
        rows,
    ),
    "norms": (
        lambda x: (
            F.layer_norm(x, (4,), WEIGHT[0], WEIGHT[1]),
            F.layer_norm(x, x.shape[1:]),
            F.group_norm(x.transpose(1, 2).contiguous(), 2) if x.shape[1] == 1 else x,
            F.batch_norm(x.flatten(0, 1), None, None, WEIGHT[0], WEIGHT[1], training=True),
            F.normalize(x, dim=1),
        ),
        rows,
    ),
    "losses": (
        lambda x, y: (
            F.cross_entropy(x.flatten(0, 1), y.flatten()),
            F.cross_entropy(x.flatten(0, 1), y.flatten(), reduction="none", label_smoothing=0.1),
            *(F.mse_loss(x, x.cos()), F.smooth_l1_loss(x, x.cos()), F.huber_loss(x, x.sin())),
            F.kl_div(x.log_softmax(-1), x.softmax(-1).detach(), reduction="batchmean"),
            F.binary_cross_entropy_with_logits(x, (x > 0).double()),
        ),
        lambda n, m: (numbers(n, m, 4), torch.randint(0, 4, (n, m))),
    ),
    "embedding and indices": (
        lambda w, i, x: (
            F.embedding(i, w),
            *(x[:, i[0] % x.shape[1]], x[i[:, 0] % x.shape[0], -1], w[i]),
            *(x.gather(1, i % x.shape[1]), x.index_select(0, i[:, 0] % x.shape[0])),
            x.take(i % (x.shape[0] * x.shape[1])),
        ),
        lambda n, m: (numbers(11, 4), torch.randint(0, 11, (n, m)), numbers(n, m)),
    ),
    "slices from where a number says": (
        lambda x, at: (
            x.exp(),
            slice_of(x.detach(), 0, at, x.shape[0] - 2),
            slice_of(x.detach(), 1, at - 3, 2),
            slice_gradient(x.detach()[1:4].exp(), list(x.shape), 0, at),
            update_of(x.detach(), x.detach()[1:4].exp(), 0, at),
            update_of(x.detach(), x.detach()[:, 2:].exp(), 1, at),
        ),
        lambda n, m: (numbers(n, m), torch.tensor(1)),
    ),
    "slices": (
        lambda x: (
            *(x[1:], x[:-1], x[:, -1], x[0], x[:, ::2], x[-2:], x[:, 1:] - x[:, :-1]),
            *(x.flip(0), x.roll(1, 1)),
        ),
        matrix,
    ),
    "joining": (
        lambda x: (
            *(torch.cat([x, x, x.sin()]), torch.cat([x[:, :1], x], 1), torch.stack([x, x.cos()])),
            *(F.pad(x, (1, 2)), F.pad(x, (0, 0, 2, 0), value=3.0), F.pad(x, (-1, 0))),
        ),
        matrix,
    ),
    "running and sorted": (
        lambda x: (
            *(x.cumsum(0), x.cummax(0).values, x.logcumsumexp(1)),
            *(*x.sort(0), *x.sort(1, descending=True), *x.topk(2, 1), x.topk(1, 0, False)[0]),
        ),
        matrix,
    ),
    "scatter": (
        lambda x, i: (
            *(x.scatter_add(1, i % x.shape[1], x), x.scatter(0, i % x.shape[0], 1.5)),
            x.index_add(0, i[:, 0] % x.shape[0], x.cos()),
            torch.zeros(11, dtype=x.dtype).index_put((i,), x, accumulate=True),
            x.scatter_reduce(1, i % x.shape[1], x, "amax"),
        ),
        lambda n, m: (numbers(n, m), torch.randint(0, 11, (n, m))),
    ),
    "of what is the same everywhere": (  # any layout is right for it, not for what comes of it
        lambda x, i: (
            torch.zeros(x.numel()).double().scatter_add(0, i.flatten(), x.flatten()) + x.flatten(),
            torch.ones(x.numel()).double().cumsum(0) * x.flatten(),
            torch.ones(x.numel()).double().index_add(0, i.flatten(), x.flatten()) * x.flatten(),
            torch.zeros(x.numel(), 4).double().addmm(x.view(-1, 1), WEIGHT[:1]).sum(1) + x.view(-1),
            attention(torch.ones_like(x)[..., None] * WEIGHT[0], x[..., None] * WEIGHT[1]),
        ),
        lambda n, m: (numbers(n, m), torch.randint(0, n * m, (n, m))),
    ),
    "convolution and pooling": (
        lambda x: (
            F.conv1d(x.mT, WEIGHT.view(2, 4, 3), WEIGHT[0, :2], padding=1),
            F.conv_transpose1d(x.mT, WEIGHT.view(4, 2, 3), stride=2),
            F.conv2d(x[:, None], WEIGHT[:1, :2].view(1, 1, 2, 1)),
            F.max_pool1d(x, 2),
            F.avg_pool1d(x, 2),
            F.max_pool2d(x[:, None], 3, 2, padding=1),
            F.avg_pool2d(x[:, None], 2, 1, padding=1),
            F.interpolate(x, scale_factor=2),
        ),
        rows,
    ),
    "attention": (
        lambda q, k: (
            *(attention(q, k), attention(q, q, is_causal=True)),
            attention(q, k, attn_mask=torch.ones(q.shape[1], k.shape[1], dtype=torch.bool)),
        ),
        lambda n, m: (numbers(n, m, 4), numbers(n, 11, 4)),
    ),
    "matrices of a batch": (
        lambda x: (
            torch.linalg.inv(x.mT @ x + torch.eye(4, dtype=x.dtype)),
            torch.fft.fft(x, dim=2).abs(),
            torch.linalg.det(x.mT @ x),
        ),
        rows,
    ),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_family(family: str, programs: list[Graph]) -> None:
    assert_as_unpadded(*FAMILIES[family])
    assert len(programs) <= 2, "forward and backward, for all sizes of a bucket"


def test_positions_of_maxima_are_those_of_the_elements(programs: list[Graph]) -> None:
    def function(x: Tensor) -> tuple[Tensor, ...]:
        return F.max_pool2d(x, 2, return_indices=True)

    assert_as_unpadded(function, lambda n, m: (numbers(1, 1, n, m),))
    assert len(programs) <= 2


def test_recurrent_layers(programs: list[Graph]) -> None:
    lstm = nn.LSTM(4, 3, batch_first=True).double()
    assert_as_unpadded(lambda x: lstm(x)[0], lambda n, _: (numbers(n, 5, 4),))
    assert len(programs) <= 2


@pytest.mark.parametrize("platform", ["cpu", "tpu"])
def test_running_statistics(
    programs: list[Graph], platform: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = Request.context
    monkeypatch.setattr(Request, "context", lambda self, _=None: context(self, platform))
    compiled = nn.Sequential(nn.Conv2d(1, 2, 2), nn.BatchNorm2d(2), nn.ReLU()).double()
    eager = copy.deepcopy(compiled)
    run = torch.compile(compiled, backend="xla", options={"bucket": 8})
    for n in (5, 8, 3):
        x = _mark(numbers(n, 1, 4, 4), 0)
        torch.testing.assert_close(run(x), eager(x))
        torch.testing.assert_close(dict(compiled.named_buffers()), dict(eager.named_buffers()))
    assert len(programs) == 1


def test_what_has_no_rule_is_named_and_gets_exact_sizes(programs: list[Graph]) -> None:
    def function(x: Tensor) -> Tensor:
        return x.median(0).values

    compiled = torch.compile(function, backend="xla", options={"bucket": 8})
    given = [_mark(numbers(n, 3), 0) for n in (5, 6, 5)]
    with pytest.warns(xla_dynamo.BucketWarning, match=r"aten.median.dim \(at .*test_walk.py"):
        results = [compiled(x) for x in given]
    torch.testing.assert_close(results, [function(x) for x in given])
    assert len(programs) == 2
    assert xla_dynamo.counters() == {"bucket.exact": 1}
