"""What the CPU's benchmark measures: names of models, at their sizes. Needs torch alone."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from .torch_dlrm import dlrm
from .torch_images import convnext, unet
from .torch_models import Problem, gpt, mnist, resnet18
from .torch_sequences import bert_layer, lstm

PROBLEMS: dict[str, Callable[[], Problem]] = {
    "mnist": mnist,
    "resnet18": partial(resnet18, batch=16, size=64),
    "resnet18_224": partial(resnet18, batch=8, size=224),
    "convnext": convnext,
    "unet": unet,
    "gpt": gpt,
    "bert": bert_layer,
    "lstm": lstm,
    "dlrm": dlrm,
}
