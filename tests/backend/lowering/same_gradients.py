"""A function of ours has the results and the gradients of eager's."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor


def assert_same(
    eager: Callable[..., Tensor],
    ours: Callable[..., Tensor],
    inputs: Sequence[Tensor],
    of_bfloat16: float,
) -> None:
    """Within 1e-4, or `of_bfloat16` where the first input is; gradients by their largest number."""
    bound = of_bfloat16 if inputs[0].dtype == torch.bfloat16 else 1e-4
    want, got = eager(*inputs), ours(*inputs)
    torch.testing.assert_close(got, want, rtol=bound, atol=bound)
    grad = torch.randn_like(want)
    gradients = [torch.autograd.grad(made, inputs, grad) for made in (want, got)]
    for theirs, mine in zip(*gradients, strict=True):
        bounds = {"rtol": bound, "atol": bound * float(theirs.abs().max())}
        torch.testing.assert_close(mine, theirs, **bounds)
