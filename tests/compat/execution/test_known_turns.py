"""Graphs that are split at PyTorch's kernels, in a second process: no pass runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import torch_xla.core.xla_model as xm
from torch.nn import functional as F

import xla_dynamo
from tests.like_eager.lazy import XLA
from tests.programs import run
from xla_dynamo.backend.executable import array_parts, known, known_turns
from xla_dynamo.backend.graph import plain
from xla_dynamo.compat.execution import known_programs, program_cache
from xla_dynamo.compat.recording import pending

STEP = """
import torch, xla_dynamo, xla_dynamo.compat
import torch_xla.core.xla_model as xm
from torch import nn
torch.manual_seed(0)
device = xm.xla_device()
class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32)
        self.second = nn.Conv2d(32, 32, 9, padding=4, groups=32)
        self.layers, self.head = nn.LSTM(192, 128, batch_first=True), nn.Linear(128, 4)
    def forward(self, x):
        x = nn.functional.max_pool2d(self.norm(self.first(x)).relu(), 4).transpose(2, 3)
        x = nn.functional.dropout(x + self.second(x.permute(0, 2, 3, 1).permute(0, 3, 1, 2)), 0.1)
        return self.head(self.layers(x.flatten(2)[:, :, :192])[0][:, -1])
model = Network().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
x = torch.randn(8, 3, 64, 64).to(device)
for _ in range(3):
    optimizer.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    xm.optimizer_step(optimizer, barrier=True)
    print(loss.item())
print(sum(value.double().sum() for value in model.state_dict().values()).item())
print([record.from_disk for record in xla_dynamo.compiles()], bool(xla_dynamo.passes()))
"""


def test_a_second_process_runs_no_pass_and_has_the_same_numbers(tmp_path: Path) -> None:
    first, second = (
        run("-c", STEP, XLA_DYNAMO_CACHE_DIR=str(tmp_path)).splitlines() for _ in range(2)
    )
    assert first[:4] == second[:4]
    assert "True" not in first[4].partition("]")[0]
    assert "False" not in second[4].partition("]")[0]
    assert second[4].endswith("False")  # no pass ran


@pytest.fixture
def weight() -> torch.Tensor:
    return torch.randn(32, 3, 5, 5).to(XLA)


def _forget() -> None:
    program_cache._runs.clear()
    for trace in pending.traces():
        trace.forget_programs()
    xla_dynamo.reset_metrics()


def _kept(monkeypatch: pytest.MonkeyPatch) -> list[array_parts.InTurn]:
    """What is remembered from now on."""
    found: list[array_parts.InTurn] = []
    remember = known_programs.remember

    def noted(key: str, run: Any, *details: Any) -> None:
        found.append(run)
        remember(key, run, *details)

    monkeypatch.setattr(known_programs, "remember", noted)
    return found


def test_results_of_all_kinds_come_back(
    weight: torch.Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, x = _kept(monkeypatch), torch.randn(4, 3, 48, 48)
    on_device = x.to(XLA)
    xm.mark_step()

    def compute(weight: torch.Tensor, x: torch.Tensor) -> list[torch.Tensor]:
        turned = weight.flip(2).transpose(2, 3)
        y = F.conv2d(x.sin(), turned)
        z = F.conv2d(x.contiguous(memory_format=torch.channels_last).cos(), turned)
        return [y, y.permute(0, 2, 3, 1), y[:, :2], z, turned, x.sum(), weight.transpose(0, 1)]

    want = compute(weight.cpu(), x)
    xm.mark_step()
    for again in (False, True):
        _forget()
        got = compute(weight, on_device)
        xm.mark_step()
        records = xla_dynamo.compiles()
        assert [record.from_disk for record in records] == [again]
        assert bool(xla_dynamo.passes()) != again
        for one, other in zip(got, want, strict=True):
            torch.testing.assert_close(one.cpu(), other, rtol=1e-4, atol=1e-4)
            assert one.stride() == other.stride()
        del got
        xm.mark_step()
    [whole] = [run for run in kept if isinstance(run, array_parts.InTurn)]
    told = array_parts.to_json(whole)
    assert told is not None
    json.dumps(told[0])


@pytest.mark.parametrize("which", ["first", "last"])
def test_a_program_that_is_gone_is_compiled_again(
    which: str, weight: torch.Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, x = _kept(monkeypatch), torch.randn(4, 3, 30, 30 if which == "first" else 31).to(XLA)
    xm.mark_step()

    def total() -> float:
        return (F.conv2d(x.sin(), weight).tanh().sum() * 2).item()

    want = total()
    [whole] = [run for run in kept if isinstance(run, array_parts.InTurn)]
    told = array_parts.to_json(whole)
    assert told is not None
    origin = told[1][0 if which == "first" else -1].origin
    assert origin is not None
    (known._disk()._folder / origin.executable).write_bytes(b"damaged")
    _forget()
    assert total() == want
    assert [record.from_disk for record in xla_dynamo.compiles()] == [False]
    _forget()
    assert total() == want
    assert [record.from_disk for record in xla_dynamo.compiles()] == [True]
    assert not xla_dynamo.passes()


def test_a_kernel_from_disk_names_the_line_and_loses_its_results_alone(
    weight: torch.Tensor,
) -> None:
    x = torch.randn(4, 3, 40, 40).to(XLA)
    xm.mark_step()

    def compute() -> tuple[torch.Tensor, torch.Tensor]:
        return x.sum(), F.conv2d(x.sin(), weight)

    for again in (False, True):
        _forget()
        with pytest.MonkeyPatch.context() as patch:
            if again:
                kernels = known_turns.torch_kernels.onednn_lstm.KERNELS
                patch.setitem(kernels, torch.ops.aten.convolution.default, lambda how: _fail)
            total, y = compute()
            if not again:
                xm.mark_step()
                del total, y
                continue
            with pytest.raises(RuntimeError, match="no such luck") as caught:
                xm.mark_step()
    assert xla_dynamo.compiles()[0].from_disk
    notes = "\n".join(caught.value.__notes__)
    assert f"{Path(__file__)}:" in notes
    torch.testing.assert_close(total.cpu(), x.cpu().sum())
    with pytest.raises(RuntimeError, match="no such luck"):
        y.cpu()


def _fail(*arguments: Any) -> Any:
    raise RuntimeError("no such luck")


def test_a_part_that_runs_in_eager_is_not_kept() -> None:
    graph = torch.fx.Graph()
    graph.output([])
    with pytest.raises(plain.NotPlain):
        known_turns.to_json(known_turns.Turns(graph, {}, [lambda values: values]))


def test_a_report_has_the_ops_of_a_window_from_disk(weight: torch.Tensor) -> None:
    x = torch.randn(4, 3, 26, 26).to(XLA)
    xm.mark_step()

    def total() -> float:
        return F.conv2d(x.sin(), weight).relu().sum().item()

    want = total()
    _forget()
    with xla_dynamo.report("-") as report:
        assert [total(), total()] == [want, want]
        found = report.run()
    [program] = found.programs
    assert program.runs == 2
    assert "convolution" in " ".join(op.name for op in program.graph)
