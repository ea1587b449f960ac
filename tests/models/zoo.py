"""The models of the test-suite as a table: name -> how to build it, and a batch for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from . import attention, convnets, hugging_face, sequences


@dataclass(frozen=True)
class Model:
    """build: dropout probability -> module whose forward returns the loss of a batch.
    batch: the arguments of forward; floating-point ones take the dtype under test.
    dropout: the probability that the model trains with; 0 where it has none.
    """

    build: Callable[[float], nn.Module]
    batch: Callable[[], tuple[Tensor, ...]]
    dropout: float = 0.0


def _images(size: int, count: int, channels: int = 3) -> Callable[[], tuple[Tensor, ...]]:
    return lambda: (torch.randn(count, channels, size, size), torch.randint(10, (count,)))


def _tokens(vocabulary: int, length: int = 10) -> Callable[[], tuple[Tensor, ...]]:
    return lambda: tuple(torch.randint(1, vocabulary, (3, length)) for _ in range(2))


def _masked_tokens() -> tuple[Tensor, ...]:
    tokens, labels = _tokens(50)()
    mask = torch.ones_like(tokens)
    mask[0, 6:] = 0
    labels[:, ::2] = -100  # not part of the loss
    return tokens, mask, labels


def _segmentation() -> tuple[Tensor, ...]:
    return torch.randn(2, 3, 16, 16), torch.randint(5, (2, 16, 16))


def _clicks() -> tuple[Tensor, ...]:
    offsets = torch.tensor([0, 3, 3, 7, 10, 16])  # the second bag is empty
    return torch.randn(6, 5), torch.randint(30, (3, 20)), offsets, torch.rand(6).round()


def _noisy() -> tuple[Tensor, ...]:
    return torch.randn(2, 3, 8, 8), torch.randint(1000, (2,)), torch.randn(2, 3, 8, 8)


def _recurrent(kind: type[nn.RNNBase]) -> Model:
    return Model(lambda p: sequences.Recurrent(kind, p), _tokens(20, 7), dropout=0.3)


def _dlrm(mode: str) -> Model:
    return Model(lambda _: sequences.Dlrm(mode), _clicks)


ZOO: dict[str, Model] = {
    "mlp": Model(convnets.Mlp, lambda: (torch.randn(8, 20), torch.randint(10, (8,)))),
    "mnist": Model(convnets.Mnist, _images(28, 8, channels=1), dropout=0.5),
    "resnet18": Model(
        lambda _: convnets.ResNet(convnets.BasicBlock, (2, 2, 2, 2), 8), _images(64, 4)
    ),
    "resnet50": Model(
        lambda _: convnets.ResNet(convnets.Bottleneck, (3, 4, 6, 3), 4), _images(64, 4)
    ),
    "unet_bilinear": Model(lambda _: convnets.UNet("bilinear"), _segmentation),
    "unet_nearest": Model(lambda _: convnets.UNet("nearest"), _segmentation),
    "gpt": Model(attention.Gpt, _tokens(50), dropout=0.1),
    "vit": Model(lambda p: attention.Vit(p, masked=False), _images(32, 4), dropout=0.1),
    "vit_masked": Model(lambda p: attention.Vit(p, masked=True), _images(32, 4), dropout=0.1),
    "diffusion": Model(attention.DiffusionBlock, _noisy, dropout=0.1),
    "lstm": _recurrent(nn.LSTM),
    "gru": _recurrent(nn.GRU),
    "rnn": _recurrent(nn.RNN),
    "dlrm_sum": _dlrm("sum"),
    "dlrm_mean": _dlrm("mean"),
    "dlrm_max": _dlrm("max"),
    "hf_bert": Model(hugging_face.bert, _masked_tokens, dropout=0.1),
    "hf_gpt2": Model(hugging_face.gpt2, _tokens(50), dropout=0.1),
    "hf_llama": Model(hugging_face.llama, _tokens(50), dropout=0.1),
    "hf_t5": Model(hugging_face.t5, _masked_tokens, dropout=0.1),
    "hf_vit": Model(hugging_face.vit, _images(16, 4), dropout=0.1),
}
