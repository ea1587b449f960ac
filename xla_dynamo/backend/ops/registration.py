"""Registers a custom op: its body runs in eager, its fake infers the shape of its result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def op(
    schema: str | None = None, *, fake: Callable[..., Any] | None = None
) -> Callable[[Callable[..., Any]], Any]:
    """Register the decorated body as the op `xla_dynamo::<its name>`.

    schema: default: by the annotations of the body.
    fake: default: the body itself, which then must read no values.
    """

    def register(body: Callable[..., Any]) -> Any:
        name = f"xla_dynamo::{body.__name__}"
        made = torch.library.custom_op(name, body, mutates_args=(), schema=schema)
        made.register_fake(fake or body)
        return made

    return register
