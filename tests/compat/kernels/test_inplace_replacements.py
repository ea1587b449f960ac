"""In-place ops that PyTorch's functionalization takes wrongly, on tensors and parts of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch_xla  # noqa: F401
from torch import Tensor

from tests.like_eager.lazy import XLA, assert_same


def _numbers(device: Any) -> Tensor:
    return torch.arange(1.0, 13.0, device=device).reshape(4, 3)


WRITES: dict[str, Callable[[Tensor], object]] = {
    "polygamma_": lambda x: x.polygamma_(2),
    "polygamma_ of a part": lambda x: x[1:, 1].polygamma_(2),
    "as_strided_": lambda x: x.as_strided_((2, 2), (3, 1)),
    "resize_": lambda x: x.clone().resize_(2, 2),
    "resize_ of a row": lambda x: x[1].resize_(2),
    "resize_ that changes nothing": lambda x: x[1:].resize_(3, 3),
}


@pytest.mark.parametrize("name", WRITES)
def test_as_in_eager(name: str) -> None:
    def run(device: Any) -> list[object]:
        x = _numbers(device)
        return [WRITES[name](x), x]

    assert_same(run(XLA), run("cpu"))


def test_what_would_show_memory_around_a_part_is_an_error() -> None:
    x = _numbers(XLA)
    with pytest.raises(RuntimeError, match="resize_: a part of a tensor"):
        x[1].resize_(5)
    with pytest.raises(RuntimeError, match="as_strided_: where a part of a tensor"):
        x[1:].as_strided_((2, 2), (3, 1))
    assert_same([x], [_numbers("cpu")])


@pytest.mark.parametrize("op", ["logit_", "erfinv_", "polygamma_", "sinc_", "i0_"])
@pytest.mark.parametrize("dtype", [torch.int64, torch.bool], ids=str)
def test_integers_hold_no_fractions(op: str, dtype: torch.dtype) -> None:
    def run(device: Any) -> str:
        x = torch.ones(3, dtype=dtype, device=device)
        with pytest.raises(RuntimeError) as raised:
            getattr(x, op)(*([1] if op == "polygamma_" else []))
        return str(raised.value)

    assert run(XLA) == run("cpu")
