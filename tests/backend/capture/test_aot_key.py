"""When AOTAutograd's cache gives nothing: what differs, and what no key tells apart."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import xla_dynamo

from .aot_programs import Program, assert_bitwise, outcome, scaled, switched

pytestmark = pytest.mark.usefixtures("aot_folder")


def of_argument(x: Tensor) -> Program:
    return lambda: torch.compile(lambda x: (x + 1) * x, backend="xla")(x).sum()


def cast_to(dtype: torch.dtype) -> Program:
    def program() -> Tensor:
        with torch.autocast("cpu", dtype):
            return torch.compile(lambda x: x @ x, backend="xla")(torch.eye(4) / 3)

    return program


def flash(on: bool) -> Program:
    def program() -> Tensor:
        q = torch.randn(1, 2, 4, 8)
        attention = torch.compile(nn.functional.scaled_dot_product_attention, backend="xla")
        before = torch.backends.cuda.flash_sdp_enabled()
        torch.backends.cuda.enable_flash_sdp(on)
        try:
            return attention(q, q, q)
        finally:
            torch.backends.cuda.enable_flash_sdp(before)

    return program


SIXTEEN = torch.linspace(0, 1, 16)
DIFFERENT: dict[str, tuple[Program, Program]] = {
    "a constant": (scaled(2), scaled(3)),
    "an option": (scaled(2), scaled(2, options={"numerics": "xla"})),
    "a gradient": (of_argument(torch.ones(4)), of_argument(torch.ones(4, requires_grad=True))),
    "a dtype": (of_argument(torch.ones(4)), of_argument(torch.ones(4, dtype=torch.float64))),
    "a size": (of_argument(torch.ones(4)), of_argument(torch.ones(5))),
    "strides": (of_argument(torch.ones(3, 4)), of_argument(torch.ones(4, 3).t())),
    "memory": (of_argument(SIXTEEN[:8]), of_argument(SIXTEEN[4:12])),
    "autocast": (cast_to(torch.bfloat16), cast_to(torch.float16)),
    "a switch of PyTorch's": (flash(True), flash(False)),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_what_differs_is_not_hit(name: str) -> None:
    first, second = DIFFERENT[name]
    outcome(first)
    result, counts = outcome(second)
    assert counts == {"hit": 0, "miss": 1, "saved": 1, "bypass": 0}
    with switched(False):
        expected, _ = outcome(second)
    assert_bitwise(result, expected)


class Squares(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
        return grad * 7


@torch.library.custom_op("xla_dynamo_test::thrice", mutates_args=())
def thrice(x: Tensor) -> Tensor:
    return x * 3


thrice.register_fake(lambda x: torch.empty_like(x))


def compiled_call(function: Callable[..., Any], *arguments: Any, **how: Any) -> Program:
    return lambda: torch.compile(function, backend="xla", **how)(*arguments)


DECLINED: dict[str, Program] = {
    "sizes that are symbols": compiled_call(torch.sin, torch.ones(4), dynamic=True),
    "arguments that share memory": compiled_call(torch.add, SIXTEEN[:8], SIXTEEN[8:]),
    "a function of autograd's": compiled_call(Squares.apply, torch.ones(4, requires_grad=True)),
    "control flow": compiled_call(
        lambda x: torch.cond(x.sum() > 3, torch.sin, torch.cos, (x,)), torch.ones(4)
    ),
    "no disk cache": compiled_call(torch.sin, torch.ones(4), options={"disk_cache": False}),
}


@pytest.mark.parametrize("name", DECLINED)
@pytest.mark.filterwarnings("ignore::xla_dynamo.FallbackWarning")
def test_what_no_key_tells_apart_is_not_kept(name: str, aot_folder: Path) -> None:
    results = [outcome(DECLINED[name]) for _ in range(2)]
    assert not any(any(counts.values()) for _, counts in results)
    assert_bitwise(results[0][0], results[1][0])
    assert not aot_folder.exists() or not list(aot_folder.iterdir())


@pytest.mark.filterwarnings("ignore::xla_dynamo.FallbackWarning")
def test_an_op_of_the_users_is_not_kept(aot_folder: Path) -> None:
    _, counts = outcome(compiled_call(lambda x: thrice(x) + 1, torch.ones(4)))
    assert not any(counts.values())
    assert not aot_folder.exists() or not list(aot_folder.iterdir())


def test_stages_are_shown_of_all_passes() -> None:
    outcome(scaled(2))
    with xla_dynamo.capture() as captured:
        _, counts = outcome(scaled(2))
    assert not any(counts.values())
    assert captured
