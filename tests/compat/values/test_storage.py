"""Tensors that no xla device can hold: refused where they would come into being."""

from __future__ import annotations

import gc
import warnings
import weakref
from collections.abc import Callable

import pytest
import torch
import torch_xla  # noqa: F401
from torch import Tensor

from tests.like_eager.lazy import XLA, assert_same
from xla_dynamo.errors import UnsupportedOp

X = torch.eye(3)

REFUSED: dict[str, tuple[str, Callable[[Tensor], object]]] = {
    "to_sparse": ("sparse_coo", lambda x: x.to_sparse()),
    "to_sparse_csr": ("sparse_csr", lambda x: x.to_sparse_csr()),
    "to_mkldnn": ("_mkldnn", lambda x: x.to_mkldnn()),
    "sparse.to": ("sparse_coo", lambda x: X.to_sparse().to(XLA)),
    "csr.to": ("sparse_csr", lambda x: X.to_sparse_csr().to(XLA)),
    "sparse_coo_tensor": (
        "sparse_coo",
        lambda x: torch.sparse_coo_tensor(X[:2, :1].long(), X[0, :1], (2, 2), device=XLA),
    ),
    "gradient": (
        "sparse_coo",
        lambda x: (
            torch.nn.functional.embedding(
                torch.ones(2, dtype=torch.int64, device=XLA), x.requires_grad_(), sparse=True
            )
            .sum()
            .backward()
        ),
    ),
    "half of a complex": ("complex32", lambda x: x.chalf()),
    "quantize": ("qint8", lambda x: torch.quantize_per_tensor(x, 0.1, 3, torch.qint8)),
    "complex32.to": ("complex32", lambda x: X.chalf().to(XLA)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_form_that_xla_has_not_is_refused_at_the_line(name: str) -> None:
    form, make = REFUSED[name]
    x = X.to(XLA)
    pending = x * 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # what is refused has not run on the CPU
        with pytest.raises(
            UnsupportedOp, match=f"{form} tensor cannot be on an xla device"
        ) as told:
            make(x)
    assert "test_storage.py" in str(told.value)
    assert "x.to_dense()" in str(told.value) or "x.float()" in str(told.value)
    assert_same([pending, pending + 1], [X * 2, X * 2 + 1])


def test_a_refusal_leaves_no_cycle() -> None:
    """What the frames of a refused transfer hold is free without the garbage collector."""

    class Held:
        pass

    def refused() -> weakref.ref[Held]:
        held = Held()
        try:
            try:
                held.tensor = torch.zeros(2, device=XLA).expand(1 << 60, 2) + 1  # type: ignore
                held.tensor.tolist()
            except Exception as error:
                raise KeyError from error
        except KeyError:
            return weakref.ref(held)
        raise AssertionError("2 ** 61 elements fit")

    gc.disable()
    try:
        assert refused()() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("how", ["moved", "made", "of values"])
def test_jagged_tensors_are_refused_where_they_come_to_the_device(how: str) -> None:
    parts, offsets = [torch.randn(2, 4), torch.randn(3, 4)], torch.tensor([0, 2, 5])

    def bring() -> Tensor:
        if how == "of values":
            return torch.nested.nested_tensor_from_jagged(torch.cat(parts).to(XLA), offsets.to(XLA))
        device = XLA if how == "made" else "cpu"
        return torch.nested.nested_tensor(parts, layout=torch.jagged, device=device).to(XLA)

    with pytest.raises(UnsupportedOp, match=r"jagged.*offsets\(\).*test_storage.py"):
        bring()
    on_cpu = torch.nested.nested_tensor(parts, layout=torch.jagged)
    assert torch.equal(on_cpu.values(), torch.cat(parts))
