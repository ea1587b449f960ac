"""Operators whose answer is not one array: what their results must satisfy instead of equality.

`UNDEFINED` ones have arbitrary values: shapes, dtypes and strides are compared. `CHECKS` ones have
several valid answers (the sign of an eigenvector): the property that makes an answer valid is
checked, and what is unique is compared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import scipy.special
import torch
from torch.utils import _pytree as pytree

from .values import Values, assert_same, cotangents

UNDEFINED = frozenset(
    {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"}
)

# (sample, got, want) -> None, or AssertionError
Check = Callable[[Any, Any, Any], None]


def check(op: str, sample: Any, got: Any, want: Any) -> None:
    """Assert that `got` is an answer as valid as eager's `want`."""
    if op in UNDEFINED:
        _assert_same_form(got, want)
        return
    try:
        assert_same(got, want)
    except AssertionError:
        if op not in CHECKS:
            raise
        CHECKS[op](sample, got, want)


def _assert_same_form(got: Any, want: Any) -> None:
    gots, wants = pytree.tree_leaves(got), pytree.tree_leaves(want)
    assert len(gots) == len(wants), "the number of results differs"
    for mine, theirs in zip(gots, wants, strict=True):
        assert _form(mine) == _form(theirs), f"{_form(mine)}, eager has {_form(theirs)}"


def _form(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Shape, dtype, and the strides of dimensions that have any."""
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    strides = [stride for size, stride in pairs if size > 1] if tensor.numel() else []
    return tuple(tensor.shape), tensor.dtype, strides


def _same(got: torch.Tensor, want: torch.Tensor, what: str) -> None:
    """Equal to a backward-stable algorithm's bound: 100 eps of the largest element a dimension."""
    assert _form(got)[:2] == _form(want)[:2], f"{what}: {_form(got)}, should be {_form(want)}"
    if not want.numel():
        return
    size = max(want.shape[-2:], default=1)
    bound = 100 * torch.finfo(want.dtype).eps * size * max(1.0, want.abs().max().item())
    torch.testing.assert_close(got, want, rtol=0, atol=bound, msg=lambda m: f"{what}: {m}")


def _orthonormal(columns: torch.Tensor, what: str) -> None:
    gram = columns.mH @ columns
    identity = torch.eye(gram.shape[-1], dtype=gram.dtype).expand_as(gram)
    _same(gram, identity, f"{what}: not orthonormal")


def _paired(got: torch.Tensor, want: torch.Tensor) -> None:
    """The same numbers in any order, eigenvalues of each matrix in the last dimension."""
    assert _form(got)[:2] == _form(want)[:2], f"{_form(got)}, eager has {_form(want)}"
    if not want.numel():
        return
    rows = (values.reshape(-1, values.shape[-1]) for values in (got, want))
    for mine, theirs in zip(*rows, strict=True):
        left = list(theirs)
        for value in mine:
            nearest = min(range(len(left)), key=lambda i: (left[i] - value).abs().item())
            scale = max(1.0, theirs.abs().max().item())
            bound = 1e3 * torch.finfo(want.dtype).eps * scale * len(theirs)
            assert (left.pop(nearest) - value).abs() <= bound, f"{value} is no eigenvalue"


def _eigenvalues(sample: Any, got: torch.Tensor, want: torch.Tensor) -> None:
    _paired(got, want)


def _eig(sample: Any, got: Any, want: Any) -> None:
    (values, vectors), (expected, _) = got, want
    _paired(values, expected)
    matrix = sample.input.detach().to(vectors.dtype)
    _same(matrix @ vectors, vectors * values.unsqueeze(-2), "A V = V diag(w)")
    norms = torch.linalg.vector_norm(vectors, dim=-2)
    _same(norms, torch.ones_like(norms), "columns have length 1")


def _eigh(sample: Any, got: Any, want: Any) -> None:
    (values, vectors), (expected, _) = got, want
    _same(values, expected, "eigenvalues")
    upper = "U" in (*sample.args, *sample.kwargs.values())
    half = sample.input.detach().triu() if upper else sample.input.detach().tril()
    matrix = half + half.mH - torch.diag_embed(half.diagonal(dim1=-2, dim2=-1).real)
    _same(matrix @ vectors, vectors * values.unsqueeze(-2), "A V = V diag(w)")
    _orthonormal(vectors, "V")


def _svd(sample: Any, got: Any, want: Any) -> None:
    (left, values, right), (_, expected, _) = got, want
    _same(values, expected, "singular values")
    columns = right.mH if type(want).__name__ == "linalg_svd" else right
    rank = values.shape[-1]
    product = (left[..., :rank] * values.unsqueeze(-2)) @ columns[..., :rank].mH
    _same(product, sample.input.detach(), "U S V^H = A")
    _orthonormal(left, "U")
    _orthonormal(columns, "V")


def _low_rank(results: Any) -> Any:
    left, values, right = results
    return values, (left * values.unsqueeze(-2)) @ right.mH


def _lowrank(sample: Any, got: Any, want: Any) -> None:
    for mine, theirs in zip(_low_rank(got), _low_rank(want), strict=True):
        _same(mine, theirs, "S, U S V^H")


def _qr(sample: Any, got: Any, want: Any) -> None:
    left, right = got
    assert _form(left)[:2] == _form(want[0])[:2], f"Q: {_form(left)}, eager has {_form(want[0])}"
    _same(right, right.triu(), "R is upper triangular")
    _same(left @ right, sample.input.detach(), "Q R = A")
    _orthonormal(left, "Q")


def _selected(dim_at: int, sample: Any, got: Any, want: Any) -> None:
    """Eager selects unstably: the position of any of equal values is as valid.

    `dim_at`: the place of `dim` among the arguments after the input.
    """
    assert not sample.kwargs.get("stable"), "a stable sort has one answer"
    (values, positions), (expected, places) = got, want
    assert_same(values, expected)
    assert _form(positions)[:2] == _form(places)[:2], f"{_form(positions)}, not {_form(places)}"
    dim = _dim(sample, dim_at)
    there = positions if positions.dim() == sample.input.dim() else positions.unsqueeze(dim)
    assert_same(sample.input.detach().gather(dim, there).reshape(values.shape), values)
    if there.dim():
        assert bool((there.sort(dim).values.diff(dim=dim) > 0).all()), "a position comes twice"


def _dim(sample: Any, at: int) -> int:
    return sample.kwargs.get("dim", sample.args[at] if at < len(sample.args) else -1)


def _argsort(sample: Any, got: Any, want: Any) -> None:
    source, dim = sample.input.detach(), _dim(sample, 0)
    _selected(0, sample, (source.gather(dim, got), got), (source.gather(dim, want), want))


def _as_scipy(name: str) -> Check:
    """Float64 as exact as scipy's, where eager's own is off by up to 3e-6."""

    def check(sample: Any, got: torch.Tensor, want: torch.Tensor) -> None:
        if want.dtype != torch.float64:
            assert_same(got, want)
        x = sample.input.detach().double().numpy()
        truth = scipy.special.airy(x)[0] if name == "airy" else getattr(scipy.special, name)(x)
        assert_same(got, torch.as_tensor(truth))

    return check


CHECKS: dict[str, Check] = {
    "argsort": _argsort,
    "eig": _eig,
    "kthvalue": partial(_selected, 1),
    "linalg.eig": _eig,
    "linalg.eigvals": _eigenvalues,
    "linalg.eigh": _eigh,
    "linalg.qr": _qr,
    "linalg.svd": _svd,
    "mode": partial(_selected, 0),
    "pca_lowrank": _lowrank,
    "qr": _qr,
    "sort": partial(_selected, 0),
    "svd": _svd,
    "svd_lowrank": _lowrank,
    "special.airy_ai": _as_scipy("airy"),
    "special.bessel_j0": _as_scipy("j0"),
    "special.bessel_j1": _as_scipy("j1"),
    "special.bessel_y0": _as_scipy("y0"),
    "special.bessel_y1": _as_scipy("y1"),
    "topk": partial(_selected, 1),
}

# Operators whose results are values and their positions -> the place of `dim` after the input.
_SELECTIONS = {"kthvalue": 1, "mode": 0, "sort": 0, "topk": 1}


def gradients(op: str, sample: Any, got: Values, want: Values) -> Sequence[torch.Tensor | None]:
    """Eager's gradients; of a selection, those that belong to the positions which `got` has."""
    wanted: Sequence[torch.Tensor | None] = want.gradients or ()
    if op == "msort" and got.gradients:
        return [_among_equal(sample.input.detach(), *got.gradients, *wanted)]
    if op not in _SELECTIONS or torch.equal(got.results[1], want.results[1]):
        return wanted
    (values, positions), gradient = got.results, next(iter(wanted))
    assert gradient is not None
    (cotangent,) = cotangents([values])
    dim = _dim(sample, _SELECTIONS[op])
    if positions.dim() < gradient.dim():
        positions, cotangent = positions.unsqueeze(dim), cotangent.unsqueeze(dim)
    return [torch.zeros_like(gradient).scatter_add(dim, positions, cotangent)]


def _among_equal(x: torch.Tensor, got: Any, want: Any) -> torch.Tensor:
    """`want` with what equal elements of `x` have exchanged as they have in `got`, if they have."""

    def order(gradient: torch.Tensor) -> torch.Tensor:
        first = gradient.argsort(dim=0, stable=True)
        return first.gather(0, x.gather(0, first).argsort(dim=0, stable=True))

    return torch.zeros_like(want).scatter(0, order(got), want.gather(0, order(want)))


# Random operators whose answer is also one of several: what of it has a distribution.
_INVARIANTS: dict[str, Callable[[Any], Any]] = {
    "pca_lowrank": _low_rank,
    "svd_lowrank": _low_rank,
}


def invariant(op: str, results: Any) -> Any:
    """What of the results does not depend on the operator's choice of an answer."""
    return _INVARIANTS.get(op, lambda same: same)(results)
