"""Images between PyTorch's convolutions, with channels last where these gain from it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import SGD

import xla_dynamo
from tests.backend.graphs import ops, traced
from tests.like_eager.compiled import assert_like_eager
from xla_dynamo.backend.graph.fx import placeholders
from xla_dynamo.backend.lowering.registry import Target
from xla_dynamo.backend.passes.contract import Context, WayIn
from xla_dynamo.backend.passes.joint.channels_last import lay_images_out

aten = torch.ops.aten
CONTEXT = Context("test", WayIn.COMPILE, Target("cpu", kernels="torch"))
PICTURES, PATCHES = torch.randn(8, 3, 128, 128), torch.randn(48, 3, 4, 4)


def changed() -> int:
    """How many graphs were laid out."""
    record = xla_dynamo.passes().get("lay_images_out")
    return record.changed if record is not None else 0


def filters(count: int, channels: int = 8, width: int = 3) -> list[Tensor]:
    return [torch.randn(channels, channels, width, width) / 9 for _ in range(count)]


def chain(x: Tensor, weights: list[Tensor]) -> Tensor:
    for weight in weights:
        x = F.relu(F.conv2d(x, weight, padding=1))
    return x


def images(channels: int = 8, size: int = 64) -> Tensor:
    return torch.randn(4, channels, size, size)


class Images(nn.Module):
    """Norms, pooling, upsampling, a residual, a flattened result and one that is an image."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, 8, 3, padding=1)
        self.more = nn.ModuleList(nn.Conv2d(8, 8, 3, padding=1) for _ in range(4))
        self.norms = nn.ModuleList([nn.BatchNorm2d(8), nn.GroupNorm(2, 8)])
        self.last = nn.Conv2d(16, 8, 3, padding=1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        whole = self.more[0](F.silu(self.norms[0](self.first(x))))
        half = self.more[1](F.max_pool2d(whole, 2)).relu()
        half = half + self.more[2](self.norms[1](half))
        whole = torch.cat((F.interpolate(half, scale_factor=2.0), self.more[3](whole)), 1)
        result = self.last(whole).sigmoid()
        return result.flatten(1).mean(1), result


@pytest.mark.parametrize("channels", [1, 3, 8])
def test_a_network(channels: int) -> None:
    before = changed()
    network, x = Images(channels), images(channels).requires_grad_()
    assert_like_eager(lambda x: network(x)[0], x)
    assert_like_eager(network, x)
    assert changed() == before + 2


def two_networks() -> list[Images]:
    networks = [Images(8), Images(8)]
    networks[1].load_state_dict(networks[0].state_dict())
    return networks


def test_inference() -> None:
    before = changed()
    eager, compiled = (each.eval() for each in two_networks())
    x = images()
    with torch.no_grad():
        expected, actual = eager(x), torch.compile(compiled, backend="xla")(x)
    assert [y.stride() for y in actual] == [y.stride() for y in expected]
    torch.testing.assert_close(actual, expected)
    assert changed() == before + 1


def test_a_whole_step() -> None:
    before = changed()
    eager, compiled = two_networks()
    x = images()
    optimizers = [SGD(each.parameters(), lr=0.1, momentum=0.9) for each in (eager, compiled)]

    @xla_dynamo.training_step(optimizers[1])
    def step(x: Tensor) -> Tensor:
        return compiled(x)[1].square().mean()

    for _ in range(3):
        loss = eager(x)[1].square().mean()
        optimizers[0].zero_grad()
        loss.backward()
        optimizers[0].step()
        torch.testing.assert_close(step(x), loss.detach())
    torch.testing.assert_close(*(list(each.parameters()) for each in (eager, compiled)))
    assert all(p.is_contiguous() for p in compiled.parameters())
    assert changed() == before + 1


def test_one_copy_there_and_one_back() -> None:
    module = traced(lambda x, *weights: chain(x, list(weights)), images(), *filters(4))
    assert lay_images_out(module.graph, CONTEXT)
    copies = module.graph.find_nodes(op="call_function", target=aten.clone.default)
    orders = [copy.kwargs["memory_format"] for copy in copies]
    assert orders == [torch.channels_last, torch.contiguous_format]
    values = [node.meta["val"] for node in module.graph.nodes if "convolution" in node.name]
    assert all(value.is_contiguous(memory_format=torch.channels_last) for value in values)


def test_a_view_that_strides_do_not_allow_is_of_a_copy() -> None:
    def rows(x: Tensor, *weights: Tensor) -> Tensor:
        return aten.view.default(chain(x, list(weights)), [4, -1]).sum(1)

    module = traced(rows, images(), *filters(4))
    assert lay_images_out(module.graph, CONTEXT)
    (view,) = module.graph.find_nodes(op="call_function", target=aten.view.default)
    assert view.args[0].target is aten.clone.default
    module.recompile()
    x, *weights = images(), *filters(4)
    torch.testing.assert_close(module(x, *weights)[0], rows(x, *weights))


class Patches(nn.Module):
    """A convolution's result as rows of channels, of images or flat."""

    def __init__(self, flat: bool) -> None:
        super().__init__()
        self.flat = flat
        self.patches = nn.Conv2d(3, 48, 4, 4)
        self.norm = nn.LayerNorm(48)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = self.patches(x)
        y = y.flatten(2).transpose(1, 2) if self.flat else y.permute(0, 2, 3, 1)
        y = self.norm(y)
        return y.square().mean(), y


@pytest.mark.parametrize("flat", [True, False])
def test_patches_are_rows(flat: bool) -> None:
    before = changed()
    model, x = Patches(flat), PICTURES.clone().requires_grad_()
    assert_like_eager(lambda x: model(x)[0], x)
    assert_like_eager(model, x)
    assert changed() == before + 2


def patches(x: Tensor, weight: Tensor) -> Tensor:
    return F.conv2d(x, weight, stride=4)


def rows_of_patches(x: Tensor, weight: Tensor) -> Tensor:
    return patches(x, weight).permute(0, 2, 3, 1).cos()


def rows_sum(x: Tensor, weight: Tensor) -> Tensor:
    return rows_of_patches(x, weight).sum()


def test_the_weight_of_patches_is_turned() -> None:
    """With images in channels last elsewhere, and random ones, too."""

    def function(x: Tensor, weight: Tensor, other: Tensor) -> Tensor:
        rows = rows_of_patches(x, weight).relu()
        images = other.permute(0, 3, 1, 2).exp()
        return (rows + torch.rand(8, 32, 32, 48) + images.permute(0, 2, 3, 1)).sum()

    module = traced(function, PICTURES, PATCHES, torch.randn(8, 32, 32, 48))
    assert lay_images_out(module.graph, CONTEXT)
    (copy,) = module.graph.find_nodes(op="call_function", target=aten.clone.default)
    assert copy.args[0] is placeholders(module.graph)[1]
    (rows,) = module.graph.find_nodes(op="call_function", target=aten.relu.default)
    assert rows.meta["val"].is_contiguous()


def strided(x: Tensor, *weights: Tensor) -> Tensor:
    return torch.as_strided(chain(x, list(weights)), (2, 2), (1, 7))


def transposed(x: Tensor, *weights: Tensor) -> Tensor:
    return chain(x, list(weights)).transpose(2, 3)


@pytest.mark.parametrize(
    ("function", "x", "weights", "why"),
    [
        (chain, images(), filters(1), "the copies cost more"),
        (chain, images(128, 4), filters(4, 128), "there are more weights than pixels"),
        (chain, images().to(memory_format=torch.channels_last), filters(4), "the user has done it"),
        (chain, images().double(), [w.double() for w in filters(4)], "measured in float32 alone"),
        (strided, images(), filters(4), "strides are read"),
        (transposed, images(), filters(4), "a result of other strides is not made"),
        (patches, PICTURES, [PATCHES], "it is read as an image"),
        (rows_of_patches, PICTURES, [PATCHES], "a result of other strides is not made"),
        (rows_of_patches, PICTURES[:1, :, :32], [PATCHES], "the copy costs more"),
        (rows_sum, PICTURES.to("meta"), [PATCHES.to("meta")], "it is of another device"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_left_alone(
    function: Callable[..., Tensor], x: Tensor, weights: list[Tensor], why: str
) -> None:
    flat = function if function is not chain else lambda x, *weights: chain(x, list(weights))
    module = traced(flat, x, *weights)
    before, calls = [node.meta.get("val") for node in module.graph.nodes], ops(module.graph)
    assert not lay_images_out(module.graph, CONTEXT), why
    assert ops(module.graph) == calls
    after = [node.meta.get("val") for node in module.graph.nodes]
    assert all(one is other for one, other in zip(before, after, strict=True))


@pytest.mark.parametrize("p", [0.0, 0.5])
def test_dropout_of_images_is_a_programs(p: float) -> None:
    """It would transpose what it takes."""
    before = changed()
    torch.compile(lambda x, weights: F.dropout(chain(x, weights), p), backend="xla")(
        images().requires_grad_(), filters(4)
    ).sum().backward()
    assert changed() == before + (p == 0.0)


def test_programs_of_xla_alone_are_as_they_were() -> None:
    before = changed()
    compiled = torch.compile(chain, backend="xla", options={"cpu_kernels": "xla"})
    x, weights = images(), filters(4)
    torch.testing.assert_close(compiled(x, weights), chain(x, weights), rtol=1e-4, atol=1e-5)
    assert changed() == before
