"""Training with fifty random sizes: the numbers of eager in float64, and few programs."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import xla_dynamo
from tests.models import convnets, hugging_face
from xla_dynamo.backend.executable import padded_layout

WORDS, CLASSES = 50, 5
Sizes = tuple[int, ...]
Make = Callable[..., Sequence[Tensor]]


@pytest.fixture(autouse=True)
def _poisoned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(padded_layout, "poison", True)


class Decoder(nn.Module):
    """A block of GPT, and its loss over [batch * length, words]."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, width), nn.Embedding(128, width)
        self.norm, self.qkv = nn.LayerNorm(width), nn.Linear(width, 3 * width)
        self.out, self.head = nn.Linear(width, width), nn.Linear(width, WORDS)
        self.mlp = nn.Sequential(
            *(nn.LayerNorm(width), nn.Linear(width, 2 * width)),
            *(nn.GELU(), nn.Linear(2 * width, width)),
        )

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        batch, length = x.shape
        z = self.words(x) + self.places(torch.arange(length))
        q, k, v = (
            part.view(batch, length, 2, -1).transpose(1, 2)
            for part in self.qkv(self.norm(z)).chunk(3, -1)
        )
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        z = z + self.out(attended.transpose(1, 2).reshape(batch, length, -1))
        z = z + self.mlp(z)
        return F.cross_entropy(self.head(z).view(batch * length, -1), y.view(-1))


class Encoder(nn.Module):
    """Layers of BERT, with a mask of what is padding for the user."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.words = nn.Embedding(WORDS, 16)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(16, CLASSES)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        z = self.layers(self.words(x), src_key_padding_mask=x == 0)
        return F.cross_entropy(self.head(z[:, 0]), y)


def convnet() -> nn.Module:
    return WithLoss(
        nn.Sequential(
            *(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()),
            *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, CLASSES)),
        )
    )


class WithLoss(nn.Module):
    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(self.network(x), y)


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.RNNBase]) -> None:
        super().__init__()
        self.layers: Any = kind(6, 7, 2, batch_first=True)  # pyright: ignore[reportArgumentType]
        self.head = nn.Linear(7, CLASSES)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(self.head(self.layers(x)[0][:, -1]), y)


class Recommender(nn.Module):
    """Like DLRM: sums of embedding rows, their products, and an MLP."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(WORDS, 8, mode="sum") for _ in range(3))
        self.bottom, self.top = nn.Linear(4, 8), nn.Linear(8 + 6, 1)

    def forward(self, x: Tensor, rows: Tensor, y: Tensor) -> Tensor:
        found = [self.bottom(x).relu(), *(t(rows[:, i]) for i, t in enumerate(self.tables))]
        stacked = torch.stack(found, 1)
        first, second = torch.triu_indices(4, 4, 1)
        products = (stacked @ stacked.mT)[:, first, second]
        scores = self.top(torch.cat([found[0], products], 1)).squeeze(1)
        return F.binary_cross_entropy_with_logits(scores, y)


def numbers(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64)


def words(*shape: int) -> Tensor:
    return torch.randint(0, WORDS, shape)


def labels(batch: int) -> Tensor:
    return torch.randint(0, CLASSES, (batch,))


def masked(batch: int, length: int) -> tuple[Tensor, ...]:
    mask = torch.ones(batch, length, dtype=torch.int64)
    mask[0, length // 2 :] = 0
    return words(batch, length), mask, words(batch, length)


def images(classes: Callable[[int], Tensor]) -> Make:
    return lambda b: (numbers(b, 3, 16, 16), classes(b))


# A model, its inputs for a size, the largest sizes, and how many programs for 50 of them.
MODELS: dict[str, tuple[Callable[[], nn.Module], Make, Sizes, int]] = {
    "gpt": (Decoder, lambda b, s: (words(b, s), words(b, s)), (9, 60), 2 * 2 * 4),
    "bert": (Encoder, lambda b, s: (words(b, s), labels(b)), (9, 60), 2 * 2 * 4),
    "convnet": (convnet, lambda b: (numbers(b, 3, 8, 8), labels(b)), (40,), 2 * 4),
    "lstm": (lambda: Recurrent(nn.LSTM), lambda b: (numbers(b, 5, 6), labels(b)), (40,), 2 * 4),
    "gru": (lambda: Recurrent(nn.GRU), lambda b: (numbers(b, 5, 6), labels(b)), (40,), 2 * 4),
    "dlrm": (
        Recommender,
        lambda b: (numbers(b, 4), words(b, 3, 2), torch.rand(b, dtype=torch.float64)),
        (40,),
        2 * 4,
    ),
    "llama": (
        lambda: hugging_face.llama(0.0),
        lambda b, s: (words(b, s), words(b, s)),
        (9, 60),
        2 * 2 * 4,
    ),
    "t5": (lambda: hugging_face.t5(0.0), masked, (9, 60), 2 * 2 * 4),
    "vit": (lambda: hugging_face.vit(0.0), images(labels), (40,), 2 * 4),
    "resnet18": (
        lambda: convnets.ResNet(convnets.BasicBlock, (2, 2, 2, 2), 8),
        images(labels),
        (40,),
        2 * 4,
    ),
    "unet": (
        lambda: convnets.UNet("bilinear"),
        images(lambda b: torch.randint(5, (b, 16, 16))),
        (40,),
        2 * 4,
    ),
}
# Relative to the largest of a tensor. Llama and T5 compute norms and the loss in float32, whatever
# the model's dtype is; ResNet-18's gradients have been through forty layers' sums over the batch.
BOUNDS = {"llama": 2e-6, "t5": 2e-6, "resnet18": 1e-11}


def _train(name: str, count: int) -> list[Any]:
    make_model, make_inputs, largest, _ = MODELS[name]
    torch.manual_seed(0)
    draw = random.Random(0)
    model = make_model().double()
    compiled = torch.compile(model, backend="xla", options={"bucket": "powers_of_two"})
    sizes = [tuple(draw.randint(3, n) for n in largest) for _ in range(count)]
    for size in sizes:
        inputs = make_inputs(*size)
        for x in inputs:
            for d, n in enumerate(size[: x.dim()]):
                assert x.shape[d] == n
                torch._dynamo.mark_dynamic(x, d)
        exact = copy.deepcopy(model)
        model.zero_grad()
        losses = [run(*inputs) for run in (compiled, exact)]
        for loss in losses:
            loss.backward()
        bound = BOUNDS.get(name, 1e-12)
        _assert_close(losses[:1], losses[1:], bound)
        found, slopes = ([p.grad for p in each.parameters()] for each in (model, exact))
        _assert_close(found, slopes, bound)
        _assert_close(list(model.buffers()), list(exact.buffers()), bound)
    return sizes


def _assert_close(found: Sequence[Any], expected: Sequence[Any], bound: float) -> None:
    for x, y in zip(found, expected, strict=True):
        if y is not None:
            scale = float(y.abs().max()) if y.is_floating_point() else 0
            torch.testing.assert_close(x, y, rtol=bound, atol=bound * scale + 1e-2 * bound)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_fifty_sizes(name: str) -> None:
    sizes = _train(name, 50)
    programs = len(xla_dynamo.compiles())
    assert len(set(sizes)) > 20
    assert programs <= MODELS[name][3]


@pytest.mark.slow
def test_generation_with_a_cache_that_grows() -> None:
    """The generate() of transformers, for prompts of several sizes: the tokens of eager."""
    model: Any = hugging_face.llama_model(0.0).eval()
    model.config.use_cache = model.generation_config.use_cache = True
    exact = copy.deepcopy(model)
    model.forward = torch.compile(model.forward, backend="xla", options={"bucket": "powers_of_two"})
    draw, steps = random.Random(0), 0
    for _ in range(5):
        batch, length, more = draw.randint(2, 6), draw.randint(3, 9), draw.randint(3, 6)
        prompt = torch.randint(1, WORDS, (batch, length))
        options = {
            **{"max_new_tokens": more, "do_sample": False, "pad_token_id": 0},
            **{"output_logits": True, "return_dict_in_generate": True, "eos_token_id": None},
            "attention_mask": torch.ones_like(prompt),
        }
        found, expected = (each.generate(prompt, **options) for each in (model, exact))
        assert torch.equal(found.sequences, expected.sequences)
        torch.testing.assert_close(found.logits, expected.logits)
        steps += more
    assert len(xla_dynamo.compiles()) <= 8 < steps


@pytest.mark.parametrize("name", ["convnet", "dlrm"])
def test_three_sizes(name: str) -> None:
    _train(name, 3)
    assert len(xla_dynamo.compiles()) <= 2 * 3
