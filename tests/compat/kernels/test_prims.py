"""torch.prims on tensors of the device, against the same on the CPU."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch_xla  # noqa: F401
from torch import Tensor

import xla_dynamo
from tests.like_eager.lazy import assert_lockstep

prims = torch.ops.prims

VIEWS: dict[str, Callable[[Tensor], Tensor]] = {
    "view_of": prims.view_of,
    "squeeze": lambda x: prims.squeeze(x, [1]),
    "squeeze of nothing": lambda x: prims.squeeze(x, []),
    "split_dim": lambda x: prims.split_dim(x, 2, 2),
    "transpose": lambda x: prims.transpose(x, [2, 0, 1]),
    "broadcast_in_dim": lambda x: prims.broadcast_in_dim(x, [3, 2, 1, 4], [1, 2, 3])[0],
    "collapse_view": lambda x: prims.collapse_view(x, 0, 2),
    "as_strided": lambda x: prims.as_strided(x, [2, 2], [1, 3], 1),
}


@pytest.mark.parametrize("name", VIEWS)
def test_a_write_to_a_view_reaches_its_base(name: str) -> None:
    def run(x: Tensor) -> list[Tensor]:
        view = VIEWS[name](x)
        view.add_(10)
        return [x, view]

    assert_lockstep(run, torch.arange(8.0).reshape(2, 1, 4))


def test_copy_to() -> None:
    assert_lockstep(lambda x, y: (prims.copy_to(x, y), x), torch.zeros(2, 3), torch.ones(2, 3))


def test_ops_that_stand_for_others_are_traced_at_a_barrier() -> None:
    """A barrier comes from below a kernel, where PyTorch leaves out functionalization."""
    import torch.ao.quantization.fx._decomposed

    x = torch.arange(-3, 3, dtype=torch.int8)
    dequantize = torch.ops.quantized_decomposed.dequantize_per_tensor.default
    xla_dynamo.reset_metrics()
    for device in ("cpu", "xla:0"):
        got = dequantize(x.to(device), 0.1, 2, -128, 127, torch.int8).cpu()
        torch.testing.assert_close(got, (x - 2) * 0.1)
        assert torch.ops.prims.prod(torch.full((2, 3), 2.0, device=device), (0, 1)).item() == 64
        v, m = torch.ones(3, device=device), torch.ones(3, 4, device=device)
        assert torch.matmul(v, m).tolist() == [3.0] * 4
    assert not [name for name in xla_dynamo.counters() if name.startswith("fallback")]
