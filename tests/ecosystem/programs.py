"""Small programs of libraries: each trains or samples, and returns numbers that eager gives too.

A program takes `place`, which brings a module or tensor to where it computes, and `compiled`, which
is torch.compile(backend="xla") or nothing. Models are tiny, and nothing is downloaded.
"""

# The libraries are installed in the lane's environment only.
# pyright: reportMissingImports=false, reportUnknownVariableType=false

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Door = Callable[[Any], Any]
Program = Callable[[Door, Door], list[Tensor]]


def steps(model: nn.Module, loss: Callable[[], Tensor], count: int = 3) -> list[Tensor]:
    """Losses of SGD."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    losses = []
    for _ in range(count):
        optimizer.zero_grad()
        value = loss()
        value.backward()
        optimizer.step()
        losses.append(value.detach())
    return losses


def _llama(**settings: Any) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    return LlamaForCausalLM(LlamaConfig(**sizes, num_attention_heads=4, **settings))


def transformers_trains(place: Door, compiled: Door) -> list[Tensor]:
    model = place(_llama())
    call, tokens = compiled(model), place(torch.arange(24).reshape(2, 12))
    return steps(model, lambda: call(input_ids=tokens, labels=tokens).loss)


def transformers_generates(place: Door, compiled: Door) -> list[Tensor]:
    model = place(_llama()).eval()
    model.forward = compiled(model.forward)
    tokens = place(torch.arange(8)[None])
    return [model.generate(tokens, max_new_tokens=4, do_sample=False, pad_token_id=0)]


def peft_trains(place: Door, compiled: Door) -> list[Tensor]:
    from peft import LoraConfig, get_peft_model

    model = place(get_peft_model(_llama(), LoraConfig(r=4, target_modules=["q_proj", "v_proj"])))
    call, tokens = compiled(model), place(torch.arange(24).reshape(2, 12))
    return steps(model, lambda: call(input_ids=tokens, labels=tokens).loss)


def timm_trains(place: Door, compiled: Door) -> list[Tensor]:
    import timm

    vit = {"img_size": 32, "patch_size": 8, "embed_dim": 32, "depth": 2, "num_heads": 2}
    model = place(timm.create_model("vit_tiny_patch16_224", num_classes=5, **vit))
    call, images = compiled(model), place(torch.randn(4, 3, 32, 32))
    labels = place(torch.arange(4))
    return steps(model, lambda: F.cross_entropy(call(images), labels))


def diffusers_samples(place: Door, compiled: Door) -> list[Tensor]:
    from diffusers import DDIMScheduler, UNet2DModel

    blocks = {"block_out_channels": (8, 16), "norm_num_groups": 4, "layers_per_block": 1}
    kinds = {"down_block_types": ("DownBlock2D",) * 2, "up_block_types": ("UpBlock2D",) * 2}
    model = place(UNet2DModel(sample_size=16, **blocks, **kinds)).eval()
    call, scheduler = compiled(model), DDIMScheduler()
    scheduler.set_timesteps(4)
    images = place(torch.randn(1, 3, 16, 16))
    with torch.no_grad():
        for time in scheduler.timesteps:
            noise = call(images, time).sample
            images = scheduler.step(noise, time, images).prev_sample
    return [images]


def ignite_trains(place: Door, compiled: Door) -> list[Tensor]:
    from ignite.engine import Engine

    model = place(nn.Linear(8, 3))
    call, optimizer = compiled(model), torch.optim.SGD(model.parameters(), lr=0.1)

    def update(engine: Any, batch: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(call(place(batch)), place(torch.arange(3)))
        loss.backward()
        optimizer.step()
        return loss.detach()

    engine = Engine(update)
    engine.run([torch.ones(3, 8), torch.zeros(3, 8)], max_epochs=2)
    return [engine.state.output, *model.parameters()]


def torchvision_detects(place: Door, compiled: Door) -> list[Tensor]:
    from torchvision.models.detection import FasterRCNN
    from torchvision.models.detection.rpn import AnchorGenerator
    from torchvision.ops import MultiScaleRoIAlign

    backbone: Any = nn.Sequential(nn.Conv2d(3, 8, 3, 4, 1), nn.ReLU(), nn.Conv2d(8, 16, 3, 2, 1))
    backbone.out_channels = 16
    top = {f"rpn_{when}_nms_top_n_test": 30 for when in ("pre", "post")}
    model = FasterRCNN(
        backbone,
        num_classes=3,
        min_size=64,
        max_size=64,
        rpn_anchor_generator=AnchorGenerator(((8, 16, 32),), ((0.5, 1.0, 2.0),)),
        box_roi_pool=MultiScaleRoIAlign(["0"], 3, 2),
        box_score_thresh=0.0,
        **top,
    )
    call, image = compiled(place(model).eval()), place(torch.rand(3, 64, 64))
    with torch.no_grad():
        (found,) = call([image])
    return [found["boxes"], found["scores"], found["labels"]]


PROGRAMS: Mapping[str, Program] = MappingProxyType(
    {
        "transformers: trains": transformers_trains,
        "transformers: generates": transformers_generates,
        "peft: trains": peft_trains,
        "timm: trains": timm_trains,
        "diffusers: samples": diffusers_samples,
        "pytorch-ignite: trains": ignite_trains,
        "torchvision: detects": torchvision_detects,
    }
)
