"""Copies of samples, what running them gives, and how two such results are compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

Arguments = tuple[Any, tuple[Any, ...], dict[str, Any]]


@dataclass(frozen=True)
class Values:
    """What one sample gave: results, mutated arguments, and gradients (None: no backward)."""

    results: Any
    arguments: Any
    gradients: tuple[torch.Tensor | None, ...] | None = None


def arguments(sample: Any) -> Arguments:
    """A copy of a sample's arguments: the same strides, storage and requires_grad, new memory."""
    packed = (sample.input, tuple(sample.args), dict(sample.kwargs))
    return pytree.tree_map(copy, packed)


def copy(leaf: Any) -> Any:
    if not isinstance(leaf, torch.Tensor):
        return leaf
    source = leaf.detach()
    if source.layout is torch.strided and not source.is_conj() and not source.is_neg():
        storage = source.untyped_storage().clone()
        fresh = torch.empty(0, dtype=source.dtype)
        fresh.set_(storage, source.storage_offset(), source.size(), source.stride())
    else:
        fresh = source.clone()
    return fresh.requires_grad_(leaf.requires_grad)


def caller(op: Callable[..., Any]) -> Callable[[Sequence[Arguments]], list[Any]]:
    """A function that runs `op` on the arguments of several samples."""

    def call(samples: Sequence[Arguments]) -> list[Any]:
        return [op(first, *args, **kwargs) for first, args, kwargs in samples]

    return call


def forward(function: Callable[[Any], Any], samples: Sequence[Any]) -> list[Values]:
    packed = [arguments(sample) for sample in samples]
    with torch.no_grad():
        results = function(packed)
    return [Values(*pair) for pair in zip(results, packed, strict=True)]


def backward(function: Callable[[Any], Any], samples: Sequence[Any]) -> list[Values]:
    """Results, and gradients of each sample's arguments for fixed random cotangents."""
    packed = [arguments(sample) for sample in samples]
    outputs: list[torch.Tensor] = []
    given_back: list[torch.Tensor] = []
    inputs: list[torch.Tensor] = []
    spans = []
    results = function(packed)
    for sample, given, result in zip(samples, packed, results, strict=True):
        mine = _differentiable(given)
        spans.append((len(inputs), len(inputs) + len(mine)))
        inputs += mine
        roots = _differentiable(sample.output_process_fn_grad(result))
        outputs += roots
        given_back += cotangents(roots)
    gradients = (None,) * len(inputs)
    if inputs and outputs:
        gradients = torch.autograd.grad(outputs, inputs, given_back, allow_unused=True)
    detached = pytree.tree_map_only(torch.Tensor, torch.Tensor.detach, results)
    return [
        Values(result, None, gradients[slice(*span)])
        for result, span in zip(detached, spans, strict=True)
    ]


def _differentiable(tree: Any) -> list[torch.Tensor]:
    leaves = pytree.tree_leaves(tree)
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.requires_grad]


def cotangents(outputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Random, and the same for a sample wherever it stands in a group, and for wider dtypes."""
    generator = torch.Generator().manual_seed(1)

    def draw(out: torch.Tensor) -> torch.Tensor:
        if out.layout is not torch.strided:
            return torch.ones_like(out)
        # The numbers that are drawn depend on the dtype.
        drawn = torch.complex64 if out.dtype.is_complex else torch.float32
        return torch.randn(out.shape, dtype=drawn, generator=generator).to(out.dtype)

    return [draw(out) for out in outputs]


def assert_same(actual: Any, expected: Any) -> None:
    """Structure, shapes, dtypes, and values at torch.testing's default bounds."""
    wants, spec = pytree.tree_flatten(expected)
    gots, got_spec = pytree.tree_flatten(actual)
    assert len(wants) == len(gots), f"structure {got_spec}, eager has {spec}"
    for want, got in zip(wants, gots, strict=True):
        if isinstance(want, (torch.Tensor, bool, int, float, complex)):
            torch.testing.assert_close(got, want, equal_nan=True)
        else:
            assert got == want, f"{got!r}, eager has {want!r}"


def assert_same_gradients(actual: Sequence[Any], expected: Sequence[Any]) -> None:
    """float64 to 1e-7 of the gradient's largest element, other dtypes at default bounds."""
    for number, (got, want) in enumerate(zip(actual, expected, strict=True)):
        if want is None and got is None:
            continue
        want = torch.zeros_like(got) if want is None else want  # an input without influence
        got = torch.zeros_like(want) if got is None else got
        bounds: dict[str, Any] = {}
        if want.dtype in (torch.float64, torch.complex128) and want.numel():
            finite = want.abs()[want.isfinite()]
            scale = max(1.0, finite.max().item()) if finite.numel() else 1.0
            bounds = {"rtol": 1e-7, "atol": 1e-7 * scale}
        torch.testing.assert_close(
            got, want, equal_nan=True, msg=lambda m, n=number: f"gradient {n}: {m}", **bounds
        )
