"""A default device of the user's (`with torch.device("xla")`, set_default_device) is the user's."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
import torch_xla
from torch import nn

ROOT = Path(__file__).parents[2] / "xla_dynamo"
FACTORIES = {
    *("arange", "empty", "empty_strided", "eye", "full", "linspace", "ones", "rand", "randint"),
    *("randn", "randperm", "scalar_tensor", "tensor", "zeros"),
}
# Modules of the user's, and a script of its own: they follow the default device, or have none.
FOLLOW = {
    "compat/torch_xla/experimental/xla_quantized_matmul.py",
    "compat/torch_xla/utils/tf_record_reader.py",
    "doctor.py",
}


@contextmanager
def _set_default_device() -> Iterator[None]:
    torch.set_default_device("xla")
    try:
        yield
    finally:
        torch.set_default_device(None)


@pytest.mark.parametrize("default", [lambda: torch.device("xla"), _set_default_device, None])
def test_programs_are_the_same(default: Callable[[], torch.device] | None) -> None:
    sizes = {None: 5, _set_default_device: 7}.get(default, 9)  # shapes that no test has used yet
    place = torch_xla.device() if default is None else default()
    with place:
        torch_xla.manual_seed(1)
        layer = nn.Linear(sizes, 3)
        x = torch.randn(11, sizes, requires_grad=True)
        torch_xla.sync()
        assert layer.weight.device == x.device == torch.device("xla:0")
        compiled = torch.compile(lambda t: torch.softmax(t, -1).cumsum(0), backend="openxla")
        results = [torch.quantile(x, 0.25), (x > 0).nonzero(), compiled(x), nn.LSTM(sizes, 2)(x)[0]]
    # And after it: nothing that was inferred within is left.
    layer(x).sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad.cpu(), layer.weight.sum(0).cpu().expand(11, -1))
    host = x.detach().cpu()
    expected = [torch.quantile(host, 0.25), (host > 0).nonzero(), torch.softmax(host, -1).cumsum(0)]
    for result, value in zip(results[:3], expected, strict=True):
        torch.testing.assert_close(result.detach().cpu(), value)
    assert results[3].shape == (11, 2)


def test_what_is_made_here_says_where() -> None:
    missing = [
        f"{path.relative_to(ROOT)}:{call.lineno}"
        for path in sorted(ROOT.rglob("*.py"))
        if str(path.relative_to(ROOT)) not in FOLLOW
        for call in ast.walk(ast.parse(path.read_text()))
        if isinstance(call, ast.Call) and _is_factory(call.func) and not _has_device(call)
    ]
    assert missing == []


def _is_factory(function: ast.expr) -> bool:
    return (
        isinstance(function, ast.Attribute)
        and isinstance(function.value, ast.Name)
        and function.value.id == "torch"
        and function.attr in FACTORIES
    )


def _has_device(call: ast.Call) -> bool:
    return any(keyword.arg in (None, "device") for keyword in call.keywords)
