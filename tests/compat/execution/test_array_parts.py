"""Windows of the lazy device with PyTorch's kernels between their parts: each is one program."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch_xla.core.xla_model as xm
import torch_xla.debug.metrics as met
from torch import Tensor, nn
from torch.fx import Node
from torch.nn import functional as F

import xla_dynamo
from tests.like_eager.lazy import XLA
from xla_dynamo.backend.executable import torch_kernels
from xla_dynamo.backend.runtime import transfers
from xla_dynamo.compat.execution import program_cache, sync
from xla_dynamo.compat.recording import pending
from xla_dynamo.compat.values.values import value_of

LARGE = (
    "convolution",
    "convolution_backward",
    "native_batch_norm_backward",
    "lstm_layer",
    "lstm_layer_backward",
)


class Network(nn.Module):
    """The second convolution has its channels last, as LayerNorm wants them."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 32, 3, padding=1)
        self.norm = nn.BatchNorm2d(32)
        self.depthwise = nn.Conv2d(32, 32, 9, padding=4, groups=32)
        self.layer_norm = nn.LayerNorm(32)
        self.head = nn.Linear(32, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(self.norm(self.first(x)).relu(), 2)
        y = self.layer_norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        return self.head((x + self.depthwise(y)).mean((2, 3)))


def batch() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(4, 3, 48, 48, generator=generator)
    return x, torch.randint(4, (4,), generator=generator)


def train(
    network: nn.Module, device: str, after_step: Callable[[list[Tensor]], object] = len
) -> list[float]:
    """Losses of steps with momentum; the gradients stay alive, as in most scripts.

    after_step: is given what the optimizer has updated.
    """
    network.to(device)
    x, labels = (tensor.to(device) for tensor in batch())
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9, weight_decay=0.01)
    losses = []
    for _ in range(4):
        optimizer.zero_grad()
        loss = F.cross_entropy(network(x), labels)
        loss.backward()
        xm.optimizer_step(optimizer, barrier=device != "cpu")
        losses.append(loss.detach())
        momenta = [state["momentum_buffer"] for state in optimizer.state.values()]
        after_step([*network.parameters(), *momenta])
    return [loss.item() for loss in losses]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, bool]]:
    """The kernels of what is large, their threads, and if channels are last."""
    found: list[tuple[str, int, bool]] = []
    original = torch_kernels.kernel

    def kernel(node: Node) -> Callable[..., Any]:
        compute, name = original(node), str(node.target).split(".")[1]
        if name not in LARGE:
            return compute

        def noted(*arguments: Any) -> Any:
            is_last = not arguments[0].is_contiguous()
            found.append((name, threading.get_ident(), is_last))
            return compute(*arguments)

        return noted

    monkeypatch.setattr(torch_kernels, "kernel", kernel)
    return found


def test_a_loop_trains_like_eager_in_one_program_a_step(calls: list[tuple[str, int, bool]]) -> None:
    torch.manual_seed(0)
    eager = Network()
    lazy = copy.deepcopy(eager)
    met.clear_all()
    addresses: list[list[int]] = []

    def note(updated: list[Tensor]) -> None:
        addresses.append([transfers.pointer(value_of(tensor).array) for tensor in updated])

    want, got = train(eager, "cpu"), train(lazy, "xla", note)
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
    for (name, x), y in zip(eager.state_dict().items(), lazy.state_dict().values(), strict=True):
        torch.testing.assert_close(
            y.cpu(), x, rtol=1e-4, atol=1e-5, msg=lambda m, n=name: f"{n}: {m}"
        )
    assert addresses[-2] == addresses[-1]  # new values have the memory of the old ones
    main = threading.get_ident()
    assert {thread for _, thread, _ in calls} == {main}
    assert [name for name, _, _ in calls] == 4 * [
        "convolution",
        "convolution",
        "convolution_backward",
        "native_batch_norm_backward",
        "convolution_backward",
    ]
    assert [is_last for _, _, is_last in calls[:2]] == [True, True]
    assert met.counter_value("UncachedCompile") == 2  # the second step has momenta
    assert met.counter_value("ExecuteComputation") == 4


def test_a_value_that_is_read_in_the_middle() -> None:
    weight, x = torch.randn(64, 3, 5, 5), batch()[0]

    def compute(weight: Tensor, x: Tensor) -> Tensor:
        y = F.conv2d(x, weight).relu()
        scale = y.mean().item()
        weight.sub_(scale)
        return F.conv2d(x, weight).sum() + scale

    want = compute(weight.clone(), x)
    torch.testing.assert_close(compute(weight.to(XLA), x.to(XLA)).cpu(), want, rtol=1e-4, atol=1e-2)


def test_an_lstm_whose_loss_is_read_before_backward(calls: list[tuple[str, int, bool]]) -> None:
    """What oneDNN keeps for the gradient is a value of the device between two windows."""
    layer = nn.LSTM(64, 128, batch_first=True)
    x = torch.linspace(-1, 1, 16 * 8 * 64).reshape(16, 8, 64)
    weights = []
    for device in ("cpu", "xla"):
        own = copy.deepcopy(layer).to(device)
        loss = own(x.to(device))[0].square().mean()
        assert loss.item() > 0
        loss.backward()
        weights.append([parameter.grad.cpu() for parameter in own.parameters()])
    torch.testing.assert_close(weights[1], weights[0])
    assert [name for name, _, _ in calls] == ["lstm_layer", "lstm_layer_backward"]


class Words(nn.Module):
    """An LSTM, whose kernel's result has the words first in memory, before a product."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(64, 128, batch_first=True)
        self.head = nn.Linear(128, 2000)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.lstm(x)[0]).square().mean()


class Patches(nn.Module):
    """A convolution, whose maps become rows before a product."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 128, 5)
        self.head = nn.Linear(128, 512)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.patches(x).permute(0, 2, 3, 1)).square().mean()


@pytest.mark.parametrize(
    ("network", "shape"), [(Words, (16, 64, 64)), (Patches, (8, 3, 32, 32))], ids=["words", "maps"]
)
def test_a_view_of_what_a_kernel_gave(
    network: type[nn.Module], shape: tuple[int, ...], calls: list[tuple[str, int, bool]]
) -> None:
    """The trace knows it as row-major, which the kernel's result is not."""
    module, x = network(), torch.randn(shape)
    gradients = []
    for device in ("cpu", "xla"):
        own = copy.deepcopy(module).to(device)
        own(x.to(device)).backward()
        xm.mark_step()
        gradients.append([parameter.grad.cpu() for parameter in own.parameters()])
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-3, atol=1e-5)
    assert calls


def test_results_that_views_or_arguments_are() -> None:
    weight, x = torch.randn(32, 3, 5, 5), batch()[0]

    def compute(weight: Tensor, x: Tensor) -> list[Tensor]:
        turned = weight.flip(2).transpose(2, 3)
        y = F.conv2d(x, turned)
        return [y, y.permute(0, 2, 3, 1), turned, weight.transpose(0, 1), y[:, :2], x.sum(), weight]

    want = compute(weight, x)
    weight_there = weight.to(XLA)
    got = compute(weight_there, x.to(XLA))
    xm.mark_step()
    weight.add_(1)
    weight_there.add_(1)
    xm.mark_step()
    for one, other in zip(got, want, strict=True):
        torch.testing.assert_close(one.cpu(), other, rtol=1e-4, atol=1e-4)
        assert one.stride() == other.stride()


def test_pure_xla_has_no_kernels(calls: list[tuple[str, int, bool]]) -> None:
    x, weight = batch()[0], torch.randn(64, 3, 5, 5)
    sync.set_option("cpu_kernels", "xla")
    try:
        got = F.conv2d(x.to(XLA), weight.to(XLA)).cpu()
    finally:
        sync.set_option("cpu_kernels", None)
    assert not calls
    torch.testing.assert_close(got, F.conv2d(x, weight), rtol=1e-4, atol=1e-4)


def test_a_kernel_that_fails_is_named_and_loses_its_results_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*arguments: Any) -> Any:
        raise RuntimeError("no such luck")

    monkeypatch.setitem(
        torch_kernels.onednn_lstm.KERNELS, torch.ops.aten.convolution.default, _of(fail)
    )
    x, weight = batch()[0].to(XLA), torch.randn(64, 3, 5, 5).to(XLA)
    total = x.sum()
    weight.mul_(2)
    y = F.conv2d(x, weight)
    with pytest.raises(RuntimeError, match="no such luck") as caught:
        xm.mark_step()
    notes = "\n".join(caught.value.__notes__)
    assert "aten.convolution.default" in notes
    assert Path(__file__).name in notes
    assert "cpu_kernels" in notes
    torch.testing.assert_close(total.cpu(), batch()[0].sum())
    assert weight.cpu().shape == weight.shape
    with pytest.raises(RuntimeError, match="no such luck"):
        y.cpu()


def _of(compute: Callable[..., Any]) -> Callable[[Node], Callable[..., Any]]:
    return lambda node: compute


def test_a_report_shows_a_window_as_one_program() -> None:
    x, weight = batch()[0].to(XLA), torch.randn(64, 3, 5, 5).to(XLA)
    xm.mark_step()
    with xla_dynamo.report("-") as report:
        for _ in range(3):
            F.conv2d(x.sin(), weight).relu().sum().item()
        found = report.run()
    [program] = found.programs
    assert program.runs == 3
    assert "convolution_default" in [op.name for op in program.graph]


def test_parts_come_back_from_disk_as_one_program() -> None:
    x, weight = batch()[0].to(XLA), torch.randn(64, 3, 7, 7).to(XLA)

    def total() -> float:
        return F.dropout(F.conv2d(x.sin(), weight).relu(), 0.5).mean().item()

    results = []
    for _ in range(2):
        program_cache._runs.clear()
        for trace in pending.traces():
            trace.forget_programs()
        xla_dynamo.reset_metrics()
        torch.manual_seed(3)
        results.append(total())
        [record] = xla_dynamo.compiles()
        assert record.from_disk == (len(results) == 2)
    assert results[0] == results[1]


class Images(nn.Module):
    """Convolutions of many pixels, whose results lie with channels last."""

    def __init__(self) -> None:
        super().__init__()
        self.convolutions = nn.Sequential(
            *(nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.SiLU()) for _ in range(4)),
            nn.MaxPool2d(2),
        )
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.convolutions(x.repeat(1, 3, 2, 2)[:, :8]).mean((2, 3)))


def test_images_with_channels_last() -> None:
    torch.manual_seed(0)
    eager = Images()
    ours = copy.deepcopy(eager)
    record = xla_dynamo.passes().get("lay_images_out")
    before = record.changed if record is not None else 0
    torch.testing.assert_close(train(ours, XLA), train(eager, "cpu"))
    assert xla_dynamo.passes()["lay_images_out"].changed > before
    for mine, theirs in zip(ours.parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(mine.cpu(), theirs, rtol=1e-4, atol=1e-5)
        assert mine.stride() == theirs.stride()
