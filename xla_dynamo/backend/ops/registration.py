"""Registers a custom op: its body runs in eager, its fake infers the shape of its result.

Where the rule of an op declines, the op runs on the CPU; or, if it is in `COMPOSED`, its body
stands in its place: other ops, which have rules.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

COMPOSED: dict[Any, Callable[..., Any]] = {}  # body by op


def op(
    schema: str | None = None,
    *,
    fake: Callable[..., Any] | None = None,
    composed: bool = False,
    random: bool = False,
) -> Callable[[Callable[..., Any]], Any]:
    """Register the decorated body as the op `xla_dynamo::<its name>`.

    schema: default: by the annotations of the body.
    fake: default: the body itself, which then must read no values.
    composed: whether the body, which then reads no values, can be traced in the op's place.
    random: whether it draws from PyTorch's generator.
    """

    def register(body: Callable[..., Any]) -> Any:
        name = f"xla_dynamo::{body.__name__}"
        tags = [torch.Tag.nondeterministic_seeded] if random else None
        made = torch.library.custom_op(name, body, mutates_args=(), schema=schema, tags=tags)
        made.register_fake(fake or body)
        if composed:
            COMPOSED[getattr(torch.ops.xla_dynamo, body.__name__).default] = body
        return made

    return register
