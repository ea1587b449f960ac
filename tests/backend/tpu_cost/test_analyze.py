"""Steps of models as users have them, lowered for a TPU; what cannot be one program is told."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
import transformers
from torch import Tensor, nn

from tests.models.training import build
from tests.models.zoo import ZOO
from xla_dynamo.backend.tpu_cost import lower_training_step
from xla_dynamo.errors import CompileError, UnsupportedOp

FAST = ("hf_bert", "lstm")


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] * (n not in FAST)) for n in ZOO]
)
def test_a_model_is_one_program(name: str) -> None:
    module, batch = build(ZOO[name], torch.float32, ZOO[name].dropout)
    lowered = lower_training_step(module, batch, matmul_precision="medium")
    assert "stablehlo" in lowered.stablehlo


def test_keyword_inputs_and_a_loss_among_results() -> None:
    """Models of transformers as they come."""
    config = transformers.GPT2Config(vocab_size=50, n_embd=16, n_layer=1, n_head=2, n_positions=16)
    model = transformers.GPT2LMHeadModel(config).train()
    tokens = torch.randint(50, (2, 8))
    inputs = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens), "labels": tokens}
    assert "stablehlo" in lower_training_step(model, inputs).stablehlo


@pytest.mark.slow
def test_whisper() -> None:
    """Its sinusoids are constants of the graph."""
    config = transformers.WhisperConfig(
        vocab_size=50,
        d_model=16,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=32,
        decoder_ffn_dim=32,
        num_mel_bins=8,
        max_source_positions=16,
        max_target_positions=16,
        pad_token_id=1,
        bos_token_id=1,
        eos_token_id=1,
        decoder_start_token_id=1,
    )
    model = transformers.WhisperForConditionalGeneration(config).train()
    inputs = {"input_features": torch.randn(2, 8, 32), "labels": torch.randint(50, (2, 8))}
    assert "stablehlo" in lower_training_step(model, inputs).stablehlo


class Net(nn.Module):
    """A linear layer and what comes after it."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.after(self.linear(x))

    def after(self, y: Tensor) -> Tensor:
        raise NotImplementedError


class Factors(Net):
    def after(self, y: Tensor) -> Tensor:
        positive = y.T @ y + torch.eye(4)
        return torch.linalg.cholesky(positive).sum() + torch.linalg.solve(positive, y.T).sum()


class Sampled(Net):
    """The gradient of a picture; that of the grid is not wanted."""

    def after(self, y: Tensor) -> Tensor:
        grid = torch.linspace(-1, 1, 8).view(1, 2, 2, 2)
        return nn.functional.grid_sample(y[None, None], grid, align_corners=False).sum()


@pytest.mark.parametrize("model", [Factors(), Sampled()], ids=lambda model: type(model).__name__)
def test_ops_with_checks_and_unwanted_gradients(model: nn.Module) -> None:
    assert "stablehlo" in lower_training_step(model, [torch.randn(8, 4)]).stablehlo


class Branch(Net):
    def after(self, y: Tensor) -> Tensor:
        return y.sum() if y.sum().item() > 0 else y.mean()


class Selected(Net):
    def after(self, y: Tensor) -> Tensor:
        return y.flatten()[torch.nonzero(y.flatten() > 0)[:, 0]].sum()


class Many(Net):
    def after(self, y: Tensor) -> Tensor:
        return y


class Detached(Net):
    def after(self, y: Tensor) -> Tensor:
        return y.detach().sum()


class Spectrum(Net):
    def after(self, y: Tensor) -> Tensor:
        return torch.linalg.eig(y[:4])[0].abs().sum()


@pytest.mark.parametrize(
    ("model", "kind", "message"),
    [
        (Branch(), CompileError, "step of Branch cannot be traced as one program: .*> 0"),
        (Selected(), CompileError, "step of Selected cannot be traced as one program: .*nonzero"),
        (
            Many(),
            CompileError,
            r"a loss of one element; the model gives a tensor of shape \[8, 4\]",
        ),
        (Detached(), CompileError, "without a gradient"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else "",
)
def test_what_is_no_step_is_an_error_of_ours(
    model: nn.Module, kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        lower_training_step(model, [torch.randn(8, 4)])


def test_arguments_that_do_not_fit() -> None:
    inputs: Sequence[Tensor] = [torch.randn(8, 5)]
    with pytest.raises(CompileError, match="step of Factors cannot be traced"):
        lower_training_step(Factors(), inputs)


def test_an_op_that_xla_has_not() -> None:
    with pytest.raises(UnsupportedOp, match="eig"):
        lower_training_step(Spectrum(), [torch.randn(8, 4)])
