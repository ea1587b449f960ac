"""Ops that raise when they run, and what their results say when they are read."""

from __future__ import annotations

import traceback

import pytest
import torch
from torch import Tensor

X = torch.arange(6.0).reshape(2, 3)
REFUSED = "not for odd sums"


class Odd(ValueError):
    """Says more than its message."""

    def __init__(self, total: float) -> None:
        super().__init__(total)

    def __str__(self) -> str:
        return f"{REFUSED}: {self.args[0]}"


@torch.library.custom_op("failed_windows::even", mutates_args=())
def even(x: Tensor) -> Tensor:
    if x.sum() % 2:
        raise Odd(x.sum().item())
    return x * 2


even.register_fake(torch.empty_like)
even.register_autograd(lambda context, grad: 2 * grad)


@torch.library.custom_op("failed_windows::both", mutates_args=())
def both(x: Tensor) -> tuple[Tensor, Tensor]:
    raise TypeError("never")


both.register_fake(lambda x: (torch.empty_like(x), torch.empty_like(x)))


def failed(tensor: Tensor) -> str:
    """The error that reading a tensor raises, the same at each time."""
    texts = set()
    for _ in range(2):
        with pytest.raises(Odd, match=REFUSED) as raised:
            tensor.cpu()
        texts.add("".join(traceback.format_exception_only(raised.value)))
    return texts.pop() if len(texts) == 1 else f"{texts}"
