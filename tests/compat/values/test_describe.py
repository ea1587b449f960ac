"""Ops, arguments and lines as text."""

from __future__ import annotations

import pytest
import torch

from xla_dynamo.compat.values import describe, source_location
from xla_dynamo.compat.values.trie import Number
from xla_dynamo.compat.values.values import meta

aten = torch.ops.aten


@pytest.mark.parametrize(
    ("op", "name"),
    [
        (aten.add.Tensor, "aten.add.Tensor"),
        (aten.exp.default, "aten.exp"),
        (aten.view_copy.default, "aten.view"),  # the user called view()
    ],
)
def test_ops_by_their_names(op: object, name: str) -> None:
    assert describe.op_name(op) == name


def test_lines_with_their_text() -> None:
    location = source_location.user_location()
    assert location is not None
    assert location.function == "test_lines_with_their_text"
    line = location.line
    text = describe.where(location)
    assert text.endswith("(location = source_location.user_location())")
    assert f"test_describe.py:{line} " in text
    assert describe.where(None) == "(no source line)"


@pytest.mark.parametrize(
    ("argument", "text"),
    [
        (meta(torch.Size([2, 3]), torch.float32).input(1), "%arg1 float32[2, 3]"),
        (Number(0, float), "a number (float)"),
        (Number(0, torch.int64), "a number (int64)"),
        ([1, None], "[1, None]"),
        ("floor", "floor"),
    ],
)
def test_arguments(argument: object, text: str) -> None:
    assert describe.show(argument) == text
