"""Graphs of torch.compile that are split at kernels, in a second process: no static pass runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import xla_dynamo
from tests.backend.graphs import traced
from tests.programs import run
from xla_dynamo.backend import options as compile_options
from xla_dynamo.backend.executable import known, known_split, static_program, torch_kernels
from xla_dynamo.backend.executable.request import Request
from xla_dynamo.backend.passes.contract import WayIn

STEP = """
import torch, xla_dynamo
from torch import nn
torch.manual_seed(0)
class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32)
        self.second = nn.Conv2d(32, 32, 9, padding=4, groups=32)
        self.layers, self.head = nn.LSTM(512, 128, batch_first=True), nn.Linear(128, 4)
    def forward(self, x):
        x = nn.functional.max_pool2d(self.norm(self.first(x)).relu(), 4).transpose(2, 3)
        y = nn.functional.dropout(x + self.second(x), 0.1)
        return self.head(self.layers(y.flatten(2)[:, :, :512])[0][:, -1]), y, y.detach()
model = Network()
compiled = torch.compile(model, backend="xla", dynamic=False)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
x = torch.randn(8, 3, 128, 64).to(memory_format=torch.channels_last)
for _ in range(3):
    optimizer.zero_grad()
    out, y, z = compiled(x)
    loss = out.square().mean() + y.mean()
    loss.backward()
    optimizer.step()
    print(loss.item(), y.stride(), z.stride())
model.eval()
with torch.no_grad():
    print([each.double().sum().item() for each in compiled(x)])
print(sum(value.double().sum() for value in model.state_dict().values()).item())
print([record.from_disk for record in xla_dynamo.compiles()], "specialize" in xla_dynamo.passes())
"""


def test_a_second_process_runs_no_static_pass_and_has_the_same_numbers(tmp_path: Path) -> None:
    first, second = (
        run("-c", STEP, XLA_DYNAMO_CACHE_DIR=str(tmp_path)).splitlines() for _ in range(2)
    )
    assert first[:5] == second[:5]
    assert first[5] == "[False, False, False] True"
    assert second[5] == "[True, True, True] False"


X, WEIGHT = torch.randn(4, 3, 48, 48), torch.randn(32, 3, 5, 5)
ASKED = Request("a name", "", frozenset(), 1, compile_options.parse(None, None), WayIn.COMPILE)


def _sines(x: Tensor, weight: Tensor) -> Tensor:
    return F.conv2d(x.sin(), weight)


def _key(asked: Request, function: Callable[..., Any] = _sines, **meta: Any) -> str | None:
    graph = traced(function, X, WEIGHT).graph
    next(iter(graph.nodes)).meta.update(meta)
    return known_split.key_of(graph, asked)


def test_what_is_asked_for_is_in_the_key() -> None:
    keys = {_key(ASKED), _key(dataclasses.replace(ASKED, name="other", reason="other"))}
    assert len(keys) == 1
    for changed in (
        {"resident": frozenset({1})},
        {"visible": 0},
        {"no_output_aliasing": True},
        {"updates": {0: 1}},
        {"stores": True},
    ):
        keys.add(_key(dataclasses.replace(ASKED, **changed)))
    keys.add(_key(ASKED, argument=True))
    keys.add(_key(ASKED, lambda x, weight: F.conv2d(x.cos(), weight)))
    assert None not in keys
    assert len(keys) == 8


def test_what_is_not_split_has_no_key() -> None:
    assert _key(ASKED, lambda x, weight: x.sin() + weight.sum()) is None
    xla_alone = dataclasses.replace(ASKED.options, cpu_kernels="xla")
    assert _key(dataclasses.replace(ASKED, options=xla_alone)) is None
    assert _key(dataclasses.replace(ASKED, way_in=WayIn.LAZY)) is None


def _fail(*arguments: Any) -> Any:
    raise RuntimeError("no such luck")


def test_a_kernel_from_disk_names_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = nn.Conv2d(3, 32, 5, bias=False)

    def compute(x: Tensor) -> Tensor:
        return layer(x.tan()).relu()

    want = compute(X)
    for again in (False, True):
        torch._dynamo.reset()
        xla_dynamo.reset_metrics()
        if again:
            kernels = torch_kernels.onednn_lstm.KERNELS
            monkeypatch.setitem(kernels, torch.ops.aten.convolution.default, lambda how: _fail)
        compiled = torch.compile(compute, backend="xla", dynamic=False)
        with torch.no_grad():
            if not again:
                torch.testing.assert_close(compiled(X), want, rtol=1e-4, atol=1e-4)
                continue
            with pytest.raises(RuntimeError, match="no such luck") as caught:
                compiled(X)
        [record] = xla_dynamo.compiles()
        assert record.from_disk
        assert record.location.startswith(str(Path(__file__)))
    assert f"{Path(__file__)}:" in "\n".join(caught.value.__notes__)


def test_a_program_that_is_gone_is_compiled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[Any] = []
    remember = known_split.remember

    def noted(key: str, turns: Any, whole: Any) -> None:
        kept.append(turns)
        remember(key, turns, whole)

    monkeypatch.setattr(static_program.known_split, "remember", noted)
    x = torch.randn(5, 3, 48, 48)

    def results() -> tuple[Tensor, bool]:
        torch._dynamo.reset()
        xla_dynamo.reset_metrics()
        compiled = torch.compile(lambda x, w: F.conv2d(x.sinh(), w), backend="xla", dynamic=False)
        result = compiled(x, WEIGHT)
        [record] = xla_dynamo.compiles()
        return result, record.from_disk

    want, from_disk = results()
    assert not from_disk
    [turns] = kept
    origin = turns.launches[0].program.origin
    (known._disk()._folder / origin.executable).write_bytes(b"damaged")
    for expected in (False, True):
        got, from_disk = results()
        assert torch.equal(got, want)
        assert from_disk == expected
    assert len(kept) == 2
