"""Large convolutions of programs for the CPU are PyTorch's own kernels, between or within them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import xla_dynamo.compat
from tests.backend.lowering.same_gradients import assert_same
from tests.backend.seen_ops import Seen
from xla_dynamo.backend.executable.exported import lower_exported
from xla_dynamo.backend.graph import kernel_calls
from xla_dynamo.backend.runtime import host_kernels
from xla_dynamo.config import config

BOUND = 0.03  # of bfloat16


def _assert_like_eager(function: Callable[..., torch.Tensor], *inputs: torch.Tensor) -> None:
    """Results and gradients; XLA's neighbours of the kernel round in their own way."""
    assert_same(function, torch.compile(function, backend="xla"), inputs, BOUND)


def _bias(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    bias = torch.linspace(-1, 1, weight.shape[0], dtype=x.dtype, device=x.device)
    return F.conv2d(x * 2, weight, bias, padding=1).tanh()


CASES: dict[str, tuple[Callable[..., torch.Tensor], list[int], list[int]]] = {
    "bias": (_bias, [4, 32, 16, 16], [32, 32, 3, 3]),
    "stride": (lambda x, w: F.conv2d(x, w, stride=2), [4, 32, 33, 33], [64, 32, 3, 3]),
    "groups": (lambda x, w: F.conv2d(x, w, groups=4), [4, 64, 28, 28], [64, 16, 3, 3]),
    "one channel": (lambda x, w: F.conv2d(x, w).relu(), [32, 1, 28, 28], [32, 1, 3, 3]),
    "1-d": (lambda x, w: F.conv1d(x, w, padding=2), [4, 64, 512], [64, 64, 5]),
    "3-d": (lambda x, w: F.conv3d(x, w), [1, 16, 12, 12, 12], [16, 16, 3, 3, 3]),
    "transposed": (
        lambda x, w: F.conv_transpose2d(x, w, stride=2, output_padding=1),
        [2, 64, 14, 14],
        [64, 64, 3, 3],
    ),
    "transposed input": (
        lambda x, w: F.conv2d(x.transpose(2, 3), w),
        [4, 32, 16, 20],
        [64, 32, 3, 3],
    ),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("case", CASES)
def test_like_eager(case: str, dtype: torch.dtype, calls: list[str]) -> None:
    function, size, weight_size = CASES[case]
    x = torch.randn(size).to(dtype).requires_grad_()
    weight = (torch.randn(weight_size) * 0.05).to(dtype).requires_grad_()
    _assert_like_eager(function, x, weight)
    is_left = dtype != torch.bfloat16 or torch.ops.mkldnn._is_mkldnn_bf16_supported()
    assert ("convolution_backward.default" in calls) == is_left


@pytest.mark.parametrize("case", CASES)
def test_lazily(case: str, calls: list[str]) -> None:
    function, size, weight_size = CASES[case]
    x, weight = torch.randn(size), torch.randn(weight_size) * 0.05
    xla_dynamo.compat.install()

    def lazily(*inputs: torch.Tensor) -> torch.Tensor:
        return function(*[each.to("xla") for each in inputs]).cpu()

    assert_same(function, lazily, (x.requires_grad_(), weight.requires_grad_()), BOUND)
    assert set(calls) == {"convolution.default", "convolution_backward.default"}


@pytest.mark.parametrize("case", ["bias", "3-d", "transposed"])
def test_compiled_on_the_lazy_device(case: str, calls: list[str]) -> None:
    """Such graphs are one program, which calls the kernels."""
    function, size, weight_size = CASES[case]
    x, weight = torch.randn(size), torch.randn(weight_size) * 0.05
    xla_dynamo.compat.install()
    torch._dynamo.reset()
    compiled = torch.compile(function, backend="xla")

    def there(*inputs: torch.Tensor) -> torch.Tensor:
        return compiled(*[each.to("xla") for each in inputs]).cpu()

    assert_same(function, there, (x.requires_grad_(), weight.requires_grad_()), BOUND)
    assert set(calls) == {"in convolution.default", "in convolution_backward.default"}


def test_small_ones_are_xlas(calls: list[str]) -> None:
    x, weight = torch.randn(2, 8, 8, 8).requires_grad_(), torch.randn(8, 8, 3, 3).requires_grad_()
    _assert_like_eager(lambda x, w: F.conv2d(x, w), x, weight)
    assert calls == []


@pytest.mark.parametrize("setting", ["option", "variable"])
def test_programs_of_xla_alone(
    setting: str, calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    x, weight = torch.randn(4, 32, 16, 16), torch.randn(64, 32, 3, 3)
    options: dict[str, Any] = {"cpu_kernels": "xla"}
    if setting == "variable":
        options = {}
        monkeypatch.setenv("XLA_DYNAMO_CPU_KERNELS", "xla")
        config.cache_clear()
    try:
        compiled = torch.compile(lambda x, w: F.conv2d(x, w), backend="xla", options=options)
        torch.testing.assert_close(compiled(x, weight), F.conv2d(x, weight), rtol=1e-3, atol=1e-4)
    finally:
        monkeypatch.undo()
        config.cache_clear()
    assert calls == []


def test_what_is_exported_runs_anywhere() -> None:
    model = torch.nn.Conv2d(32, 64, 3).eval()
    exported = torch.export.export(model, (torch.randn(4, 32, 16, 16),))
    text = lower_exported(exported).stablehlo
    assert "stablehlo.convolution" in text
    assert "custom_call" not in text


def test_the_thread_of_the_program_does_not_take_part() -> None:
    """XLA calls the kernel in it, where modes, autocast and autograd may be on."""
    x, weight = torch.randn(4, 32, 16, 16), torch.randn(64, 32, 3, 3).requires_grad_()
    want = F.conv2d(x, weight).detach()
    text = kernel_calls.encode(
        torch.ops.aten.convolution.default,
        (x, weight, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1),
        lambda value: isinstance(value, torch.Tensor),
    )
    result = torch.empty_like(want)
    with Seen() as seen, torch.autocast("cpu"):
        host_kernels._work(text.encode(), [x, weight], [result])
    assert seen.ops == []
    assert not result.requires_grad
    torch.testing.assert_close(result, want)


def test_a_kernel_that_fails_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(tensors: object) -> None:
        raise MemoryError("no room")

    monkeypatch.setattr(kernel_calls, "decoded", lambda call: fail)
    xla_dynamo.compat.install()
    x, weight = torch.randn(4, 32, 16, 16), torch.randn(64, 32, 3, 3)
    compiled = torch.compile(lambda x, w: F.conv2d(x, w), backend="xla")
    with pytest.raises(Exception, match=r"aten\.convolution\.default .*\(4, 32, 16, 16\).*no room"):
        compiled(x.to("xla"), weight.to("xla")).cpu()
    monkeypatch.undo()
    ours = compiled(x.to("xla"), weight.to("xla")).cpu()
    torch.testing.assert_close(ours, F.conv2d(x, weight))
