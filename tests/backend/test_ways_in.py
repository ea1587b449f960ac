"""What every way in gets from the one pipeline: layers in subgraphs, lines of the user's."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import xla_dynamo
import xla_dynamo.compat  # registers the device xla
from xla_dynamo.backend.tpu_cost import lower_training_step


class Recurrent(nn.Module):
    def __init__(self, saves_memory: bool) -> None:
        super().__init__()
        self.layer = nn.LSTM(4, 8, batch_first=True)
        self.saves_memory = saves_memory

    def forward(self, x: Tensor) -> Tensor:
        if self.saves_memory:
            return checkpoint(lambda x: self.layer(x)[0], x, use_reentrant=False).square().mean()
        return self.layer(x)[0].square().mean()


def nodes_of_a_step(model: nn.Module, x: Tensor) -> int:
    torch.compiler.reset()
    xla_dynamo.reset_metrics()
    with torch._dynamo.config.patch(allow_rnn=True):
        torch.compile(model, backend="xla")(x).backward()
    return sum(record.nodes for record in xla_dynamo.compiles())


def test_an_lstm_inside_a_checkpoint_is_one_op_a_layer() -> None:
    x = torch.randn(2, 12, 4)
    plain, saving = Recurrent(False), Recurrent(True)
    saving.load_state_dict(plain.state_dict())
    nodes = nodes_of_a_step(plain, x)
    assert nodes_of_a_step(saving, x) < 2 * nodes
    for ours, theirs in zip(saving.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad)


class Loss(nn.Module):
    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        out = self.body(x)
        out = out[0] if isinstance(out, tuple) else out
        return nn.functional.cross_entropy(out.flatten(0, -2), target)


@pytest.mark.parametrize(
    "body", [nn.Linear(4, 5), nn.LSTM(4, 5)], ids=lambda body: type(body).__name__
)
def test_the_tpu_analysis_lowers_the_program_that_users_get(body: nn.Module) -> None:
    """A loop for an LSTM, and no log_softmax of the logits that is written for backward."""
    text = lower_training_step(Loss(body), (torch.randn(12, 3, 4), torch.arange(36) % 5)).stablehlo
    assert "_log_softmax" not in text
    assert text.count("stablehlo.while") == (2 if isinstance(body, nn.LSTM) else 0)


def user_program(x: Tensor) -> Tensor:
    y = (x + 1e8) - 1e8
    return y / 49.0


@pytest.mark.parametrize(
    "run",
    [
        lambda x: torch.compile(user_program, backend="xla")(x),
        lambda x: user_program(x.to("xla")).cpu(),
    ],
    ids=["torch.compile", "lazily"],
)
def test_what_passes_make_keeps_the_users_line(run: Callable[[Tensor], Tensor]) -> None:
    with xla_dynamo.capture() as stages:
        result = run(torch.tensor([49.0, 98.0]))
    torch.testing.assert_close(result, user_program(torch.tensor([49.0, 98.0])), rtol=0, atol=0)
    text = "\n".join(stage.stablehlo for stage in stages)
    assert "optimization_barrier" in text
    named = re.findall(r'loc\("((?:xla_dynamo|aten)[\w.]*)"(\(#loc\d+\))?\)', text)
    assert named
    assert [name for name, line in named if not line] == []
