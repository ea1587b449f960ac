"""What is small before or after one of PyTorch's kernels is no program."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import xla_dynamo.compat  # noqa: F401  (the xla device)
from tests.programs import run


class Residual(nn.Module):
    """Blocks as ResNet's have them; the last convolution's norm comes before a mean."""

    def __init__(self, norm: type[nn.Module], width: int = 32, groups: int = 1) -> None:
        super().__init__()
        self.convolutions = nn.ModuleList(
            nn.Conv2d(width, width, 3, padding=1, groups=groups, bias=False) for _ in range(4)
        )
        arguments = (8, width) if norm is nn.GroupNorm else (width,)
        self.norms = nn.ModuleList(norm(*arguments) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        for i in (0, 2):
            y = F.relu(self.norms[i](self.convolutions[i](x)))
            y = self.norms[i + 1](self.convolutions[i + 1](y))
            x = F.relu(y + x) if i == 0 else F.silu(y + x)
        return x.square().mean()


@pytest.mark.parametrize("norm", [nn.BatchNorm2d, nn.GroupNorm])
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_a_network_infers_like_eager_without_a_program(
    norm: type[nn.Module], memory_format: torch.memory_format, launches: list[str]
) -> None:
    network = Residual(norm).eval()
    x = torch.randn(4, 32, 12, 12).to(memory_format=memory_format)
    with torch.no_grad():
        for parameter in (*network.parameters(), *network.buffers()):
            if parameter.is_floating_point():
                parameter.uniform_(0.1, 0.2)
        want = network(x)
        got = torch.compile(network, backend="xla")(x)
    torch.testing.assert_close(got, want)
    assert launches == []


@pytest.mark.parametrize("norm", [nn.BatchNorm2d, nn.GroupNorm])
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_a_network_trains_like_eager(
    norm: type[nn.Module], memory_format: torch.memory_format
) -> None:
    torch.manual_seed(0)
    eager, ours = Residual(norm), Residual(norm)
    ours.load_state_dict(eager.state_dict())
    for network in (eager, ours):
        network.to(memory_format=memory_format)
    compiled = torch.compile(ours, backend="xla")
    x = torch.randn(4, 32, 12, 12).to(memory_format=memory_format)
    for _ in range(2):
        losses = []
        for network, function in ((eager, eager), (ours, compiled)):
            loss = function(x)
            losses.append(loss.detach())
            loss.backward()
            for parameter in network.parameters():
                parameter.data -= 0.1 * parameter.grad
        torch.testing.assert_close(losses[1], losses[0])
    wanted = eager.state_dict()
    for name, got in ours.state_dict().items():
        torch.testing.assert_close(
            got, wanted[name], rtol=1e-4, atol=1e-5, msg=lambda m, n=name: f"{n}: {m}"
        )
        assert got.stride() == wanted[name].stride()


@pytest.mark.parametrize(("size", "programs"), [(12, 1), (256, 4)])
def test_what_is_large_stays_a_program(size: int, programs: int, launches: list[str]) -> None:
    network = Residual(nn.BatchNorm2d, groups=2).eval()  # whose images stay row-major
    with torch.no_grad():
        torch.compile(network, backend="xla")(torch.randn(1, 32, size, size))
    assert len(launches) == programs


@pytest.mark.parametrize(("approximate", "programs"), [("none", 0), ("tanh", 1)])
def test_one_op_alone_is_pytorchs_whatever_its_size(
    approximate: str, programs: int, launches: list[str]
) -> None:
    """But for GELU by tanh, which PyTorch takes four times as long for."""
    first, second = (nn.Conv2d(32, 32, 3, groups=2) for _ in range(2))

    def network(x: Tensor) -> Tensor:
        return second(F.gelu(first(x), approximate=approximate)).square().mean()

    x = torch.randn(1, 32, 160, 160)
    with torch.no_grad():
        torch.testing.assert_close(torch.compile(network, backend="xla")(x), network(x))
    assert len(launches) == programs


@pytest.mark.parametrize(("size", "programs"), [(32, 0), (8, 1)])
def test_what_no_kernel_follows_is_no_program_either(
    size: int, programs: int, launches: list[str]
) -> None:
    """But where the convolution is too small for a kernel, too, all is one."""
    layer = nn.Conv2d(32, 32, 3)
    compiled = torch.compile(lambda x: layer(x.neg()).relu(), backend="xla")
    x = torch.randn(4, 32, size, size)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), layer(x.neg()).relu())
    assert len(launches) == programs


class Classifier(nn.Module):
    """A product that is small, and a loss."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(16, 32, 3, padding=1)
        self.head = nn.Linear(32, 10)

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        y = self.convolution(x).relu().mean((2, 3))
        return F.cross_entropy(self.head(y), target)


@pytest.mark.parametrize(("device", "programs"), [("cpu", 0), ("xla:0", 1)])
def test_a_classifier_and_its_loss(device: str, programs: int, launches: list[str]) -> None:
    """On the lazy device all is one step: more lies between the convolution and its gradient."""
    eager, ours = Classifier(), Classifier()
    ours.load_state_dict(eager.state_dict())
    x, target = torch.randn(8, 16, 12, 12), torch.randint(10, (8,))
    want = eager(x, target)
    want.backward()
    network = torch.compile(ours, backend="xla") if device == "cpu" else ours.to(device)
    loss = network(x.to(device), target.to(device))
    loss.backward()
    torch.testing.assert_close(loss.cpu(), want)
    for mine, other in zip(ours.parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(mine.grad.cpu(), other.grad, rtol=1e-4, atol=1e-6)
    assert len(launches) == programs


def test_programs_of_xlas_own_alone_have_all_of_it(launches: list[str]) -> None:
    network = Residual(nn.BatchNorm2d).eval()
    compiled = torch.compile(network, backend="xla", options={"cpu_kernels": "xla"})
    x = torch.randn(4, 32, 12, 12)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), network(x))
    assert len(launches) == 1


def test_other_ops_between_are_a_program(launches: list[str]) -> None:
    first, second = nn.Conv2d(32, 32, 3), nn.Conv2d(32, 32, 3)
    compiled = torch.compile(lambda x: second(first(x).sin()), backend="xla")
    x = torch.randn(4, 32, 12, 12)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), second(first(x).sin()))
    assert len(launches) == 1


def test_what_is_returned_has_the_strides_of_eager() -> None:
    first, second = nn.Conv2d(32, 32, 3), nn.Conv2d(32, 32, 3)

    def compute(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y = first(x).relu()
        return y, y.detach(), second(y + 1)

    x = torch.randn(4, 32, 12, 12).to(memory_format=torch.channels_last)
    for layer in (first, second):
        layer.to(memory_format=torch.channels_last)
    for got, want in zip(torch.compile(compute, backend="xla")(x), compute(x), strict=True):
        torch.testing.assert_close(got, want)
        assert got.stride() == want.stride()


class Stem(nn.Module):
    """A ConvNeXt's: the norm is over channels, and the layer after it is channels_last."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.norm = nn.Conv2d(3, 48, 4, 4), nn.LayerNorm(48)
        self.depthwise = nn.Conv2d(48, 48, 7, padding=3, groups=48)

    def forward(self, image: Tensor) -> Tensor:
        x = self.norm(self.patches(image).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        return (x + self.depthwise(x)).square().mean()


def test_a_norm_over_channels_is_no_program(launches: list[str]) -> None:
    stem, image = Stem(), torch.randn(4, 3, 128, 128)
    compiled = torch.compile(stem, backend="xla")
    with torch.no_grad():
        torch.testing.assert_close(compiled(image), stem(image))
    results = []
    for function in (stem, compiled):
        loss = function(image)
        results.append((loss, *torch.autograd.grad(loss, tuple(stem.parameters()))))
    torch.testing.assert_close(results[1], results[0], rtol=1e-4, atol=1e-5)
    assert launches == []


def test_a_view_that_is_returned_beside_what_it_views_has_its_own_memory() -> None:
    """As results of a program have: what follows may take over the memory of one."""
    first, norm, second = nn.Conv2d(3, 48, 4, 4), nn.LayerNorm(48), nn.Conv2d(48, 48, 3)

    def compute(image: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y = norm(first(image).permute(0, 2, 3, 1))
        return y * 1, y.permute(0, 3, 1, 2) * 1, second(y.permute(0, 3, 1, 2))

    image = torch.randn(4, 3, 128, 128)
    with torch.no_grad():
        results = torch.compile(compute, backend="xla")(image)
        for got, want in zip(results, compute(image), strict=True):
            torch.testing.assert_close(got, want)
        assert len({result.untyped_storage().data_ptr() for result in results}) == 3


STEP = """
import torch, xla_dynamo
from tests.backend.executable.test_small_parts import Residual
torch.manual_seed(0)
model = Residual(torch.nn.BatchNorm2d)
compiled = torch.compile(model, backend="xla", dynamic=False)
x = torch.randn(4, 32, 12, 12)
for _ in range(2):
    loss = compiled(x)
    loss.backward()
    print(loss.item(), sum(p.grad.double().sum() for p in model.parameters()).item())
print(sum(b.double().sum() for b in model.buffers()).item())
print([record.from_disk for record in xla_dynamo.compiles()])
"""


def test_a_second_process_has_the_same_numbers_from_disk(tmp_path: Path) -> None:
    first, second = (
        run("-c", STEP, XLA_DYNAMO_CACHE_DIR=str(tmp_path)).splitlines() for _ in range(2)
    )
    assert first[:3] == second[:3]
    assert first[3] == "[False, False]"
    assert second[3] == "[True, True]"


@pytest.mark.parametrize("norm", [nn.BatchNorm2d, nn.GroupNorm])
def test_a_lazy_step_has_eagers_numbers(norm: type[nn.Module]) -> None:
    torch.manual_seed(0)
    eager, ours = Residual(norm), Residual(norm)
    ours.load_state_dict(eager.state_dict())
    ours.to("xla:0")
    x = torch.randn(4, 32, 12, 12)
    want, got = eager(x), ours(x.to("xla:0"))
    want.backward()
    got.backward()
    torch.testing.assert_close(got.cpu(), want, rtol=1e-4, atol=1e-5)
    for mine, other in zip(ours.parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(mine.grad.cpu(), other.grad, rtol=1e-3, atol=1e-5)


class Decaying(nn.Module):
    """Its weights are a view of a buffer, which the forward changes in the end."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("flat", torch.randn(32 * 32 * 9) / 20)

    def forward(self, x: Tensor) -> Tensor:
        weight = self.flat.view(32, 32, 3, 3)
        for _ in range(3):
            x = F.conv2d(x, weight, padding=1).sin()
        self.flat.mul_(0.5)
        return x


def test_a_view_of_what_is_updated_later() -> None:
    eager, ours = Decaying(), Decaying()
    ours.load_state_dict(eager.state_dict())
    compiled = torch.compile(ours, backend="xla")
    x = torch.randn(4, 32, 16, 16)
    with torch.no_grad():
        for _ in range(3):
            torch.testing.assert_close(compiled(x), eager(x), rtol=1e-4, atol=1e-5)
            torch.testing.assert_close(ours.flat, eager.flat)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_numbers_of_the_default_dtype(dtype: torch.dtype) -> None:
    """The default of the call, not of the one that was compiled."""
    layer = nn.Conv2d(32, 32, 3)
    home = copy.deepcopy(layer).to("xla:0")
    x = torch.randn(4, 32, 34, 34)

    def compute(layer: nn.Module, x: Tensor) -> Tensor:
        return layer(x) * torch.arange(0.0, 32.0, device=x.device)

    before = torch.get_default_dtype()
    try:
        for default in (torch.float32, dtype):
            torch.set_default_dtype(default)
            want, got = compute(layer, x), compute(home, x.to("xla:0")).cpu()
            torch.testing.assert_close(got, want)
    finally:
        torch.set_default_dtype(before)


def test_a_class_that_there_is_not() -> None:
    network = Classifier()
    compiled = torch.compile(network, backend="xla")
    with pytest.raises(IndexError, match="Target 10 is out of bounds"):
        compiled(torch.randn(8, 16, 12, 12), torch.full((8,), 10))
