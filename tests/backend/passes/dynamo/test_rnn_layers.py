from __future__ import annotations

from typing import Any

import pytest
import torch
from functorch.compile import make_boxed_func
from torch import nn
from torch._dynamo.backends.common import aot_autograd
from torch.fx import GraphModule

from xla_dynamo.backend.lowering.registry import Target
from xla_dynamo.backend.ops import recurrent
from xla_dynamo.backend.passes.contract import Context, WayIn
from xla_dynamo.backend.passes.dynamo import rnn_layers

LAYERS = {
    "lstm": (recurrent.lstm_layer, 4),
    "gru": (recurrent.gru_layer, 3),
    "tanh": (recurrent.rnn_layer, 1),
    "relu": (recurrent.rnn_layer, 1),
}


def use_rnn_layers(gm: GraphModule) -> bool:
    changed = rnn_layers.use_rnn_layers(gm.graph, Context("", WayIn.COMPILE, Target("cpu")))
    gm.recompile()
    return changed


def rewritten(module: nn.Module, *args: object) -> GraphModule:
    """The graph of `module` that Dynamo captures, after use_rnn_layers."""
    captured: list[GraphModule] = []

    def backend(gm: GraphModule, _: object) -> GraphModule:
        use_rnn_layers(gm)
        captured.append(gm)
        return gm

    torch._dynamo.reset()
    with torch._dynamo.config.patch(allow_rnn=True):
        torch.compile(module, backend=backend, dynamic=False)(*args)
    (gm,) = captured
    return gm


def module_of(kind: str, *sizes: int, **options: object) -> nn.Module:
    if kind in ("tanh", "relu"):
        return nn.RNN(*sizes, nonlinearity=kind, dtype=torch.float64, **options)
    return {"lstm": nn.LSTM, "gru": nn.GRU}[kind](*sizes, dtype=torch.float64, **options)


def states_of(module: nn.Module, batch: int) -> object:
    rows = module.num_layers * (1 + module.bidirectional)
    hidden = module.proj_size or module.hidden_size
    h0 = torch.randn(rows, batch, hidden, dtype=torch.float64, requires_grad=True)
    c0 = torch.randn(rows, batch, module.hidden_size, dtype=torch.float64, requires_grad=True)
    return (h0, c0) if isinstance(module, nn.LSTM) else h0


def leaves(tree: object) -> list[torch.Tensor]:
    return torch.utils._pytree.tree_leaves(tree)


def assert_same_step(module: nn.Module, *args: object) -> None:
    """Outputs, and gradients by inputs and parameters, of the rewritten graph and of eager."""
    graph = rewritten(module, *args)
    targets = [node.target for node in graph.graph.nodes]
    assert not set(targets) & set(rnn_layers.REPLACEMENTS)
    assert set(targets) & set(rnn_layers.REPLACEMENTS.values())
    inputs = [t for t in (*leaves(args), *module.parameters()) if t.requires_grad]
    results = []
    for function in (module, torch.compile(module, backend=lambda *_: graph, dynamic=False)):
        torch._dynamo.reset()
        with torch._dynamo.config.patch(allow_rnn=True):
            outputs = leaves(function(*args))
        weights = [torch.linspace(-1, 1, o.numel(), dtype=o.dtype).view_as(o) for o in outputs]
        loss = sum((o * w).sum() for o, w in zip(outputs, weights, strict=True))
        results.append((outputs, torch.autograd.grad(loss, inputs)))
    torch.testing.assert_close(results[1], results[0])


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    ("layers", "bidirectional", "batch_first"), [(1, False, True), (3, True, False)]
)
def test_rewritten_modules_are_eager(kind, bias, layers, bidirectional, batch_first):
    options = {"bias": bias, "bidirectional": bidirectional, "batch_first": batch_first}
    module = module_of(kind, 5, 4, layers, **options)
    x = torch.randn(3, 3, 5, dtype=torch.float64, requires_grad=True)
    assert_same_step(module, x, states_of(module, 3))


@pytest.mark.parametrize("bidirectional", [True, False])
def test_projected_lstm(bidirectional):
    module = module_of("lstm", 5, 4, 2, proj_size=2, bidirectional=bidirectional)
    x = torch.randn(6, 3, 5, dtype=torch.float64, requires_grad=True)
    assert_same_step(module, x, states_of(module, 3))


@pytest.mark.parametrize("kind", LAYERS)
def test_unbatched_input_and_default_state(kind):
    x = torch.randn(6, 5, dtype=torch.float64, requires_grad=True)
    assert_same_step(module_of(kind, 5, 4), x)


def test_dropout_lies_between_layers_and_only_in_training():
    module = module_of("gru", 5, 4, 2, dropout=1.0)
    x = torch.randn(6, 3, 5, dtype=torch.float64)
    assert_same_step(module, x)  # all inputs of the second layer are dropped, in eager too
    assert_same_step(module.eval(), x)


def test_packed_sequences_are_left_alone():
    class Packed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = nn.LSTM(5, 4)

        def forward(self, data: torch.Tensor, sizes: torch.Tensor) -> torch.Tensor:
            h = data.new_zeros(1, 3, 4)
            weights = self.lstm._flat_weights
            return torch._VF.lstm(data, sizes, (h, h), weights, True, 1, 0.0, True, False)[0]

    module = Packed()
    gm = torch.fx.symbolic_trace(module)
    before = [node.target for node in gm.graph.nodes]
    assert not use_rnn_layers(gm)
    assert [node.target for node in gm.graph.nodes] == before
    assert torch.lstm in before


def eagers(module: torch.nn.Module, *given: Any) -> list[torch.Tensor]:
    """What eager gives under autocast; all of 16 bits where oneDNN has no such LSTM on this CPU."""
    try:
        return leaves(module(*given))
    except RuntimeError as error:
        if "primitive descriptor" not in str(error):
            raise
    with torch.backends.mkldnn.flags(enabled=False):
        return [x.bfloat16() for x in leaves(module(*given))]


@pytest.mark.parametrize(("kind", "proj"), [("lstm", 0), ("lstm", 2), ("gru", 0), ("tanh", 0)])
def test_autocast_gives_eagers_dtypes(kind, proj):
    module = module_of(kind, 5, 4, 2, **({"proj_size": proj} if proj else {}))
    state = torch.utils._pytree.tree_map(lambda t: t.detach().float(), states_of(module, 3))
    called = getattr(torch, "rnn_tanh" if kind == "tanh" else kind)
    x, function = torch.randn(6, 3, 5), rnn_layers.REPLACEMENTS[called]
    module.float()
    with torch.autocast("cpu", torch.bfloat16):
        expected = eagers(module, x, state)
        weights = module._flat_weights
        actual = leaves(function(x, state, weights, True, 2, 0.0, True, False, False))
    for want, got in zip(expected, actual, strict=True):
        assert got.dtype == want.dtype
        torch.testing.assert_close(got, want, rtol=0.02, atol=0.02)


def arguments(kind: str, steps: int = 4, proj: int | None = None) -> list[torch.Tensor]:
    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, dtype=torch.float64, requires_grad=True)

    gates, hidden = LAYERS[kind][1] * 3, proj or 3
    states = [normal(2, hidden), normal(2, 3)] if kind == "lstm" else [normal(2, hidden)]
    weights = [normal(gates, 5), normal(gates, hidden), normal(gates), normal(gates)]
    if kind == "lstm":
        weights.append(normal(proj, 3) if proj else None)
    return [normal(steps, 2, 5), *states, *weights]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("kind", "proj"), [*((kind, None) for kind in LAYERS), ("lstm", 2)])
def test_backward_is_the_gradient(kind, proj, reverse):
    op, _ = LAYERS[kind]
    flags = (kind == "relu", reverse) if kind in ("tanh", "relu") else (reverse,)
    results = 3 if kind == "lstm" else 2
    torch.manual_seed(1)
    inputs = arguments(kind, 3, proj)
    assert torch.autograd.gradcheck(lambda *a: op(*a, *flags)[:results], inputs)


@pytest.mark.parametrize("kind", LAYERS)
def test_ops_are_well_formed(kind):
    op, _ = LAYERS[kind]
    flags = (kind == "relu", True) if kind in ("tanh", "relu") else (True,)
    utils = ("test_schema", "test_autograd_registration", "test_faketensor")
    torch.library.opcheck(op, (*arguments(kind), *flags), test_utils=utils)


@pytest.mark.parametrize("used", [0, 1, 2])
def test_unused_outputs_need_no_gradient(used):
    inputs = arguments("lstm")
    out = recurrent.lstm_layer(*inputs, False)[used]
    gradients = torch.autograd.grad(out.sum(), inputs[:5])
    assert all(g.isfinite().all() for g in gradients)


def test_second_derivatives_are_refused():
    inputs = arguments("gru")
    out = recurrent.gru_layer(*inputs, False)[0]
    (gradient,) = torch.autograd.grad(out.sum(), inputs[:1], create_graph=True)
    with pytest.raises(RuntimeError, match="gru_layer_backward"):
        gradient.sum().backward()


def test_aot_records_two_nodes_a_layer():
    module, x = nn.LSTM(5, 4, 2), torch.randn(7, 3, 5)
    graph = rewritten(module, x)
    seen: list[list[object]] = []

    def record(gm: GraphModule, _: object) -> object:
        seen.append([n.target for n in gm.graph.nodes if "xla_dynamo" in str(n.target)])
        return make_boxed_func(gm.forward)

    aot = aot_autograd(fw_compiler=record, bw_compiler=record)
    torch._dynamo.reset()
    with torch._dynamo.config.patch(allow_rnn=True):
        compiled = torch.compile(module, backend=lambda _, example: aot(graph, example))
        compiled(x)[0].sum().backward()
    ops = torch.ops.xla_dynamo
    assert seen == [[ops.lstm_layer.default] * 2, [ops.lstm_layer_backward.default] * 2]
