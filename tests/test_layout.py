"""Tensors as they lie in memory: inputs of any layout, results with eager's strides and dtypes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.like_eager.compiled import assert_like_eager, fallbacks


def images() -> Tensor:
    return torch.randn(2, 3, 4, 5)


LAYOUTS: dict[str, Callable[[], Tensor]] = {
    "row-major": images,
    "transposed": lambda: images().transpose(1, 3),
    "channels last": lambda: images().to(memory_format=torch.channels_last),
    "expanded": lambda: torch.randn(2, 1, 4, 1).expand(2, 3, 4, 5),
    "unaligned": lambda: torch.randn(121)[1:].view(2, 3, 4, 5),
    "strided": lambda: torch.randn(4, 3, 8, 5)[::2, :, 1::2],
    "overlapping": lambda: torch.randn(20).as_strided((2, 3, 4, 5), (1, 2, 2, 1)),
    "scalar": lambda: torch.randn(()),
    "unaligned scalar": lambda: torch.randn(3)[1],
    "empty": lambda: torch.randn(2, 0, 4, 5),
    "one element": lambda: torch.randn(1, 1, 1, 1),
}


def several(x: Tensor) -> tuple[Tensor, ...]:
    return x.sin(), x * x.sum(), x.mT if x.dim() > 1 else x + 1, x.reshape(-1) * 2


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("requires_grad", [False, True])
def test_inputs_of_any_layout(layout: str, requires_grad: bool) -> None:
    assert_like_eager(several, LAYOUTS[layout]().requires_grad_(requires_grad), calls=2)


@pytest.mark.parametrize("layout", ["transposed", "unaligned", "strided"])
def test_parameters_of_any_layout(layout: str) -> None:
    """Tensors that come again keep their array: it must follow their memory."""

    class Scale(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(LAYOUTS[layout]())

        def forward(self, x: Tensor) -> Tensor:
            return (self.weight * x).cos()

    module = Scale()
    compiled = torch.compile(module, backend="xla")
    for _ in range(3):
        torch.testing.assert_close(compiled(torch.tensor(2.0)), module(torch.tensor(2.0)))
        with torch.no_grad():
            module.weight.add_(1)


@pytest.mark.parametrize("layout", ["row-major", "channels last"])
def test_convolution_keeps_channels_last(layout: str) -> None:
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2))
    network.eval()
    assert_like_eager(network, LAYOUTS[layout]())


RESULTS: dict[str, Callable[[Tensor], Any]] = {
    "transposed": lambda x: (x + 1).transpose(0, 1),
    "permuted": lambda x: (x * 2).permute(3, 1, 0, 2),
    "product": lambda x: x.mT @ x,
    "expanded": lambda x: x.sum(0, keepdim=True).expand(5, -1, -1, -1),
    "channels last": lambda x: x.to(memory_format=torch.channels_last),
    "like": lambda x: torch.zeros_like(x.transpose(0, 3)) + 1,
    "reduced": lambda x: x.transpose(1, 2).sum(3),
    "concatenated": lambda x: torch.cat([x, x]).transpose(1, 2),
}


@pytest.mark.parametrize("name", RESULTS)
def test_results_have_strides_of_eager(name: str) -> None:
    assert_like_eager(RESULTS[name], images())


def test_part_of_a_tensor_that_nobody_gets_is_row_major() -> None:
    """Unlike eager's, so that the rest need not be computed or kept."""
    x = images()
    result = torch.compile(lambda x: (x + 1)[:, :, 1:3], backend="xla")(x)
    assert result.is_contiguous()
    assert torch.equal(result, (x + 1)[:, :, 1:3])


DTYPES = [
    *(torch.float64, torch.float32, torch.bfloat16, torch.float16),
    *(torch.int64, torch.int32, torch.int16, torch.int8),
    *(torch.uint64, torch.uint32, torch.uint16, torch.uint8),
    *(torch.bool, torch.complex64, torch.complex128),
]


def rearranged(x: Tensor) -> tuple[Tensor, ...]:
    return x.clone(), x.t().contiguous(), torch.stack([x[0], x[1]]), x.to(torch.float64)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_dtypes_pass_through(dtype: torch.dtype) -> None:
    values = torch.tensor([[0, 1, 100], [3, 2, 127]]).to(dtype)
    function = rearranged if not dtype.is_complex else lambda x: (x.clone(), x.t().contiguous())
    assert_like_eager(function, values)


def test_extreme_values_pass_through() -> None:
    floats = torch.tensor([float("nan"), float("inf"), -float("inf"), -0.0, 1e-45, 3e38])
    integers = torch.tensor([-(2**63), 2**63 - 1, 0])

    def shuffled(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return x.flip(0), y.flip(0)

    assert_like_eager(shuffled, floats, integers)


@pytest.mark.parametrize(
    "lazy", [lambda z: z.conj(), lambda z: z.imag, lambda z: z.conj().imag, lambda z: z.real]
)
def test_lazily_conjugated_and_negated_inputs(lazy: Callable[[Tensor], Tensor]) -> None:
    z = lazy(torch.randn(3, dtype=torch.complex64))
    compiled = torch.compile(lambda x: x * 2, backend="xla")
    torch.testing.assert_close(compiled(z), z * 2)


WRITTEN: dict[str, Callable[[Tensor], tuple[Tensor, Tensor]]] = {
    "transposed": lambda x: ((x.mT * 2).sin(), x.sum()),
    "channels_last": lambda x: ((x * 2).to(memory_format=torch.channels_last), x.sum()),
    "and a part of it": lambda x: ((y := x.mT * 2), y[0]),
    "and itself": lambda x: ((y := x.mT * 2), y),
    "part alone": lambda x: ((x.mT * 2)[1:], x.sum()),
    "unfolded": lambda x: ((x.mT * 2).unfold(1, 2, 2), x.sum()),
}


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("name", WRITTEN)
def test_results_that_are_differentiated_may_be_written_to(name: str, number: int) -> None:
    """Autograd refuses that for views made in its Function."""
    seen = []
    for run in (WRITTEN[name], torch.compile(WRITTEN[name], backend="xla")):
        x = torch.arange(48.0).reshape(2, 3, 2, 4).requires_grad_()
        results = run(x)
        results[number].mul_(3)
        results[0].square().sum().add(results[1].sum()).backward()
        seen.append([*results, x.grad])
    want, got = seen
    for ours, theirs in zip(got, want, strict=True):
        torch.testing.assert_close(ours, theirs)
    assert got[0].stride() == want[0].stride() or name in ("part alone", "unfolded")


def heads(x: Tensor) -> Tensor:
    return x.view(2, 8, 4, 8).transpose(1, 2)


def attended(x: Tensor, **options: Any) -> Tensor:
    q = heads(x)
    keys = q[:, ::2] if options.get("enable_gqa") else q
    return F.scaled_dot_product_attention(q, keys, keys, **options)


# Views that eager's strides allow, of what passes put other ops in the place of.
VIEWS: dict[str, Callable[[Tensor], Tensor]] = {
    "attention": lambda x: attended(x).transpose(1, 2).view(2, 8, 32),
    "causal attention": lambda x: attended(x, is_causal=True).transpose(1, 2).flatten(2),
    "attention of fewer keys": lambda x: attended(x, enable_gqa=True).transpose(1, 2).view(16, 32),
    "attention with a mask": lambda x: (
        attended(x, attn_mask=torch.ones(8, 8, dtype=torch.bool).tril())
        .transpose(1, 2)
        .view(16, 32)
    ),
    "a view in backward": lambda x: attended(x * 2).transpose(1, 2).reshape(2, 8, 32) * x,
    "log_softmax": lambda x: x.transpose(1, 2).log_softmax(1).view(2, -1),
    "slice at a tensor": lambda x: (
        x.permute(2, 0, 1).narrow(1, torch.tensor(1), 1).permute(1, 2, 0).view(8, 32)
    ),
}


@pytest.mark.parametrize("name", VIEWS)
def test_views_where_another_size_changes(name: str) -> None:
    def function(x: Tensor, z: Tensor) -> Tensor:
        y = VIEWS[name](x)
        return (y * torch.linspace(0, 1, y.numel(), dtype=y.dtype).view_as(y)).sum() + z.sum()

    compiled = torch.compile(function, backend="xla", fullgraph=True)
    x = torch.randn(2, 8, 32, dtype=torch.float64, requires_grad=True)
    for size in (3, 5, 6):
        z = torch.ones(size, dtype=torch.float64)
        results = [f(x, z) for f in (compiled, function)]
        torch.testing.assert_close(*results)
        torch.testing.assert_close(*(torch.autograd.grad(y, x) for y in results))
    assert fallbacks() == {}
