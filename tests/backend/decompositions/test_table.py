"""Which ops are decomposed: those without a rule, in PyTorch's way or ours."""

from __future__ import annotations

import torch

from xla_dynamo.backend.decompositions import table
from xla_dynamo.backend.decompositions.mended import MENDED
from xla_dynamo.backend.lowering.registry import rule_of

aten = torch.ops.aten


def test_an_op_with_a_rule_is_left_whole() -> None:
    found = table.decompositions()
    assert aten.addcmul.default in table.core()
    assert not [op for op in table.core() if rule_of(op) and op in found and op not in MENDED]


def test_what_is_wrong_in_pytorch_is_not_taken() -> None:
    assert aten._scaled_dot_product_flash_attention_for_cpu.default not in table.core()
    for op, ours in MENDED.items():
        assert table.core()[op] is ours


def test_a_trace_of_views_knows_all_decompositions() -> None:
    assert table.traced_decompositions().keys() >= table.decompositions().keys()
