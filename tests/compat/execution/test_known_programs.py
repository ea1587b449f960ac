"""Programs of earlier processes: found by the path of a trace, and only where all is the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch_xla  # noqa: F401
import torch_xla.core.xla_model as xm

import xla_dynamo
from tests.like_eager.lazy import XLA
from tests.programs import run
from xla_dynamo.backend.executable import known
from xla_dynamo.backend.runtime import pjrt
from xla_dynamo.compat.execution import known_programs, program_cache, recompile_reason
from xla_dynamo.compat.recording import pending

STEP = """
import torch, xla_dynamo, xla_dynamo.compat
import torch_xla.core.xla_model as xm
torch.manual_seed(0)
device = xm.xla_device()
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 2))
model = model.to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    loss = model(torch.ones(3, 4, device=device)).square().mean()
    loss.backward()
    xm.optimizer_step(optimizer, barrier=True)
    print(loss.item())
print([record.from_disk for record in xla_dynamo.compiles()], bool(xla_dynamo.passes()))
"""


def test_a_second_process_lowers_nothing(tmp_path: Path) -> None:
    first, second = (
        run("-c", STEP, XLA_DYNAMO_CACHE_DIR=str(tmp_path)).splitlines() for _ in range(2)
    )
    assert first[:3] == second[:3]  # losses
    assert "True" not in first[3].partition("]")[0]
    assert "False" not in second[3].partition("]")[0]
    assert second[3].endswith("False")  # no pass ran


def key(compute: Callable[[torch.Tensor], Any], x: torch.Tensor | None = None) -> str | None:
    """The key of a trace that is dropped afterwards."""
    x = torch.ones(2, 3, device=XLA) if x is None else x
    xm.mark_step()
    result = compute(x)
    (trace,) = [trace for trace in pending.traces() if trace.values]
    live = tuple(range(len(trace.values)))
    found = known_programs.key_of(
        trace, live, (), recompile_reason.compile_options(), pjrt.device("cpu", asynchronous=True)
    )
    del result
    xm.mark_step()
    return found


def test_equal_traces_have_equal_keys() -> None:
    assert key(lambda x: x * 2.5 + 1) == key(lambda x: x * 3.5 + 1)  # numbers are inputs
    assert key(torch.sin) is not None


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (torch.sin, torch.cos),
        (lambda x: x.sum(0), lambda x: x.sum(1)),
        (lambda x: x.sum(0), lambda x: x.sum(0, keepdim=True)),
        (lambda x: x.to(torch.float64), lambda x: x.to(torch.int64)),
        (lambda x: x.clamp(min=0), lambda x: x.clamp(max=0)),
        (lambda x: x + torch.tensor(1.0), lambda x: x + torch.tensor(1.0, dtype=torch.float64)),
        (lambda x: torch.full_like(x, 0.0), lambda x: torch.full_like(x, -0.0)),
        (lambda x: torch.full_like(x, 1), lambda x: torch.full_like(x, True)),
        (lambda x: (x.sin(), x.cos()), lambda x: (x.cos(), x.sin())),
    ],
)
def test_other_ops_and_arguments_have_other_keys(one: Any, other: Any) -> None:
    assert key(one) != key(other)


def test_other_inputs_have_other_keys() -> None:
    x = torch.ones(2, 3, device=XLA)
    keys = {key(torch.sin, each) for each in (x, x[:1], x.double(), x.T, x.clone())}
    assert len(keys) == 4


def test_what_lives_and_dies_is_in_the_key() -> None:
    x = torch.ones(2, device=XLA)
    xm.mark_step()
    y = x + 1
    (trace,) = [trace for trace in pending.traces() if trace.values]
    options, device = recompile_reason.compile_options(), pjrt.device("cpu", asynchronous=True)
    keys = {
        known_programs.key_of(trace, live, dead, options, device)
        for live, dead in (((0,), ()), ((0,), (0,)), ((), ()))
    }
    del y
    assert len(keys) == 3


@torch.library.custom_op("known_programs::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


twice.register_fake(torch.empty_like)


def test_what_another_process_may_define_otherwise_has_no_key() -> None:
    doubled = xla_dynamo.jax_function(lambda x: x * 2)
    assert key(lambda x: torch.ops.aten.sin(x)) is not None
    assert key(lambda x: doubled(x + 1)) is None
    assert key(lambda x: twice(x + 1)) is None


def test_an_executable_that_is_gone_is_compiled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[str] = []
    remember = known.remember

    def noted(key: str, executables: Any, details: Any) -> None:
        found.append(executables[0].origin.executable)
        remember(key, executables, details)

    monkeypatch.setattr(known, "remember", noted)

    def total() -> float:
        return (torch.ones(7, 11, device=XLA).sinh() * 3).sum().item()

    def forget() -> None:
        program_cache._runs.clear()
        for trace in pending.traces():
            trace.forget_programs()
        xla_dynamo.reset_metrics()

    first = total()
    forget()
    assert total() == first
    assert [record.from_disk for record in xla_dynamo.compiles()] == [True]
    assert not xla_dynamo.passes()
    forget()
    disk = known._disk()
    (disk._folder / found[0]).write_bytes(b"damaged")
    assert total() == first
    assert [record.from_disk for record in xla_dynamo.compiles()] == [False]
