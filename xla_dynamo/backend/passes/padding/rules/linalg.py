"""Matrices of a batch, and Fourier transforms of its rows.

What is padding is a unit matrix, which every factorization takes: nan would be an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from xla_dynamo.backend.passes.padding.padder import Padded, Padder, dims_of
from xla_dynamo.backend.passes.padding.registry import pads
from xla_dynamo.backend.passes.padding.sizes import Refused

aten = torch.ops.aten
# The trailing dimensions of each tensor operand that are one problem.
_CORE: Mapping[str, tuple[int, ...]] = {
    **dict.fromkeys(
        (
            *("cholesky.default", "linalg_cholesky_ex.default", "linalg_inv_ex.default"),
            *("_linalg_eigh.default", "linalg_eig.default", "_linalg_svd.default"),
            *("linalg_qr.default", "linalg_lu_factor_ex.default", "linalg_lu.default"),
            *("linalg_matrix_exp.default", "cholesky_inverse.default", "_linalg_det.default"),
            *("linalg_eigvals.default", "_linalg_eigvals.default", "_linalg_slogdet.default"),
            *("linalg_ldl_factor_ex.default", "geqrf.default"),
        ),
        (2,),
    ),
    "cholesky_solve.default": (2, 2),
    "linalg_solve_triangular.default": (2, 2),
    "triangular_solve.default": (2, 2),
    "_linalg_solve_ex.default": (2, 2),
    "linalg_lu_solve.default": (2, 1, 2),
    "lu_unpack.default": (2, 1),
    "linalg_householder_product.default": (2, 1),
    "ormqr.default": (2, 1, 2),
}


def _rule(core: tuple[int, ...]) -> Any:
    def rule(p: Padder, *args: Any) -> Any:
        cores = iter(core)
        given, first = list(args), None
        for i, x in enumerate(args):
            if not isinstance(x, Padded):
                continue
            lead = len(x.dims) - next(cores)
            inner = range(max(lead, 0), len(x.dims))
            if x.padded_in(inner) or lead < 0:
                raise Refused("a matrix is padded", [x.dims[d].size for d in inner] or x.sizes)
            given[i] = _regular(p, p.plainly(x), lead)
            batch = given[i].dims[:lead]
            first = batch if first is None else first
            if batch != first:
                raise Refused("its operands have different batches")
        made, lead = p.again(*given), len(first or ())
        dims = [None if out is None else [*(first or ()), *dims_of(out[lead:])] for out in p.outs()]
        if any(
            out is not None and tuple(out[:lead]) != tuple(d.size for d in first or ())
            for out in p.outs()
        ):
            raise Refused("a result is not of the batch")
        several = isinstance(made.meta["val"], (tuple, list))
        return p.give_all(made, dims) if several else p.give(made, dims[0] or ())

    return rule


def _regular(p: Padder, x: Padded, lead: int) -> Padded:
    """`x` with unit matrices in the padding of the batch; of pivots, with the first row."""
    batch = [d for d in range(lead) if x.dims[d].is_padded]
    if not batch:
        return x
    if len(x.dims) - lead < 2:
        return p.masked(x, batch, 0 if x.value.is_floating_point() or x.value.is_complex() else 1)
    rows, columns = x.value.shape[-2:]
    options = {"dtype": x.value.dtype, "device": x.value.device}
    unit = p.emit(aten.eye.m, rows, columns, **options)
    return p.give(p.emit(aten.where.self, p.mask(x, batch), x, unit), x.dims)


for _name, _counts in _CORE.items():
    pads(f"aten.{_name}")(_rule(_counts))


@pads(aten._fft_c2c.default, aten._fft_r2c.default, aten._fft_c2r.default)
def fourier(p: Padder, x: Padded, dim: Any, *rest: Any) -> Padded:
    """Over dimensions that are not padded."""
    dims = [d % len(x.dims) for d in dim]
    if x.padded_in(dims):
        raise Refused("a signal is padded", [x.dims[d].size for d in dims])
    out = p.out()
    kept = [each if d not in dims else dims_of([out[d]])[0] for d, each in enumerate(x.dims)]
    return p.give(p.again(x, dim, *rest), kept)
