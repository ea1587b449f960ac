"""PyTorch's kernels run in the thread that calls a compiled function, between programs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.fx import Node
from torch.nn import functional as F

import xla_dynamo
from tests.backend.seen_ops import Seen
from xla_dynamo.backend.executable import torch_kernels

LARGE = {
    "aten.convolution.default",
    "aten.convolution_backward.default",
    "aten.native_batch_norm_backward.default",
}


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The threads in which kernels of what is large ran."""
    found: list[int] = []
    original = torch_kernels.kernel

    def kernel(node: Node) -> Callable[..., Any]:
        run = original(node)
        if str(node.target) not in LARGE:
            return run

        def noted(*arguments: Any) -> Any:
            found.append(threading.get_ident())
            return run(*arguments)

        return noted

    monkeypatch.setattr(torch_kernels, "kernel", kernel)
    return found


@pytest.fixture
def ops(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The ops of which kernels are made."""
    found: list[Any] = []
    original = torch_kernels.kernel
    monkeypatch.setattr(torch_kernels, "kernel", lambda n: (found.append(n.target), original(n))[1])
    return found


def _eager_and_compiled(network: nn.Module, x: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """The result and all gradients, of each."""
    results = []
    for function in (network, torch.compile(network, backend="xla")):
        given = x.clone().requires_grad_()
        out = function(given)
        gradients = torch.autograd.grad(out.square().mean(), (given, *network.parameters()))
        results.append((out, *gradients))
    return zip(*results, strict=True)


class Network(nn.Module):
    """Four equal blocks with running statistics, between them what XLA computes."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Conv2d(32, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32))
            for _ in range(4)
        )

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = x + block(x).sin()
        return x.square().mean()


def test_a_network_trains_like_eager(threads: list[int]) -> None:
    torch.manual_seed(0)
    eager, ours = Network(), Network()
    ours.load_state_dict(eager.state_dict())
    compiled = torch.compile(ours, backend="xla")
    x = torch.randn(2, 32, 24, 24)
    for _ in range(2):
        losses = [eager(x), compiled(x)]
        torch.testing.assert_close(losses[1], losses[0])
        for network, loss in zip((eager, ours), losses, strict=True):
            loss.backward()
            for parameter in network.parameters():
                parameter.data -= 0.1 * parameter.grad
    for (name, want), got in zip(
        eager.state_dict().items(), ours.state_dict().values(), strict=True
    ):
        torch.testing.assert_close(
            got, want, rtol=1e-4, atol=1e-5, msg=lambda m, n=name: f"{n}: {m}"
        )
        assert got.stride() == want.stride()
    main = threading.get_ident()
    # Two steps: four convolutions, and backward four of them and four batch norms.
    assert len(threads) == 24
    assert threads[:4] == threads[12:16] == [main] * 4


def test_all_programs_of_a_graph_are_one_compile_and_equal_ones_are_compiled_once() -> None:
    network = Network()
    compiled = torch.compile(network, backend="xla")
    with xla_dynamo.capture() as stages, torch.no_grad():
        compiled(torch.randn(2, 32, 24, 24))
    [record] = xla_dynamo.compiles()
    assert record.graph == "0/0 inference"
    assert "float32[2, 32, 24, 24]" in record.shapes
    assert record.reason == "first call"
    # What follows the second and the third kernel is alike; counters come with the first.
    assert len(stages) == 3
    assert all("custom-call" not in each.hlo for each in stages)


def test_the_modes_of_the_thread_do_not_take_part() -> None:
    """Autocast, say: which dtypes a kernel gets was decided when the function was captured."""
    x, weight = torch.randn(4, 32, 16, 16), torch.randn(64, 32, 3, 3)
    node = _node(x, weight)
    with Seen() as seen, torch.autocast("cpu"):
        result = torch_kernels.kernel(node)(*_arguments(x, weight))
    assert seen.ops == []
    assert result.dtype == torch.float32
    torch.testing.assert_close(result, F.conv2d(x, weight))


def _arguments(x: Tensor, weight: Tensor) -> tuple[Any, ...]:
    return x, weight, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1


def _node(x: Tensor, weight: Tensor) -> Node:
    graph = torch.fx.Graph()
    operands = graph.placeholder("x"), graph.placeholder("weight")
    args = (*operands, *_arguments(x, weight)[2:])
    return graph.call_function(torch.ops.aten.convolution.default, args)


def test_a_kernel_that_fails_is_named() -> None:
    x, weight = torch.randn(4, 16, 16, 16), torch.randn(64, 32, 3, 3)
    node = _node(x, weight)
    with pytest.raises(RuntimeError, match="channels") as caught:
        torch_kernels.kernel(node)(*_arguments(x, weight))
    [note] = caught.value.__notes__
    assert "aten.convolution.default" in note
    assert 'options={"cpu_kernels": "xla"}' in note


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_results_have_the_strides_of_eager(memory_format: torch.memory_format) -> None:
    layer = nn.Conv2d(32, 64, 3).to(memory_format=memory_format)
    x = torch.randn(4, 32, 16, 16).to(memory_format=memory_format).requires_grad_()
    compiled = torch.compile(layer, backend="xla")
    grad = torch.randn(4, 64, 14, 14)
    wanted, made = [], []
    for function, results in ((layer, wanted), (compiled, made)):
        out = function(x)
        results += [out, *torch.autograd.grad(out, (x, layer.weight), grad)]
    for want, got in zip(wanted, made, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)
        assert got.stride() == want.stride()


def test_a_whole_step_updates_large_parameters_in_place() -> None:
    """The last programs write into parameters that nothing reads any more."""
    layer = nn.Conv2d(64, 64, 3)
    x = torch.randn(2, 64, 12, 12)

    def step(weight: Tensor, x: Tensor) -> Tensor:
        loss = F.conv2d(x, weight).square().mean()
        weight.mul_(0.5).add_(loss)
        return loss

    want, weight = layer.weight.detach().clone(), layer.weight.detach()
    address = weight.data_ptr()
    with torch.no_grad():
        losses = step(want, x), torch.compile(step, backend="xla")(weight, x)
    torch.testing.assert_close(losses[1], losses[0])
    torch.testing.assert_close(weight, want)
    assert weight.data_ptr() == address


def test_a_report_shows_a_graph_as_one_program_with_the_time_of_all() -> None:
    layer = nn.Conv2d(32, 64, 3)
    compiled = torch.compile(lambda x: layer(x.sin()).sum(), backend="xla")
    x = torch.randn(4, 32, 16, 16)
    with xla_dynamo.report("-") as report, torch.no_grad():
        for _ in range(3):
            compiled(x)
        run = report.run()
    [program] = run.programs
    assert (program.name, program.runs) == ("0/0 inference", 3)
    assert program.compiling > 0
    assert "convolution" in [op.name for op in program.graph]
    assert any("cpu" in device for device in run.devices)


def test_sizes_that_change() -> None:
    layer = nn.Conv2d(32, 64, 3)
    compiled = torch.compile(lambda x: layer(x).relu().sum((2, 3)) + x.shape[0], backend="xla")
    for rows in (4, 5, 6):
        x = torch.randn(rows, 32, 16, 16)
        want = layer(x).relu().sum((2, 3)) + rows
        torch.testing.assert_close(compiled(x), want, rtol=1e-4, atol=1e-3)
    assert [record.shapes[-1] for record in xla_dynamo.compiles()] == [
        f"float32[{rows}, 32, 16, 16]" for rows in (4, 5, 6)
    ]


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_large_group_norms_beside_convolutions_are_kernels(
    memory_format: torch.memory_format, dtype: torch.dtype, ops: list[Any]
) -> None:
    torch.manual_seed(1)  # of seed 0, pooling meets two pixels that are equal but for rounding
    groups = 16 if dtype == torch.float64 else 1  # of float64, convolutions of groups are left
    first, norm, second = (
        nn.Conv2d(32, 64, 3, padding=1, groups=groups),
        nn.GroupNorm(8, 64),
        nn.Conv2d(64, 64, 3, groups=groups),
    )
    network = nn.Sequential(first, norm, nn.SiLU(), nn.MaxPool2d(2), second)
    network.to(dtype).to(memory_format=memory_format)
    x = torch.randn(8, 32, 32, 32, dtype=dtype).to(memory_format=memory_format)
    for want, got in _eager_and_compiled(network, x):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
        assert got.stride() == want.stride()
    assert ops.count(torch.ops.aten.native_group_norm.default) == 1
    assert ops.count(torch.ops.aten.native_group_norm_backward.default) == 1


class NarrowBlock(nn.Module):
    """A ConvNeXt's: its norm is of what a convolution gives, its products follow."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.spread = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.spread(x).permute(0, 2, 3, 1))
        return x + self.down(F.gelu(self.up(y))).permute(0, 3, 1, 2)


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_large_layer_norms_of_what_a_kernel_gives_are_kernels(
    memory_format: torch.memory_format, ops: list[Any]
) -> None:
    network = nn.Sequential(NarrowBlock(48), NarrowBlock(48)).to(memory_format=memory_format)
    x = torch.randn(4, 48, 24, 24).to(memory_format=memory_format)
    for want, got in _eager_and_compiled(network, x):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
    assert ops.count(torch.ops.aten.native_layer_norm.default) == 2
