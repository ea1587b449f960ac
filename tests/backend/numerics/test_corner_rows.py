"""Reductions, scans, sorts, norms, poolings and losses of rows that hold zeros, infinities and nan.

Both doors give eager's values, and eager's gradients. Left out is what eager itself decides by the
order of its loops: mode(), bisection and infinite norms of rows that hold nan, gradients that go to
one of several equal elements. Slow: `make test ARGS="-m slow"`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import xla_dynamo.compat  # noqa: F401  (registers the device xla)

Call = Callable[[Tensor, Tensor], Tensor]

inf, nan = float("inf"), float("nan")
ROWS = torch.tensor(list(itertools.product([0.0, -0.0, 1.0, -1.0, inf, -inf, nan, 2.5], repeat=3)))
OTHERS = ROWS.roll(7, 0)
_POWERS = (0, 1, 2, 3, inf, -inf, -1, 0.5)

REDUCTIONS = """
sum mean prod var std logsumexp amax amin argmax argmin nansum nanmean all any count_nonzero
"""
PAIRS = "max min median nanmedian cummax cummin"
ALONG = "softmax log_softmax cumsum cumprod logcumsumexp"
LOSSES = """
binary_cross_entropy_with_logits mse_loss l1_loss smooth_l1_loss huber_loss kl_div
hinge_embedding_loss multilabel_soft_margin_loss
"""


def _numbers(x: Tensor, count: int) -> Tensor:
    return torch.arange(len(x), device=x.device) % count


def _columns(x: Tensor) -> Tensor:
    return x.T.contiguous()[None]


def _quantile(name: str, how: str) -> Call:
    def call(x: Tensor, _: Tensor) -> Tensor:
        q = torch.tensor([0.0, 0.25, 0.5, 1.0], device=x.device)
        return getattr(torch, name)(x, q, 1, interpolation=how)

    return call


VALUES: dict[str, Call] = {
    **{n: lambda x, _, n=n: getattr(torch, n)(x, 1) for n in (REDUCTIONS + ALONG).split()},
    **{n: lambda x, _, n=n: getattr(torch, n)(x, 1)[0] for n in PAIRS.split()},
    **{f"{n}, places": lambda x, _, n=n: getattr(torch, n)(x, 1)[1] for n in PAIRS.split()},
    **{f"{n} of all": lambda x, _, n=n: getattr(torch, n)(x[:, 0]) for n in PAIRS.split()[:4]},
    **{
        f"{name} {how}": _quantile(name, how)
        for name in ("quantile", "nanquantile")
        for how in ("linear", "lower", "higher", "nearest", "midpoint")
    },
    **{
        f"sort {descending}": lambda x, _, d=descending: x.sort(stable=True, dim=1, descending=d)[0]
        for descending in (False, True)
    },
    **{f"topk {k}": lambda x, _, k=k: x.topk(k, 1)[0] for k in (1, 2, 3)},
    **{f"kthvalue {k}": lambda x, _, k=k: x.kthvalue(k, 1)[0] for k in (1, 2, 3)},
    "bucketize": lambda x, _: torch.bucketize(x, torch.tensor([-1.0, 0, 2], device=x.device)),
    "isin": lambda x, _: torch.isin(x, torch.tensor([0.0, nan, inf], device=x.device)),
    "adaptive places": lambda x, _: F.adaptive_max_pool1d(_columns(x), 100, True)[1],
    "max_pool places": lambda x, _: F.max_pool1d(_columns(x), 3, return_indices=True)[1],
    "cdist 0": lambda x, y: torch.cdist(x[:40], y[:30], 0),
}
DIFFERENTIABLE: dict[str, Call] = {
    **{n: VALUES[n] for n in ["sum", "mean", "prod", "logsumexp", "amax", "amin", "nansum"]},
    **{n: VALUES[n] for n in ALONG.split()},
    **{f"norm {p}": lambda x, _, p=p: torch.linalg.vector_norm(x, p, 1) for p in _POWERS},
    **{f"distance {p}": lambda x, y, p=p: F.pairwise_distance(x, y, p=p) for p in _POWERS},
    **{
        f"scatter {how} {own}": lambda x, y, h=how, o=own: torch.scatter_reduce(
            y[:97], 0, _numbers(x, 97)[:, None].expand(-1, 3), x, h, include_self=o
        )
        for how, own in itertools.product(("sum", "amax", "amin", "mean"), (True, False))
    },
    **{n: lambda x, y, n=n: getattr(F, n)(x, y, reduction="none") for n in LOSSES.split()},
    "cross_entropy": lambda x, _: F.cross_entropy(x, _numbers(x, 3), reduction="none"),
    "smoothed": lambda x, _: F.cross_entropy(x, _numbers(x, 3), label_smoothing=0.1),
    "probabilities": lambda x, y: F.cross_entropy(x, y, reduction="none"),
    "ignored": lambda x, _: F.nll_loss(x, _numbers(x, 3), reduction="none", ignore_index=1),
    "margins": lambda x, _: F.multi_margin_loss(x, _numbers(x, 3), reduction="none"),
    "triplets": lambda x, y: F.triplet_margin_loss(x, y, x.roll(1, 0), reduction="none"),
    "cosine_similarity": lambda x, y: F.cosine_similarity(x, y),
    "max_pool1d": lambda x, _: F.max_pool1d(_columns(x), 3, padding=1, stride=2),
    "avg_pool1d": lambda x, _: F.avg_pool1d(_columns(x), 3, padding=1),
    "adaptive_max_pool1d": lambda x, _: F.adaptive_max_pool1d(_columns(x), 100),
    "lp_pool1d": lambda x, _: F.lp_pool1d(_columns(x), 2, 3),
    "rms_norm": lambda x, _: F.rms_norm(x, (3,)),
    "glu": lambda x, y: F.glu(torch.cat([x, y], 1)),
    "prelu": lambda x, y: F.prelu(x, y[0]),
    "clamp": lambda x, y: torch.clamp(x, y, x.roll(3, 0)),
    "lerp": lambda x, y: torch.lerp(x, y, x.roll(3, 0)),
    "renorm": lambda x, _: torch.renorm(x, 2, 0, 1.5),
    "linear resizing": lambda x, _: F.interpolate(_columns(x), scale_factor=2, mode="linear"),
    "products": lambda x, y: x @ y.T[:, :50],
    "beta=0": lambda x, y: torch.addmm(y[:, :1], x, y.T[:, :50], beta=0),
    "index_add": lambda x, y: torch.index_add(y, 0, _numbers(x, 97), x, alpha=2),
    "embedding_bag": lambda x, _: F.embedding_bag(_numbers(x, 30).view(-1, 8), x, mode="mean"),
}
_CALLS = {**VALUES, **DIFFERENTIABLE}
_PART = 30
PARTS = [tuple(_CALLS)[i : i + _PART] for i in range(0, len(_CALLS), _PART)]


def _differing(names: Sequence[str], ours: Sequence[Tensor], theirs: Sequence[Tensor]) -> list[str]:
    found = []
    for name, actual, expected in zip(names, ours, theirs, strict=True):
        try:
            torch.testing.assert_close(actual.detach().cpu(), expected.detach(), equal_nan=True)
        except AssertionError:
            found.append(name)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("part", range(len(PARTS)))
@pytest.mark.parametrize("door", ["compile", "lazy"])
def test_values(door: str, part: int) -> None:
    calls = [_CALLS[name] for name in PARTS[part]]

    def run(x: Tensor, y: Tensor) -> list[Tensor]:
        return [call(x, y) for call in calls]

    device = "xla" if door == "lazy" else "cpu"
    ours = run if door == "lazy" else torch.compile(run, backend="xla")
    actual = ours(ROWS.to(device), OTHERS.to(device))
    assert _differing(PARTS[part], actual, run(ROWS, OTHERS)) == []


@pytest.mark.slow
@pytest.mark.parametrize("door", ["compile", "lazy"])
@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradients(name: str, door: str) -> None:
    call = DIFFERENTIABLE[name]

    def gradients(call: Call, device: str) -> list[Tensor]:
        x, y = (t.to(device, copy=True).requires_grad_() for t in (ROWS, OTHERS))
        result = call(x, y)
        weights = torch.arange(1, result.numel() + 1, device=device).view(result.shape) % 13
        found = torch.autograd.grad(result, (x, y), weights.float(), allow_unused=True)
        return [torch.zeros(()) if g is None else g for g in found]

    lazy = door == "lazy"
    ours = call if lazy else torch.compile(call, backend="xla")
    expected = gradients(call, "cpu")
    assert _differing(["x", "y"], gradients(ours, "xla" if lazy else "cpu"), expected) == []
