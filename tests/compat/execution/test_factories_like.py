"""Factories that take a tensor make theirs where they are told to, like it or not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tests.programs import python

Factory = Callable[..., Tensor]
FACTORIES: dict[str, Factory] = {
    "zeros_like": torch.zeros_like,
    "ones_like": torch.ones_like,
    "empty_like": torch.empty_like,
    "full_like": lambda x, **options: torch.full_like(x, 2.5, **options),
    "rand_like": torch.rand_like,
    "randn_like": torch.randn_like,
    "randint_like": lambda x, **options: torch.randint_like(x, 3, 9, **options),
    "new_zeros": lambda x, **options: x.new_zeros((2, 3), **options),
    "new_ones": lambda x, **options: x.new_ones((2, 3), **options),
    "new_empty": lambda x, **options: x.new_empty((2, 3), **options),
    "new_empty_strided": lambda x, **options: x.new_empty_strided((2, 3), (1, 2), **options),
    "new_full": lambda x, **options: x.new_full((2, 3), 7.0, **options),
    "new_tensor": lambda x, **options: x.new_tensor([1.0, 2.0], **options),
}
WITH_VALUES = ("zeros", "ones", "full", "tensor")


@pytest.mark.parametrize("device", ["cpu", "meta", "xla:0", "xla", None])
@pytest.mark.parametrize("name", FACTORIES)
def test_the_device_is_the_one_that_is_named(name: str, device: str | None) -> None:
    make, host = FACTORIES[name], torch.ones(3, 4).t()
    made = make(torch.ones(3, 4, device="xla:0").t(), **({"device": device} if device else {}))
    want = make(host)
    assert made.device == torch.device("xla:0" if device in (None, "xla") else device)
    assert (made.shape, made.stride(), made.dtype) == (want.shape, want.stride(), want.dtype)
    if device != "meta" and any(word in name for word in WITH_VALUES):
        assert torch.equal(made.cpu(), want)


@pytest.mark.parametrize("device", ["cpu", "xla:0"])
@pytest.mark.parametrize("name", FACTORIES)
def test_other_options_count_too(name: str, device: str) -> None:
    make, host = FACTORIES[name], torch.ones(3, 4).t()
    options: dict[str, object] = {"dtype": torch.float64, "requires_grad": True}
    if name.endswith("like"):
        options["memory_format"] = torch.contiguous_format
    made, want = (
        make(torch.ones(3, 4, device="xla:0").t(), device=device, **options),
        make(host, **options),
    )
    assert made.device == torch.device(device)
    assert (made.shape, made.stride(), made.dtype) == (want.shape, want.stride(), want.dtype)
    assert made.requires_grad
    assert made.is_leaf


def test_another_device_of_the_same_kind() -> None:
    printed = python(
        """
        import torch
        x = torch.ones(2, 3, device="xla:0")
        for y in (torch.zeros_like(x, device="xla:1"), x.new_full((2,), 5.0, device="xla:1")):
            print(y.device, y.tolist())
        """,
        CPU_NUM_DEVICES="2",
    )
    assert printed.splitlines() == ["xla:1 [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]", "xla:1 [5.0, 5.0]"]
