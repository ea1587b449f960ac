"""What a script sees of a tensor on the device: repr, reads, devices, factories, mixes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch_xla.core.xla_model as xm
from torch import Tensor

import xla_dynamo
from tests.compat.loops import counting
from tests.like_eager.lazy import XLA, assert_lockstep, assert_same

X = torch.arange(6.0).reshape(2, 3)


def test_repr() -> None:
    x = X.to(XLA)
    assert repr(x) == "tensor([[0., 1., 2.],\n        [3., 4., 5.]], device='xla:0')"
    assert repr(x[0, 1].int()) == "tensor(1, device='xla:0', dtype=torch.int32)"
    assert repr(x.clone().requires_grad_()).endswith("device='xla:0', requires_grad=True)")
    assert repr((x.clone().requires_grad_() * 2)[0]).endswith("grad_fn=<SelectBackward0>)")
    assert repr(torch.empty(0, device=XLA)) == "tensor([], device='xla:0')"
    assert repr(torch.nn.Parameter(x[0])).startswith("Parameter containing:\ntensor([0., 1., 2.]")
    assert f"{x.sum():.2f} {x.max()}" == "15.00 5.0"


def test_it_is_a_plain_tensor_of_an_xla_device() -> None:
    x = X.to(XLA)
    assert type(x) is Tensor
    assert (x.is_xla, x.is_cuda, x.is_cpu, x.is_meta) == (True, False, False, False)
    assert (x.device.type, x.device.index, x.get_device()) == ("xla", 0, 0)
    assert x.device == xm.xla_device()
    assert x.type() == "torch.xla.FloatTensor"
    assert x.stride() == (3, 1)
    assert x.to(XLA) is x
    assert x.cpu().device.type == "cpu"
    assert X.is_xla is False


READS: dict[str, Callable[[Tensor], Any]] = {
    "tolist": lambda x: x.tolist(),
    "item": lambda x: x.sum().item(),
    "float": lambda x: float(x[1, 1]),
    "int": lambda x: int(x[1, 1]),
    "complex": lambda x: complex(x[1, 1]),
    "index": lambda x: [10, 20, 30][x[0, 1].long()],
    "bool": lambda x: bool(x.sum() > 3),
    "if": lambda x: 1 if x.max() > 4 else 0,
    "while": lambda x: next(i for i in range(9) if not (x.sum() > i * 3)),
    "len": len,
    "iter": lambda x: [row.tolist() for row in x],
    "unpack": lambda x: [float(a) for row in x for a in row],
    "in": lambda x: (3.0 in x, 9.0 in x),
    "equal": lambda x: (torch.equal(x, x.clone()), torch.equal(x, x + 1)),
    "allclose": lambda x: (torch.allclose(x, x + 1e-9), torch.allclose(x, x + 1)),
    "all": lambda x: (bool((x >= 0).all()), bool((x > 0).all()), bool((x > 4).any())),
    "is_nonzero": lambda x: x[0, 1].is_nonzero(),
    "numpy": lambda x: x.cpu().numpy().tolist(),
    "max": lambda x: max(x.flatten()).item(),
    "sorted": lambda x: [float(v) for v in sorted(-x.flatten())],
    "round": lambda x: round(x[1, 2].item(), 1),
    "any is nan": lambda x: torch.isnan(x).any().item(),
    "numel": lambda x: (x.numel(), x.dim(), x.shape, x.nbytes, x.element_size()),
    "dtype": lambda x: (x.dtype, x.is_floating_point(), x.is_contiguous(), x.is_leaf),
}


@pytest.mark.parametrize("read", READS)
def test_reads(read: str) -> None:
    assert READS[read](X.to(XLA)) == READS[read](X)
    assert READS[read](X.to(XLA) * 1) == READS[read](X * 1)


def test_hash_and_identity() -> None:
    x, y = X.to(XLA), X.to(XLA)
    assert x in {x: 1}
    assert y not in {x: 1}
    with pytest.raises(TypeError, match="can't convert xla:0 device type tensor to numpy"):
        x.numpy()


def test_nothing_runs_until_a_value_is_needed() -> None:
    with counting() as counts:
        x = X.to(XLA)
        y = (x * 2 + 1).relu().sum()
        _ = y.shape, y.dtype, y.device, x[0].numel()
    assert counts.launches == 0
    with counting() as counts:
        assert y.item() == 36
    assert counts.launches == 1
    with counting() as counts:
        assert y.item() == 36
        assert y.tolist() == 36
    assert counts.launches == 0
    with counting() as counts:
        z = y + 1
        xm.mark_step()
        xm.mark_step()
        assert z.item() == 37
    assert counts.launches == 1


FACTORIES: dict[str, Callable[[Any], Any]] = {
    "zeros": lambda d: torch.zeros(2, 3, device=d),
    "ones": lambda d: torch.ones((2, 3), dtype=torch.int64, device=d),
    "full": lambda d: [torch.full((2,), v, device=d) for v in (1, 2.5, True, 0, 1j)],
    "empty": lambda d: torch.empty(2, 0, device=d),
    "arange": lambda d: [torch.arange(*a, device=d) for a in [(5,), (1, 5), (0, 1, 0.25)]],
    "linspace": lambda d: [
        torch.linspace(0, 1, 5, device=d),
        torch.logspace(0, 2, 3, dtype=torch.float64, device=d),
    ],
    "eye": lambda d: [torch.eye(3, device=d), torch.eye(2, 3, dtype=torch.bool, device=d)],
    "tri": lambda d: [torch.tril_indices(3, 3, device=d), torch.triu_indices(3, 2, device=d)],
    "tril": lambda d: torch.tril(torch.ones(3, 3, device=d)),
    "scalar": lambda d: torch.scalar_tensor(2.0, device=d),
    "tensor": lambda d: torch.tensor([[1, 2], [3, 4]], device=d),
    "as_tensor": lambda d: torch.as_tensor(np.arange(3), device=d),
    "meshgrid": lambda d: torch.meshgrid(
        torch.arange(2, device=d), torch.arange(3, device=d), indexing="ij"
    ),
    "cartesian": lambda d: torch.cartesian_prod(
        torch.arange(2, device=d), torch.arange(3, device=d)
    ),
    "one_hot": lambda d: torch.nn.functional.one_hot(torch.arange(3, device=d), 4),
    "hann": lambda d: torch.hann_window(8, device=d),
    "default device": lambda d: _under(d, lambda: torch.ones(2) + torch.arange(2)),
    "complex": lambda d: torch.complex(torch.ones(2, device=d), torch.zeros(2, device=d)),
    "dtype": lambda d: [torch.zeros(1, dtype=t, device=d) for t in (torch.float16, torch.uint8)],
}


def _under(device: Any, make: Callable[[], Tensor]) -> Tensor:
    with torch.device(device):
        return make()


@pytest.mark.parametrize("factory", FACTORIES)
def test_factories(factory: str) -> None:
    assert_same(FACTORIES[factory](XLA), FACTORIES[factory]("cpu"))


def test_factories_like_another_tensor() -> None:
    def make(x: Tensor) -> list[Tensor]:
        made = [torch.zeros_like(x), torch.ones_like(x), torch.full_like(x, 2)]
        made += [x.new_zeros(2), x.new_ones(3), x.new_full((1,), 4), x.new_tensor([1.5])]
        made += [torch.empty_like(x).fill_(3), x.new_empty(2).zero_()]
        return [*made, torch.zeros_like(x, dtype=torch.int32), x.new_zeros(1, dtype=torch.bool)]

    assert_lockstep(make, X)


def test_random_numbers_are_reproducible_and_of_their_distribution() -> None:
    def draw() -> list[Tensor]:
        torch.manual_seed(3)
        x = torch.empty(1000, device=XLA)
        return [
            torch.rand(1000, device=XLA),
            torch.randn(1000, device=XLA),
            torch.randint(0, 5, (1000,), device=XLA),
            torch.randperm(1000, device=XLA),
            x.clone().uniform_(2, 3),
            x.clone().normal_(1, 0.1),
            x.clone().bernoulli_(0.3),
            torch.nn.functional.dropout(torch.ones(1000, device=XLA), 0.3),
            torch.rand_like(x),
        ]

    first, again = draw(), draw()
    rand, randn, integers, perm, uniform, normal, bernoulli, dropout, like = first
    assert [t.tolist() for t in first] == [t.tolist() for t in again]
    assert rand.tolist() != like.tolist()
    assert 0.45 < rand.mean().item() < 0.55
    assert abs(randn.mean().item()) < 0.15
    assert set(integers.tolist()) == {0, 1, 2, 3, 4}
    assert sorted(perm.tolist()) == list(range(1000))
    assert uniform.min().item() >= 2
    assert uniform.max().item() <= 3
    assert 0.98 < normal.mean().item() < 1.02
    assert 0.2 < bernoulli.mean().item() < 0.4
    assert 600 < (dropout > 0).sum().item() < 800


def test_each_step_draws_other_numbers_from_one_program() -> None:
    seen = []
    with counting() as counts:
        for _ in range(4):
            x = torch.rand(4, device=XLA)
            xm.mark_step()
            seen.append(tuple(x.tolist()))
    assert len(set(seen)) == 4
    assert counts.compiles <= 1  # none, where another test has run the same trace


def test_generators_and_forked_state() -> None:
    with torch.random.fork_rng(devices=[0], device_type="xla"):
        torch.manual_seed(1)
        inside = torch.rand(3, device=XLA).tolist()
    state = xm.get_rng_state()
    outside = torch.rand(3, device=XLA).tolist()
    xm.set_rng_state(state)
    assert torch.rand(3, device=XLA).tolist() == outside
    assert inside != outside
    made = [torch.rand(3, device=XLA, generator=torch.Generator().manual_seed(5)) for _ in range(2)]
    assert made[0].tolist() == made[1].tolist()


MIXES: dict[str, Callable[[Tensor], Any]] = {
    "0-d": lambda x: [x + torch.tensor(2.0), torch.tensor(2.0) * x, x / torch.tensor(3)],
    "0-d float64": lambda x: [
        x + torch.tensor(0.1, dtype=torch.float64),
        x.long() * torch.tensor(2),
    ],
    "0-d where": lambda x: torch.where(x > 2, torch.tensor(1.0), torch.tensor(0.0)),
    "numpy scalar": lambda x: [x * np.float32(2), x + np.float64(0.5), x.clamp(max=float(np.pi))],
    "index": lambda x: [x[torch.tensor([1, 0])], x[:, torch.tensor([[0, 2]])]],
    "index_put": lambda x: x.index_put((torch.tensor([0]),), torch.tensor(9.0)),
    "setitem": lambda x: x.__setitem__((torch.tensor([1]), 0), torch.tensor(7.0)),
    "copy_": lambda x: x.copy_(torch.full((3,), 2.0)),
    "fill_": lambda x: x.fill_(torch.tensor(4.0)),
    "masked_fill": lambda x: x.masked_fill(x > 2, torch.tensor(-1.0)),
    "in place 0-d": lambda x: x.add_(torch.tensor(1.5)).mul_(torch.tensor(2)),
}


@pytest.mark.parametrize("mix", MIXES)
def test_cpu_tensors_that_mix(mix: str) -> None:
    assert_lockstep(MIXES[mix], X)


def test_reading_into_a_cpu_tensor() -> None:
    host = torch.zeros(2, 3, dtype=torch.float64)
    assert host.copy_(X.to(XLA)) is host
    torch.testing.assert_close(host, X.double())
    host[0] = X.to(XLA)[1]
    torch.testing.assert_close(host[0], X[1].double())


REFUSED: dict[str, Callable[[Tensor], Any]] = {
    "add": lambda x: x + X,
    "radd": lambda x: X + x,
    "mm": lambda x: x @ X.t(),
    "linear": lambda x: torch.nn.Linear(3, 2)(x),
    "cat": lambda x: torch.cat([x, X]),
    "embedding": lambda x: torch.nn.Embedding(9, 2)(x.long()),
    "in place": lambda x: x.add_(X),
    "cpu in place": lambda x: X.clone().add_(x),
    "conv": lambda x: torch.nn.functional.conv1d(x, torch.ones(1, 2, 1)),
}


@pytest.mark.parametrize("mix", REFUSED)
def test_cpu_tensors_that_do_not(mix: str) -> None:
    x = X.to(XLA)
    with pytest.raises(RuntimeError, match=r"not an XLA tensor|same device"):
        REFUSED[mix](x)
    assert_same(x, X)


OUT: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "add": lambda x, out: torch.add(x, x, out=out),
    "matmul": lambda x, out: torch.matmul(x, x.t(), out=out),
    "cat": lambda x, out: torch.cat([x, x], out=out),
    "sum": lambda x, out: torch.sum(x, 0, out=out),
    "exp": lambda x, out: torch.exp(x, out=out),
    "arange": lambda x, out: torch.arange(3, out=out),
}


@pytest.mark.parametrize("name", OUT)
def test_out(name: str) -> None:
    def call(x: Tensor) -> list[Tensor]:
        out = torch.empty(0, device=x.device)
        assert OUT[name](x, out) is out
        return [out]

    assert_lockstep(call, X)


def test_conversions() -> None:
    dtypes = [torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.bool, torch.complex64]
    assert_lockstep(lambda x: [x.to(dtype) for dtype in dtypes], X)
    assert_lockstep(lambda x: [x.half().float(), x.type(torch.int32), x.type_as(x.int())], X)
    assert X.to(XLA, torch.bfloat16).dtype is torch.bfloat16
    assert X.to(XLA).to("cpu", torch.int64).tolist() == X.long().tolist()


def test_uploads_are_copies() -> None:
    host = X.clone()
    x = host.to(XLA)
    host.zero_()
    assert_same(x, X)
    back = x.cpu()
    back.zero_()
    assert_same(x, X)


LENGTHS = torch.tensor([5, 4]), torch.tensor([3, 2])


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("moved", range(8), ids="{:03b}".format)
def test_ctc_loss_takes_targets_and_lengths_of_either_device(reduction: str, moved: int) -> None:
    log_probs = torch.randn(5, 2, 4, dtype=torch.float64).log_softmax(-1)
    given = torch.tensor([[1, 2, 3], [3, 1, 0]]), *LENGTHS

    def chain(x: Tensor) -> list[Tensor]:
        placed = [t.to(x.device) if moved >> i & 1 else t for i, t in enumerate(given)]
        loss = torch.nn.functional.ctc_loss(x, *placed, reduction=reduction)
        loss.sum().backward()
        return [loss.detach(), x.grad]

    with pytest.warns(xla_dynamo.FallbackWarning, match="_ctc_loss"):
        assert_lockstep(chain, log_probs.requires_grad_(), rtol=1e-12, atol=1e-12)


def test_a_gradient_of_integers_is_promoted() -> None:
    grad, x = torch.arange(4), torch.tensor([0.2, 0.5, 0.7, 1.0])
    assert_lockstep(lambda g, x: torch.ops.aten.threshold_backward(g, x, 0.5), grad, x)


@pytest.mark.parametrize("where", [torch.tensor([1, 2]), torch.tensor(2)])
def test_tensor_split_takes_indices_of_either_device(where: Tensor) -> None:
    def chain(x: Tensor) -> list[Tensor]:
        return [*x.tensor_split(where.to(x.device), 1), *torch.tensor_split(x, where)]

    assert_lockstep(chain, X)


def test_the_norm_of_no_gradients_is_on_the_device() -> None:
    layer = torch.nn.Linear(2, 2).to(XLA)
    assert torch.nn.utils.clip_grad_norm_(layer.parameters(), 1.0).device == XLA
    for parameter in layer.parameters():
        parameter.grad = torch.ones_like(parameter)
    norm = torch.nn.utils.clip_grad_norm_(layer.parameters(), 1.0)
    torch.testing.assert_close(norm.cpu(), torch.tensor(6.0).sqrt())
    assert layer.weight.grad is not None
    torch.testing.assert_close(layer.weight.grad.cpu(), torch.full((2, 2), 6**-0.5))
    assert (
        torch.nn.utils.clip_grad_norm_(torch.nn.Linear(2, 2).parameters(), 1.0).device.type == "cpu"
    )
