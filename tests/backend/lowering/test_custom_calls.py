"""Custom ops that an exported program keeps as calls by name."""

from __future__ import annotations

import re

import xla_dynamo.compat  # noqa: F401  # isort: skip
import pytest
import torch
from torch_xla.stablehlo import StableHLOExportOptions, exported_program_to_stablehlo

from xla_dynamo.errors import UnsupportedOp

_library = torch.library.Library("calls_by_name", "DEF")
_library.define("halves(Tensor x, int dim, Tensor y) -> (Tensor, Tensor)")


@torch.library.impl(_library, "halves", "Meta")
def _halves(x: torch.Tensor, dim: int, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    shape = list(x.shape)
    shape[dim] //= 2
    return x.new_empty(shape), y.new_empty(y.shape[1:], dtype=torch.int64)


class _Model(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        half, counts = torch.ops.calls_by_name.halves(x.sin(), 1, y)
        return half.cos() + counts.sum()


def test_an_op_of_a_namespace_that_is_allowed_stays_a_call() -> None:
    program = torch.export.export(_Model(), (torch.ones(2, 6), torch.ones(4, 3)))
    options = StableHLOExportOptions(custom_ops_allowed_in_graph={"calls_by_name"})
    module = exported_program_to_stablehlo(program, options)
    (call,) = re.findall(r".*custom_call.*", module.get_stablehlo_text())
    assert "@calls_by_name.halves.default(" in call
    assert ": (tensor<2x6xf32>, tensor<4x3xf32>) -> (tensor<2x3xf32>, tensor<3xi64>)" in call
    # It was for that program alone.
    with pytest.raises(UnsupportedOp, match=r"calls_by_name\.halves"):
        exported_program_to_stablehlo(program)


def test_an_op_that_is_lowered_is_no_call() -> None:
    program = torch.export.export(torch.nn.Softmax(-1), (torch.ones(2, 6),))
    options = StableHLOExportOptions(custom_ops_allowed_in_graph={"aten"})
    assert "custom_call @aten" not in (
        exported_program_to_stablehlo(program, options).get_stablehlo_text()
    )
