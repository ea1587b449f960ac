"""LSTM, GRU and RNN on the device: an op a layer; packed, a program for a bucket of lengths."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch_xla.core.xla_model as xm
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

import xla_dynamo
from tests.compat.loops import counting
from xla_dynamo.compat.recording import pending

CPU, XLA = torch.device("cpu"), torch.device("xla:0")
DOUBLE = torch.float64

MODULES: dict[str, Callable[[], nn.RNNBase]] = {
    "lstm": lambda: nn.LSTM(4, 3, 2, bidirectional=True, dtype=DOUBLE),
    "projection": lambda: nn.LSTM(4, 3, bidirectional=True, proj_size=2, dtype=DOUBLE),
    "gru": lambda: nn.GRU(4, 3, 2, bidirectional=True, dtype=DOUBLE),
    "no biases": lambda: nn.GRU(4, 3, bias=False, dtype=DOUBLE),
    "tanh": lambda: nn.RNN(4, 3, bidirectional=True, dtype=DOUBLE),
    "relu": lambda: nn.RNN(4, 3, nonlinearity="relu", dtype=DOUBLE),
}


def states_of(module: nn.RNNBase, batch: int) -> Any:
    """Initial states that are not zero, for which a step beyond the end would show."""
    hidden = module.proj_size or module.hidden_size
    rows = module.num_layers * (1 + module.bidirectional)
    generator = torch.Generator().manual_seed(3)
    h, c = (
        torch.randn(rows, batch, size, generator=generator, dtype=DOUBLE)
        for size in (hidden, module.hidden_size)
    )
    return (h, c) if isinstance(module, nn.LSTM) else h


def moved(states: Any, device: torch.device) -> Any:
    return tuple(s.to(device) for s in states) if isinstance(states, tuple) else states.to(device)


def step(
    module: nn.RNNBase, x: Tensor, lengths: Tensor | None, is_sorted: bool = False
) -> list[Tensor]:
    """Outputs, final states, and the gradients of a loss of all of them."""
    x = x.requires_grad_()
    states = moved(states_of(module, x.shape[1]), x.device)
    if lengths is None:
        out, finals = module(x, states)
    else:
        packed = pack_padded_sequence(x, lengths, enforce_sorted=is_sorted)
        packed, finals = module(packed, states)
        out, found = pad_packed_sequence(packed, padding_value=-1, total_length=len(x))
        assert torch.equal(found, lengths)
    finals = finals if isinstance(finals, tuple) else (finals,)
    losses = [(n + 1) * each.sin().sum() for n, each in enumerate((out, *finals))]
    given = [x, *module.parameters()]
    grads = torch.autograd.grad(torch.stack(losses).sum(), given)
    return [out.detach(), *(f.detach() for f in finals), *grads]


def assert_alike(actual: list[Tensor], expected: list[Tensor]) -> None:
    for one, other in zip(actual, expected, strict=True):
        torch.testing.assert_close(one.cpu(), other, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", MODULES)
def test_padded_is_an_op_a_layer(name: str) -> None:
    torch.manual_seed(0)
    module = MODULES[name]()
    on_device, x = copy.deepcopy(module).to(XLA), torch.randn(6, 2, 4, dtype=DOUBLE)
    xm.mark_step()
    actual = step(on_device, x.clone().to(XLA), None)
    ops = [str(state.op) for state in pending.trace(XLA).state.path()]
    layers = [op for op in ops if "_layer." in op]
    assert len(layers) == module.num_layers * (1 + module.bidirectional)
    assert not any("sigmoid" in op or "tanh" in op for op in ops)
    assert_alike(actual, step(module, x, None))


@pytest.mark.parametrize(("name", "is_sorted"), [("gru", True), *((m, False) for m in MODULES)])
def test_packed_batches_of_many_lengths_are_one_program(name: str, is_sorted: bool) -> None:
    torch.manual_seed(0)
    module = MODULES[name]()
    on_device = copy.deepcopy(module).to(XLA)
    generator = torch.Generator().manual_seed(1)
    xm.mark_step()
    found = []
    with counting() as counts:
        for _ in range(4):
            x = torch.randn(8, 3, 4, generator=generator, dtype=DOUBLE)
            lengths = torch.randint(1, 9, (3,), generator=generator)
            lengths[0] = 5 + int(lengths[0]) % 4  # a bucket of 5 to 8 steps
            lengths = lengths.sort(descending=True)[0] if is_sorted else lengths
            actual = step(on_device, x.clone().to(XLA), lengths, is_sorted)
            xm.mark_step()
            found.append((actual, step(module, x, lengths, is_sorted)))
    assert counts.compiles == 1, [r.reason for r in xla_dynamo.compiles()[-4:]]
    for actual, expected in found:
        assert_alike(actual, expected)


class Tagger(nn.Module):
    """A model as tutorials write it: what it packs, it pads again."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4, dtype=DOUBLE)
        self.layer = nn.GRU(4, 3, bidirectional=True, dtype=DOUBLE)
        self.last = nn.Linear(6, 2, dtype=DOUBLE)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        packed = pack_padded_sequence(self.first(x).tanh(), lengths, enforce_sorted=False)
        out, finals = self.layer(packed)
        padded, _ = pad_packed_sequence(out, total_length=x.shape[0])
        return self.last(padded).square().mean() + finals.mean()


def test_torch_compile_leaves_packed_batches_to_the_device() -> None:
    """Dynamo breaks the graph, and its frames keep the rows: of no number that a program has."""
    torch.manual_seed(0)
    module = Tagger()
    on_device = copy.deepcopy(module).to(XLA)
    compiled = torch.compile(on_device, backend="xla")
    compiles = []
    for number in range(6):
        x, lengths = (
            torch.randn(8, 3, 4, dtype=DOUBLE),
            torch.tensor([5 + number % 4, 2, number + 1]),
        )
        with counting() as counts:
            module.zero_grad()
            on_device.zero_grad()
            loss, expected = compiled(x.to(XLA), lengths), module(x, lengths)
            loss.backward()
            expected.backward()
            xm.mark_step()
        compiles.append(counts.compiles)
        assert_alike([loss.detach()], [expected.detach()])
        grads = [[p.grad for p in each.parameters()] for each in (on_device, module)]
        assert_alike(*grads)  # type: ignore[arg-type]
    assert compiles[2:] == [0, 0, 0, 0], [r.reason for r in xla_dynamo.compiles()]


def test_rows_that_are_kept_or_read_are_in_no_program() -> None:
    torch.manual_seed(0)
    module = nn.GRU(4, 3, dtype=DOUBLE)
    on_device, kept = copy.deepcopy(module).to(XLA), []
    with torch.no_grad(), counting() as counts:
        for lengths in ([8, 2, 1], [5, 5, 5], [7, 1, 3]):
            x, each = torch.randn(8, 3, 4, dtype=DOUBLE), torch.tensor(lengths)
            packed = pack_padded_sequence(x.to(XLA), each, enforce_sorted=False)
            out, _ = on_device(packed)
            xm.mark_step()
            expected, _ = module(pack_padded_sequence(x, each, enforce_sorted=False))
            kept.append((packed, out, expected))
            assert_alike([out.data], [expected.data])
    assert counts.compiles == 1
    for packed, out, expected in kept:  # on the device, by an op; and padded after that
        assert_alike([packed.data.sum() * 0 + out.data.sin()], [expected.data.sin()])
        assert_alike([pad_packed_sequence(out)[0]], [pad_packed_sequence(expected)[0]])


def test_rows_that_are_used_by_themselves() -> None:
    """PackedSequence.data has as many rows as eager's; an embedding of packed tokens."""
    tokens, lengths = torch.tensor([[1, 2, 3], [4, 5, 0]]), torch.tensor([3, 2])
    found = []
    for device in (CPU, XLA):
        torch.manual_seed(0)
        table, gru = nn.Embedding(6, 4).to(device), nn.GRU(4, 3).to(device)
        packed = pack_padded_sequence(tokens.to(device), lengths, batch_first=True)
        rows = table(packed.data)
        out, _ = gru(PackedSequence(rows, packed.batch_sizes))
        loss = out.data.square().mean() + rows.mean()
        (grad,) = torch.autograd.grad(loss, [table.weight])
        found.append([packed.data.cpu(), out.data.detach().cpu(), grad.cpu()])
    torch.testing.assert_close(found[1], found[0])


def test_errors_are_eagers() -> None:
    x = torch.ones(3, 2, 4, device=XLA)
    with pytest.raises(RuntimeError, match="Length of all samples has to be greater than 0"):
        pack_padded_sequence(x, torch.tensor([3, 0]))
    with pytest.raises(RuntimeError, match="sorted in decreasing order"):
        pack_padded_sequence(x, torch.tensor([2, 3]))
    packed = pack_padded_sequence(x, torch.tensor([3, 2]))
    with pytest.raises(ValueError, match="total_length to be at least the length"):
        pad_packed_sequence(packed, total_length=2)


def test_autocast_and_dropout() -> None:
    """Under autocast all is bfloat16, as in eager where oneDNN has an LSTM of it (AVX-512).

    In training, dropout is between the layers.
    """
    module, x = nn.LSTM(4, 3, 2, dropout=0.5), torch.randn(5, 2, 4)
    on_device = copy.deepcopy(module).to(XLA)
    expected = module.eval()(x)[0].bfloat16()
    with torch.autocast("xla", torch.bfloat16):
        actual, (on_h, on_c) = on_device.eval()(x.to(XLA))
    assert {actual.dtype, on_h.dtype, on_c.dtype} == {torch.bfloat16}
    torch.testing.assert_close(actual.cpu(), expected, rtol=0.02, atol=0.02)
    first, second = on_device.train()(x.to(XLA))[0], on_device(x.to(XLA))[0]
    assert not torch.equal(first.cpu(), second.cpu())


def test_function_transforms_take_the_parts() -> None:
    gru, x = nn.GRU(4, 3).to(XLA), torch.randn(5, 2, 4)
    grad = torch.func.grad(lambda x: gru(x)[0].sum())(x.to(XLA))
    x.requires_grad_()
    copy.deepcopy(gru).cpu()(x)[0].sum().backward()
    torch.testing.assert_close(grad.cpu(), x.grad)
