"""torch.compile(backend="xla") on tensors of a CUDA device: XLA and PyTorch share GPU and memory.

JAX_PLATFORMS=cuda,cpu python -m pytest tests/accelerator/cuda.py
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import xla_dynamo
from xla_dynamo.backend.runtime import pjrt

GPU = torch.device("cuda:0")


def compiled(function: Callable[..., object]) -> Callable[..., object]:
    return torch.compile(function, backend="xla", options={"fallback": "error"})


def test_programs_run_on_the_gpu() -> None:
    assert xla_dynamo.device().startswith("gpu/")
    assert pjrt.platform(pjrt.device("cuda")) == "cuda"


@pytest.mark.parametrize(
    "dtype",
    [
        torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex64, torch.bool,
        torch.complex128, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8,
    ],
)  # fmt: skip
def test_tensors_come_back_where_they_were(dtype: torch.dtype) -> None:
    x = torch.tensor([[1, 0, 3], [4, 5, 0]], device=GPU).to(dtype)
    doubled = compiled(lambda x: (x * x, x[:0], x.T.contiguous()))
    for _ in range(2):
        for got, wanted in zip(doubled(x), (x * x, x[:0], x.T), strict=True):
            assert got.device == GPU
            assert got.dtype is dtype
            assert torch.equal(got, wanted)


def test_results_on_both_devices() -> None:
    def both(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return x * 2, y + 1

    on_gpu, on_cpu = compiled(both)(torch.ones(3, device=GPU), torch.ones(3))
    assert (on_gpu.device.type, on_cpu.device.type) == ("cuda", "cpu")
    assert on_gpu.tolist() == on_cpu.tolist() == [2.0, 2.0, 2.0]


def test_a_cpu_tensor_among_cuda_tensors() -> None:
    scale = torch.tensor(3.0, dtype=torch.float64)
    result = compiled(lambda x: x * scale)(torch.ones(3, device=GPU))
    assert result.device == GPU
    assert result.tolist() == [3.0, 3.0, 3.0]


def test_factories_without_inputs() -> None:
    made = compiled(lambda: torch.arange(5, device=GPU) + torch.ones(5, device=GPU))()
    assert made.device == GPU
    assert made.tolist() == [1.0, 2.0, 3.0, 4.0, 5.0]


def test_results_in_other_orders_of_memory() -> None:
    x = torch.randn(2, 3, 4, 5, device=GPU).to(memory_format=torch.channels_last)
    for got, wanted in zip(
        compiled(lambda x: (x + 1, x.transpose(1, 2) * 2))(x),
        (x + 1, x.transpose(1, 2) * 2),
        strict=True,
    ):
        assert torch.equal(got, wanted)
        assert got.device == GPU
        assert got.stride() == wanted.stride()


def test_writes_in_place() -> None:
    def write(x: Tensor) -> Tensor:
        x[1:].mul_(2)
        return x.sum()

    x = torch.ones(3, device=GPU)
    assert compiled(write)(x).item() == 5
    assert x.tolist() == [1.0, 2.0, 2.0]


def test_what_pytorch_queued_before_a_call_is_seen() -> None:
    """A parameter keeps its array, and the optimizer's kernels may still be queued."""
    weight = nn.Parameter(torch.zeros(1 << 22, device=GPU))
    total = compiled(lambda: weight.sum())
    busy = torch.randn(4096, 4096, device=GPU)
    assert total().item() == 0
    for step in range(1, 30):
        for _ in range(8):
            busy = (busy @ busy).clamp(-1, 1)  # milliseconds of work, queued before the update
        with torch.no_grad():
            weight.add_(1)
        assert total().item() == step * weight.numel()


def test_freed_results_are_not_overwritten_early() -> None:
    """XLA may use the memory of a freed result again only after PyTorch's queued reads of it."""
    fill = compiled(lambda x, value: x * 0 + value)
    x, busy = torch.ones(1 << 22, device=GPU), torch.randn(4096, 4096, device=GPU)
    sums, values = [], [torch.tensor(float(v), device=GPU) for v in range(30)]
    for value in values:
        y = fill(x, value)
        for _ in range(4):
            busy = (busy @ busy).clamp(-1, 1)
        sums.append((y.view(2048, 2048) + busy[:2048, :2048] * 0).mean())
        del y
    assert [s.item() for s in sums] == [v.item() for v in values]


def test_another_stream() -> None:
    stream = torch.cuda.Stream()
    increment = compiled(lambda x: x + 1)
    x = torch.zeros(1 << 22, device=GPU)
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(50):
            x = increment(x) + 1
    torch.cuda.current_stream().wait_stream(stream)
    assert x.mean().item() == 100


def test_training_like_eager() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 4)).to(GPU)
    model, reference = model.double(), copy.deepcopy(model).double()
    x, labels = torch.randn(16, 32, device=GPU).double(), torch.arange(16, device=GPU) % 4
    losses = []
    for net, call in ((model, torch.compile(model, backend="xla")), (reference, reference)):
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
        for _ in range(10):
            optimizer.zero_grad()
            loss = F.cross_entropy(call(x), labels)
            loss.backward()
            optimizer.step()
        losses.append(loss.item())
    assert losses[0] == pytest.approx(losses[1], rel=1e-10)
    assert len(xla_dynamo.compiles()) == 2


def test_a_compiled_optimizer() -> None:
    weights = [nn.Parameter(torch.ones(8, device=GPU)) for _ in range(2)]
    for weight, step in zip(weights, (True, False), strict=True):
        optimizer = torch.optim.Adam([weight], lr=torch.tensor(0.1))
        weight.grad = torch.arange(8.0, device=GPU)
        run = torch.compile(optimizer.step, backend="xla") if step else optimizer.step
        for _ in range(5):
            run()
    torch.testing.assert_close(weights[0], weights[1])


@pytest.mark.parametrize("kind", [torch.optim.AdamW, torch.optim.SGD])
def test_a_step_as_one_program(kind: type[torch.optim.Optimizer]) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 4)).to(GPU).double()
    reference = copy.deepcopy(model)
    optimizer, other = (kind(m.parameters(), lr=1e-2) for m in (model, reference))
    x, labels = torch.randn(16, 32, device=GPU).double(), torch.arange(16, device=GPU) % 4

    @xla_dynamo.training_step(optimizer)
    def step(x: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(model(x), labels)

    before = len(xla_dynamo.compiles())
    for at in range(5):
        if at == 2:
            moved = xla_dynamo.transfers()
        loss = step(x, labels)
        other.zero_grad()
        wanted = F.cross_entropy(reference(x), labels)
        wanted.backward()
        other.step()
        torch.testing.assert_close(loss, wanted.detach(), rtol=1e-10, atol=0)
    assert len(xla_dynamo.compiles()) - before == 1
    assert xla_dynamo.transfers() == moved
    for mine, theirs in zip(model.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-12)


def test_dropout_masks_are_fresh_and_shared_with_the_backward() -> None:
    drop = compiled(lambda x: F.dropout(x, 0.5))
    x = torch.ones(10_000, device=GPU, requires_grad=True)
    first, second = drop(x), drop(x)
    assert not torch.equal(first, second)
    assert 0.45 < (first == 0).float().mean().item() < 0.55
    (grad,) = torch.autograd.grad(first.sum(), x)
    assert torch.equal(grad, first.detach())


def test_autocast_and_grad_scaler() -> None:
    torch.manual_seed(0)
    model = nn.Linear(64, 64).to(GPU)
    call = torch.compile(model, backend="xla")
    scaler, optimizer = torch.amp.GradScaler("cuda"), torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(32, 64, device=GPU)
    with torch.autocast("cuda", dtype=torch.float16):
        got, wanted = call(x), model(x)
    assert got.dtype is torch.float16
    torch.testing.assert_close(got, wanted, rtol=1e-2, atol=1e-2)
    scaler.scale(got.float().square().mean()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert all(weight.isfinite().all() for weight in model.parameters())


@torch.library.custom_op("xla_dynamo_accelerator::twice", mutates_args=())
def twice(x: Tensor) -> Tensor:
    return x * 2


twice.register_fake(torch.empty_like)


def test_an_op_that_falls_back_runs_where_its_tensors_are() -> None:
    x = torch.ones(2, 3, 4, 5, device=GPU).to(memory_format=torch.channels_last)
    with pytest.warns(xla_dynamo.FallbackWarning):
        result = torch.compile(lambda x: twice(x + 1).cos() + x, backend="xla")(x)
    assert result.device == GPU
    torch.testing.assert_close(result, (x + 1).mul(2).cos() + x)


def assert_like_eager(function: Callable[..., Tensor], *given: Tensor, rtol: float = 1e-9) -> None:
    """Values and gradients, in a whole program, against eager on the CPU in float64."""
    on_gpu = [x.to(GPU).requires_grad_(x.is_floating_point()) for x in given]
    on_cpu = [x.double() if x.is_floating_point() else x for x in given]
    on_cpu = [x.clone().requires_grad_(x.is_floating_point()) for x in on_cpu]
    results = []
    for call, inputs in ((compiled(function), on_gpu), (function, on_cpu)):
        result = call(*inputs)
        wanted = [x for x in inputs if x.requires_grad]
        grads = torch.autograd.grad(result.double().square().sum(), wanted)
        results.append([x.detach().cpu().double() for x in (result, *grads)])
    for got, wanted in zip(*results, strict=True):
        assert float((got - wanted).norm() / wanted.norm().clamp(min=1e-30)) <= rtol


TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 3e-2, torch.float16: 4e-3}


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("kind", ["plain", "causal", "bool mask", "float mask", "shared heads"])
def test_attention(dtype: torch.dtype, kind: str) -> None:
    q, k, v = (torch.randn(2, 4, 24, 16).to(dtype) for _ in range(3))
    options: dict[str, object] = {"is_causal": kind == "causal"}
    mask = torch.randn(24, 24) > -1
    if kind == "shared heads":
        k, v, options = k[:, :2], v[:, :2], {"enable_gqa": True}

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if "mask" in kind:
            given = mask.to(q.device)
            masks = given if kind == "bool mask" else given.to(q.dtype)
            return F.scaled_dot_product_attention(q, k, v, attn_mask=masks)
        return F.scaled_dot_product_attention(q, k, v, **options)

    assert_like_eager(attend, q, k, v, rtol=TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    "kind",
    ["plain", "causal", "bool mask", "float mask", "infinities", "keys", "shared heads", "crossed"],
)
def test_attention_by_cudnn(dtype: torch.dtype, kind: str) -> None:
    """Its kernel, forward and backward; the first query of a mask sees no key."""
    torch.manual_seed(0)
    q, k, v, grad = (torch.randn(2, 4, 160, 32).to(dtype) for _ in range(4))
    options: dict[str, object] = {"is_causal": kind == "causal", "enable_gqa": True}
    sees = torch.rand(2, 1, 160, 160) > 0.5
    sees[..., 0, :] = False
    masks = {
        "bool mask": sees,
        "float mask": torch.randn(1, 4, 160, 160).to(dtype),
        "infinities": torch.zeros(sees.shape).masked_fill(~sees, -torch.inf).to(dtype),
        "keys": torch.rand(2, 1, 1, 160) > 0.5,
    }
    if kind == "shared heads":
        k, v = k[:, :2], v[:, :2]
    if kind == "crossed":
        k, v = k[:, :, :136], v[:, :, :136]
    results = []
    for device, wide, choice in ((GPU, dtype, "kernel"), ("cpu", torch.float64, "eager")):
        given = [x.to(device, wide).detach().requires_grad_() for x in (q, k, v)]
        mask = masks.get(kind)
        if mask is not None:
            mask = mask.to(device) if mask.dtype is torch.bool else mask.to(device, wide)

        def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = mask) -> Tensor:
            return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, **options)

        call = attend
        if choice == "kernel":
            how = {"attention": "kernel", "fallback": "error"}
            call = torch.compile(attend, backend="xla", dynamic=False, options=how)
        out = call(*given)
        gradients = torch.autograd.grad(out, given, grad.to(device, wide))
        results.append([x.detach().cpu().double() for x in (out, *gradients)])
    for got, wanted in zip(*results, strict=True):
        wanted = wanted.nan_to_num()  # eager on a CPU, of a query without keys
        assert float((got - wanted).norm() / wanted.norm()) <= TOLERANCE[dtype]


def test_attention_with_dropout() -> None:
    q = torch.randn(2, 4, 64, 16, device=GPU, requires_grad=True)
    attend = compiled(lambda q: F.scaled_dot_product_attention(q, q, q, dropout_p=0.5))
    assert not torch.equal(attend(q), attend(q))
    attend(q).sum().backward()
    assert q.grad is not None
    assert q.grad.isfinite().all()


MODULES = {
    "LSTMCell": (lambda: nn.LSTMCell(8, 16), (4, 8)),
    "GRUCell": (lambda: nn.GRUCell(8, 16), (4, 8)),
    "RNNCell": (lambda: nn.RNNCell(8, 16), (4, 8)),
    "LSTM": (lambda: nn.LSTM(8, 16, 2, batch_first=True, bidirectional=True), (4, 9, 8)),
    "GRU": (lambda: nn.GRU(8, 16, 2), (9, 4, 8)),
    "Conv2d": (lambda: nn.Conv2d(3, 8, 3, 2, 1), (2, 3, 9, 9)),
    "ConvTranspose2d": (lambda: nn.ConvTranspose2d(3, 8, 3, 2, 1), (2, 3, 9, 9)),
    "BatchNorm2d": (lambda: nn.Sequential(nn.BatchNorm2d(3), nn.Tanh()), (4, 3, 5, 5)),
    "BatchNorm1d": (lambda: nn.Sequential(nn.BatchNorm1d(3), nn.Tanh()), (4, 3)),
    "GroupNorm": (lambda: nn.GroupNorm(2, 4), (4, 4, 5, 5)),
    "LayerNorm": (lambda: nn.LayerNorm(8), (4, 8)),
    "RMSNorm": (lambda: nn.RMSNorm(8), (4, 8)),
    "MultiheadAttention": (
        lambda: Itself(nn.MultiheadAttention(8, 2, batch_first=True)),
        (2, 5, 8),
    ),
    "Encoder": (lambda: nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True), (2, 5, 8)),
    "MaxPool2d": (lambda: nn.MaxPool2d(3, 2, 1), (2, 3, 9, 9)),
    "AdaptiveAvgPool2d": (lambda: nn.AdaptiveAvgPool2d(4), (2, 3, 9, 9)),
    "Upsample": (lambda: nn.Upsample(scale_factor=2, mode="bilinear"), (2, 3, 4, 4)),
    "Embedding": (lambda: Tokens(nn.Embedding(10, 8)), (4, 8)),
}


class Itself(nn.Module):
    """Attention of a sequence to itself."""

    def __init__(self, attention: nn.Module) -> None:
        super().__init__()
        self.attention = attention

    def forward(self, x: Tensor) -> Tensor:
        return self.attention(x, x, x, need_weights=False)[0]


class Tokens(nn.Module):
    """Rows of a table, scaled by the input."""

    def __init__(self, table: nn.Module) -> None:
        super().__init__()
        self.table = table

    def forward(self, x: Tensor) -> Tensor:
        return self.table(torch.arange(4, device=x.device)) * x


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize("channels_last", [False, True])
def test_modules(name: str, channels_last: bool) -> None:
    make, shape = MODULES[name]
    torch.manual_seed(0)
    module, x = make().double(), torch.randn(shape).double()
    if channels_last and x.dim() == 4:
        module, x = (each.to(memory_format=torch.channels_last) for each in (module, x))
    there = copy.deepcopy(module).to(GPU)
    results = []
    for call, net, given in (
        (torch.compile(there, backend="xla", options={"fallback": "error"}), there, x.to(GPU)),
        (module, module, x),
    ):
        given = given.clone().requires_grad_()
        out = call(given)
        while isinstance(out, tuple):
            out = out[0]
        out.square().sum().backward()
        state = [*net.parameters()]
        values = [out, given.grad, *(p.grad for p in state), *net.buffers()]
        results.append([v.detach().cpu() for v in values])
    for got, wanted in zip(*results, strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-9, atol=1e-9)


def test_grids() -> None:
    def warp(theta: Tensor, x: Tensor) -> Tensor:
        grid = F.affine_grid(theta, [2, 3, 4, 4], align_corners=True)
        return F.grid_sample(x, grid, align_corners=True)

    theta = torch.randn(2, 2, 3).double()
    assert_like_eager(warp, theta, torch.randn(2, 3, 5, 5).double(), rtol=1e-9)


def test_losses_under_autocast() -> None:
    logits, labels = torch.randn(8, 5, device=GPU), torch.arange(8, device=GPU) % 5
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = compiled(lambda x: F.cross_entropy((x @ x.T)[:, :5], labels))(logits)
        wanted = F.cross_entropy((logits @ logits.T)[:, :5], labels)
    torch.testing.assert_close(loss, wanted, rtol=1e-2, atol=1e-2)


def test_memory_is_left_to_pytorch() -> None:
    compiled(lambda x: x @ x)(torch.ones(2048, 2048, device=GPU))
    free, total = torch.cuda.mem_get_info()
    assert free > total / 2


def test_sizes_of_buckets() -> None:
    """Padded and cut on the GPU, which is told the sizes of each call and no more."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4)).to(GPU)
    theirs = copy.deepcopy(model)
    padded = torch.compile(model, backend="xla", options={"bucket": 16, "fallback": "error"})
    before, sent = len(xla_dynamo.compiles()), xla_dynamo.transfers()
    for batch in (9, 13, 16, 11):
        x = torch.randn(batch, 16, device=GPU)
        torch._dynamo.mark_dynamic(x, 0)
        ours, expected = padded(x), theirs(x)
        torch.testing.assert_close(ours, expected)
        ours.square().mean().backward()
        expected.square().mean().backward()
        for mine, other in zip(model.parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(mine.grad, other.grad, rtol=1e-4, atol=1e-5)
    assert len(xla_dynamo.compiles()) - before == 2  # forward and backward
    now = xla_dynamo.transfers()
    assert now.bytes_to_host == sent.bytes_to_host
    assert now.bytes_to_device - sent.bytes_to_device < 1000
