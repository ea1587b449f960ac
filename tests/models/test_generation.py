"""Inference: logits of every model in eval mode, and token by token with a cache of keys."""

from __future__ import annotations

import copy

import pytest
import torch
import transformers

from tests.models import hugging_face
from tests.models.training import build, expect_executables
from tests.models.zoo import ZOO

DECODERS = {"gpt2": hugging_face.gpt2_model, "llama": hugging_face.llama_model}


def generate(
    model: transformers.PreTrainedModel, call: object, prompt: torch.Tensor, steps: int
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Greedy decoding into a cache of fixed size: the tokens and each step's logits."""
    cache = transformers.StaticCache(config=model.config, max_cache_len=16)
    tokens, logits = [prompt], []
    position = torch.arange(prompt.shape[1])
    for _ in range(steps):
        output = call(
            input_ids=tokens[-1],
            past_key_values=cache,
            position_ids=position[None],
            use_cache=True,
        )
        logits.append(output.logits[:, -1])
        tokens.append(logits[-1].argmax(-1, keepdim=True))
        position = position[-1:] + 1
    return torch.cat(tokens, 1), logits


@pytest.mark.parametrize("name", DECODERS)
def test_greedy_decoding_with_a_static_cache(name: str) -> None:
    model = DECODERS[name](0.0).eval()
    prompt = torch.randint(50, (2, 5))
    with torch.no_grad():
        expected = generate(model, model, prompt, steps=6)
        with expect_executables(2):  # the prompt, and one token
            compiled = torch.compile(model, backend="xla", dynamic=False)
            actual = generate(model, compiled, prompt, steps=6)
    torch.testing.assert_close(actual, expected)
    assert prompt.shape[1] + 6 == actual[0].shape[1]


@pytest.mark.parametrize("name", ["mnist", "resnet18", "unet_bilinear", "vit_masked", "lstm"])
def test_evaluation_is_eager(name: str) -> None:
    """BatchNorm with running statistics, dropout off; nothing but the result is written."""
    module, batch = build(ZOO[name], torch.float32, dropout=ZOO[name].dropout)
    module.eval()
    before = copy.deepcopy(module.state_dict())
    with torch.no_grad(), expect_executables(1):
        actual = torch.compile(module, backend="xla")(*batch)
        torch.testing.assert_close(actual, module(*batch))
    assert all(torch.equal(value, before[key]) for key, value in module.state_dict().items())
