"""F.interpolate compiled as one op: numbers, gradients, strides and sizes of eager."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch._dynamo.backends.common import aot_autograd
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

import xla_dynamo
from tests.like_eager.compiled import assert_like_eager

MODES = {
    1: ["nearest", "nearest-exact", "linear", "area"],
    2: ["nearest", "nearest-exact", "bilinear", "bicubic", "area"],
    3: ["nearest", "nearest-exact", "trilinear", "area"],
}
IMAGE = {1: (7,), 2: (7, 6), 3: (4, 5, 6)}
HOW = (
    {"size": 5},
    {"scale_factor": 1.7},
    {"scale_factor": 0.7, "recompute_scale_factor": True},
)
FEW = ({"scale_factor": 1.1}, {"scale_factor": 2.1})  # change few sizes
CASES = [(rank, mode) for rank, modes in MODES.items() for mode in modes]


@pytest.mark.parametrize(("rank", "mode"), CASES)
def test_floats(rank: int, mode: str) -> None:
    """6 rows times 1.1 are 6 rows, copied or not: by eager's kernel."""
    x = torch.randn(2, 3, *IMAGE[rank], requires_grad=True)

    def resize(x: Tensor) -> list[Tensor]:
        return [functional.interpolate(x, mode=mode, **how).sin() for how in (*HOW, *FEW)]

    assert_like_eager(resize, x)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float64])
@pytest.mark.parametrize("antialias", [False, True])
def test_factors_that_change_one_size(mode: str, dtype: torch.dtype, antialias: bool) -> None:
    x = (torch.rand(1, 2, 5, 8, dtype=torch.float64) * 255).to(dtype)
    x = x.requires_grad_() if dtype is torch.float64 else x

    def resize(x: Tensor) -> Tensor:
        return functional.interpolate(x, scale_factor=(1.1, 1.3), mode=mode, antialias=antialias)

    assert_like_eager(resize, x)


@pytest.mark.parametrize("rank", MODES)
def test_a_batch_of_none(rank: int) -> None:
    x = torch.randn(0, 3, *IMAGE[rank], requires_grad=True)
    assert_like_eager(
        lambda x: [functional.interpolate(x, size=5, mode=mode) for mode in MODES[rank]], x
    )


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "bilinear", "bicubic"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_bytes(mode: str, dynamic: bool) -> None:
    def resize(x: Tensor) -> list[Tensor]:
        return [functional.interpolate(x, mode=mode, **how) for how in HOW]

    compiled = torch.compile(resize, backend="xla", dynamic=dynamic, fullgraph=True)
    for height, width in ((9, 6), (13, 4)):
        x = torch.randint(0, 256, (2, 3, height, width), dtype=torch.uint8)
        torch.testing.assert_close(compiled(x), resize(x), rtol=0, atol=0)


NAMES = ["upsample_nearest2d", "_upsample_nearest_exact2d", "upsample_bilinear2d"]


FAR = (0.9, 1.1)
SCALED = [
    (name, scales)
    for name in [*NAMES, "upsample_bicubic2d", "_upsample_bilinear2d_aa"]
    for scales in [(2.3, 4.7), FAR, (None, None)]
    # So far beyond the image, eager's antialiasing has no pixels, and reads what memory holds.
    if not (scales is FAR and name.endswith("_aa"))
]


@pytest.mark.parametrize(("name", "scales"), SCALED)
def test_aten_ops(name: str, scales: tuple[float | None, float | None]) -> None:
    """Scales that lead beyond the image read its last row, not the beginning of the next one."""
    x = torch.randn(2, 3, 2, 2, requires_grad=True)
    settings = () if "nearest" in name else (False,)
    functions = [getattr(where, name) for where in (torch._C._nn, torch.ops.aten)]
    assert_like_eager(lambda x: [f(x, [6, 10], *settings, *scales) for f in functions], x)


@pytest.mark.parametrize("name", [*NAMES, "upsample_bicubic2d"])
def test_aten_ops_by_factors(name: str) -> None:
    x = torch.randn(2, 3, 4, 5, requires_grad=True)
    settings = () if "nearest" in name else (False,)
    op = getattr(torch.ops.aten, name).vec
    assert_like_eager(lambda x: op(x, None, *settings, [1.7, 2.0]), x)


def test_an_index_of_a_decomposition_may_be_out_of_range() -> None:
    x = torch.arange(12.0).reshape(3, 4)
    rows, columns = torch.tensor([0, 1, 3, -1]), torch.tensor([4, 9, 1, -2])
    values = torch.tensor([1.0, 2.0, 3.0, 4.0])

    def read(x: Tensor) -> Tensor:
        return torch.ops.aten._unsafe_index(x, [rows, columns])

    def write(x: Tensor) -> Tensor:
        return torch.ops.aten._unsafe_index_put(x, [rows, columns], values)

    want = x.clone()
    want[[0, 1, 2, 2], [3, 3, 1, 2]] = values
    assert torch.compile(read, backend="xla")(x).tolist() == [3.0, 7.0, 9.0, 10.0]
    assert torch.compile(write, backend="xla")(x).tolist() == want.tolist()


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float64])
def test_antialiased(mode: str, align: bool, dtype: torch.dtype) -> None:
    x = (torch.rand(1, 2, 9, 8, dtype=torch.float64) * 255).to(dtype)

    def resize(x: Tensor) -> Tensor:
        return functional.interpolate(x, [4, 5], mode=mode, align_corners=align, antialias=True)

    assert_like_eager(resize, x.requires_grad_(x.is_floating_point()))


@pytest.mark.filterwarnings("ignore:.*deprecated")
@pytest.mark.parametrize(
    "function",
    [functional.upsample, functional.upsample_nearest, functional.upsample_bilinear],
)
def test_older_names(function: object) -> None:
    x = torch.randn(1, 2, 4, 6, requires_grad=True)
    assert_like_eager(lambda x: function(x, scale_factor=2), x)  # type: ignore[operator]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_and_16_bits(dtype: torch.dtype) -> None:
    def resize(x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype):
            wide = functional.interpolate(x, scale_factor=2, mode="bilinear")
        return wide + functional.interpolate(x.to(dtype), scale_factor=2, mode="bicubic")

    assert_like_eager(resize, torch.randn(1, 2, 5, 4, requires_grad=True))


@pytest.mark.parametrize("mode", ["nearest", "bilinear"])
def test_sizes_that_change(mode: str) -> None:
    def like(x: Tensor, y: Tensor) -> Tensor:
        return functional.interpolate(x, size=y.shape[2:], mode=mode)

    compiled = torch.compile(like, backend="xla", dynamic=True, fullgraph=True)
    for size in (8, 11, 5):
        x = torch.randn(1, 2, size, 6, requires_grad=True)
        y = torch.randn(1, 2, 9, size)
        got, want = compiled(x, y), like(x, y)
        torch.testing.assert_close(got, want)
        gradients = [torch.autograd.grad(r.square().sum(), x)[0] for r in (got, want)]
        torch.testing.assert_close(*gradients)


RESIZES = ["upsample_bilinear2d", "_upsample_bilinear2d_aa", "_upsample_nearest_exact2d"]


@pytest.mark.parametrize("name", RESIZES)
def test_aten_ops_of_sizes_that_change(name: str) -> None:
    op = getattr(torch.ops.aten, name)
    corners = () if "nearest" in name else (False,)

    def resize(x: Tensor, size: list[int]) -> list[Tensor]:
        twice = op(x, [2 * n for n in x.shape[2:]], *corners)
        return [twice, op(x, size, *corners, scale_factors=None)]  # another overload

    compiled = torch.compile(resize, backend="xla", dynamic=True, fullgraph=True)
    x = torch.randn(1, 2, 6, 5, dtype=torch.float64, requires_grad=True)
    for size in ([3, 4], [7, 3]):
        got, want = compiled(x, size), resize(x, size)
        torch.testing.assert_close(got, want)
        gradients = [torch.autograd.grad(sum(y.square().sum() for y in r), x) for r in (got, want)]
        torch.testing.assert_close(*gradients)


def test_strides_of_channels_last() -> None:
    x = torch.randn(2, 3, 4, 6).to(memory_format=torch.channels_last).requires_grad_()
    assert_like_eager(lambda x: functional.interpolate(x, scale_factor=2, mode="bilinear"), x)


def test_is_one_op_each_way() -> None:
    def step(x: Tensor) -> Tensor:
        return functional.interpolate(x, scale_factor=2, mode="bicubic")

    x = torch.randn(1, 2, 4, 6, requires_grad=True)
    with xla_dynamo.capture() as stages:
        torch.compile(step, backend="xla")(x).sum().backward()
    forward, backward = (stage.fx for stage in stages)
    assert forward.count("torch.ops.aten") == forward.count("aten.upsample_bicubic2d.default") == 1
    assert "aten.upsample_bicubic2d_backward.default" in backward
    assert "index" not in backward


def test_inside_a_checkpoint() -> None:
    def step(x: Tensor) -> Tensor:
        def block(x: Tensor) -> Tensor:
            return functional.interpolate(x.sin(), scale_factor=2, mode="bilinear")

        return checkpoint(block, x, use_reentrant=False)  # type: ignore[return-value]

    with xla_dynamo.capture() as stages:
        assert_like_eager(step, torch.randn(1, 2, 4, 6, requires_grad=True))
    assert all("_unsafe_index" not in stage.fx for stage in stages)


def test_other_backends_still_take_it_apart() -> None:
    seen: list[str] = []

    def resize(x: Tensor) -> Tensor:
        return functional.interpolate(x, scale_factor=2, mode="bilinear")

    def look(gm: torch.fx.GraphModule, _: object) -> object:
        seen.extend(str(node.target) for node in gm.graph.nodes)
        return gm.forward

    x = torch.randn(1, 2, 4, 6)
    torch.compile(resize, backend="xla")(x)
    torch.compiler.reset()
    traced = torch.compile(resize, backend=aot_autograd(fw_compiler=look))
    torch.testing.assert_close(traced(x), resize(x))
    assert any("_unsafe_index" in target for target in seen)


@pytest.mark.parametrize("transform", ["vmap", "grad"])
def test_under_a_function_transform(transform: str) -> None:
    def resize(x: Tensor) -> Tensor:
        return functional.interpolate(x[None], scale_factor=2, mode="bilinear").square()

    def step(x: Tensor) -> Tensor:
        if transform == "vmap":
            return torch.func.vmap(resize)(x)
        return torch.func.grad(lambda x: resize(x[0]).sum())(x)

    assert_like_eager(step, torch.randn(1, 3, 4, 5))
