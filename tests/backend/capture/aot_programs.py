"""Programs of the tests of AOTAutograd's cache, each run as if in a process of its own."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._dynamo.utils import counters
from torch._functorch import config as functorch_config

Program = Callable[[], Any]


@contextlib.contextmanager
def switched(on: bool) -> Iterator[None]:
    """As TORCHINDUCTOR_AUTOGRAD_CACHE does, which PyTorch reads when it is imported."""
    setting = functorch_config._config["enable_autograd_cache"]  # pyright: ignore
    before, setting.env_value_force = setting.env_value_force, on
    try:
        yield
    finally:
        setting.env_value_force = before


def outcome(program: Program) -> tuple[Any, dict[str, int]]:
    """What a program gives in what is like a new process, and what the cache did."""
    torch.compiler.reset()
    counters.clear()
    torch.manual_seed(3)
    result = program()
    names = ("hit", "miss", "saved", "bypass")
    return result, {n: counters["aot_autograd"][f"autograd_cache_{n}"] for n in names}


def assert_bitwise(actual: Any, expected: Any) -> None:
    torch.testing.assert_close(actual, expected, rtol=0, atol=0, equal_nan=True)


def scaled(by: float, **how: Any) -> Program:
    x = torch.linspace(-1, 1, 8)
    return lambda: torch.compile(lambda x: torch.sin(x * by), backend="xla", **how)(x)
