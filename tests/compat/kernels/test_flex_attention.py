"""flex_attention on tensors of the device: as written, and in torch.compile; with gradients.

PyTorch has none for it on a CPU: they are compared with those of the formula.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch_xla.core.xla_model as xm
import torch_xla.debug.metrics as met
from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import xla_dynamo
from tests.backend.passes.dynamo.test_flex_attention import alibi, causal, empty_rows, soft_cap
from tests.compat.loops import counting
from tests.like_eager.lazy import XLA, assert_same

pytestmark = [
    pytest.mark.usefixtures("counted_from_zero"),
    pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile"),
]
DOUBLE = torch.float64
DOCUMENTS = torch.tensor([0] * 7 + [1] * 14 + [2] * 11)
SCORES: dict[str, Any] = {"plain": None, "alibi": alibi, "soft cap": soft_cap}
MASKS: dict[str, Any] = {"all": None, "causal": causal, "empty rows": empty_rows}


def inputs() -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(2, 4, 32, 8, dtype=DOUBLE, generator=generator) for _ in range(3)]


def formula(query: Tensor, key: Tensor, value: Tensor, score: Any, mask: Any) -> Tensor:
    scores = query @ key.transpose(-1, -2) / 8**0.5
    b, h, q, k = torch.meshgrid(*map(torch.arange, scores.shape), indexing="ij")
    scores = scores if score is None else score(scores, b, h, q, k)
    kept = torch.ones_like(scores, dtype=torch.bool) if mask is None else mask(b, h, q, k)
    weights = torch.where(kept, scores, -torch.inf).softmax(-1)
    return torch.where(kept.any(-1, keepdim=True), weights, 0.0) @ value


def with_gradients(out: Tensor, given: list[Tensor]) -> list[Tensor]:
    return [out.detach(), *torch.autograd.grad(out.sin().sum(), given)]


def expected_of(score: Any, mask: Any, *more: Tensor) -> list[Tensor]:
    given = [x.requires_grad_() for x in inputs()]
    return with_gradients(formula(*given, score, mask), [*given, *more])  # type: ignore[call-arg]


def on_device(backend: str | None, score: Any, mask: Any, *more: Tensor) -> list[Tensor]:
    blocks = None if mask is None else create_block_mask(mask, 2, 4, 32, 32, XLA, BLOCK_SIZE=16)
    given = [x.to(XLA).requires_grad_() for x in inputs()]
    called = flex_attention if backend is None else torch.compile(flex_attention, backend=backend)
    out = called(*given, score_mod=score, block_mask=blocks)
    return with_gradients(out, [*given, *more])


@pytest.mark.parametrize("backend", [None, "xla", "openxla"])
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("score", SCORES)
def test_scores_and_masks(score: str, mask: str, backend: str | None) -> None:
    actual = on_device(backend, SCORES[score], MASKS[mask])
    assert_same(actual, expected_of(SCORES[score], MASKS[mask]), rtol=1e-10, atol=1e-10)
    assert not [name for name in met.counter_names() if name.startswith("aten::")]


@pytest.mark.parametrize("backend", [None, "xla", "openxla"])
def test_what_the_functions_hold(backend: str | None) -> None:
    """Documents of the tokens, and a bias that is learned."""
    bias = torch.randn(4, 32, dtype=DOUBLE, generator=torch.Generator().manual_seed(2))

    def functions(device: str | torch.device) -> tuple[Any, Any, Tensor]:
        documents, learned = DOCUMENTS.to(device), bias.detach().to(device).requires_grad_()

        def document(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
            return documents[q] == documents[k]

        def biased(score: Tensor, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
            return score + learned[h, k]

        return biased, document, learned

    actual = on_device(backend, *functions(XLA))
    assert_same(actual, expected_of(*functions("cpu")), rtol=1e-10, atol=1e-10)


def test_a_step_that_repeats_compiles_once() -> None:
    with counting() as counts:
        for _ in range(3):
            on_device(None, soft_cap, causal)
            xm.mark_step()
    assert counts.compiles == 1, [record.reason for record in xla_dynamo.compiles()]


def test_errors_are_eagers() -> None:
    query, key, value = (x.to(XLA) for x in inputs())
    with pytest.raises(ValueError, match="same number of heads"):
        flex_attention(query, key[:, :2], value[:, :2])
    blocks = create_block_mask(causal, None, None, 16, 16, XLA)
    with pytest.raises(ValueError, match="block_mask was created for"):
        flex_attention(query, key, value, block_mask=blocks)
