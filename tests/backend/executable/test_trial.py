"""A program that ends libtpu's process is a refused one, and this process lives.

libtpu compiles for a topology, the CPU runs what is left: no TPU is here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import pytest
import torch
from torch import Tensor, nn

import xla_dynamo
from xla_dynamo.backend.executable import trial
from xla_dynamo.backend.options import parse
from xla_dynamo.backend.runtime import cache, pjrt, topology, trial_process
from xla_dynamo.backend.runtime.trial_process import Verdict
from xla_dynamo.backend.tpu_cost import analyze, analyze_training_step
from xla_dynamo.errors import CompileError, UnsupportedOp

WORDS = "Unsupported CVT X{64|128} expansion from f64[4] to c128[4]"
DEATH, SURVIVED = Verdict("SIGABRT", WORDS), Verdict()


@xla_dynamo.jax_function
def fatal(x: Any) -> Any:
    """libtpu 0.0.42.1 aborts on complex128, which here is in no tensor: nothing declines it."""
    return abs(jax.lax.complex(x, x))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return fatal(self.weight * x).sum()


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = cache.DiskCache(tmp_path, 2**30)
    monkeypatch.setattr(cache, "configured", lambda: disk)


@pytest.fixture
def on_tpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Graphs are lowered and tried as for a TPU; then the CPU compiles and runs them."""
    monkeypatch.setattr(pjrt, "platform", lambda of: "tpu")
    monkeypatch.setattr(trial_process, "topology_of", lambda device: "v5e:2x2")


@pytest.fixture
def trials(monkeypatch: pytest.MonkeyPatch) -> list[Verdict | None]:
    """What becomes of the next trials, which then need no process; popped as they come."""
    left: list[Verdict | None] = []
    monkeypatch.setattr(trial_process, "compile_apart", lambda *_: left.pop(0))
    return left


def counted() -> dict[str, int]:
    return {k: v for k, v in xla_dynamo.counters().items() if k.startswith("trial")}


@pytest.mark.tpu
def test_an_analysis_outlives_the_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = Model(), [torch.ones(4, dtype=torch.float64)]
    message = (
        r"(?s)libtpu ends the process that compiles the training step of Model for v5e:2x2 "
        r"\(SIGABRT\).*Unsupported CVT.* known to compile for a TPU: xla_dynamo.jax_call.default at"
        r".*trial_compile"
    )
    with pytest.raises(CompileError, match=message):
        analyze_training_step(model, x)
    assert counted() == {"trial_compiles": 1}

    def unexpected(*_: object) -> None:
        raise AssertionError("it is tried again")

    monkeypatch.setattr(trial_process, "compile_apart", unexpected)
    with pytest.raises(CompileError, match=message):
        analyze_training_step(model, x)
    assert counted() == {"trial_compiles": 1, "trial_compiles.known": 1}


@pytest.mark.tpu
def test_an_analysis_without_trials_is_libtpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither of a program of proved ops, nor where the user wants none."""
    linear, x = nn.Sequential(nn.Linear(4, 1), nn.Flatten(0)), [torch.randn(1, 4)]
    assert analyze_training_step(linear, x).flops > 0
    assert counted() == {}
    asked: list[str] = []
    monkeypatch.setattr(topology, "compile", lambda module, name: asked.append(name) or [None])
    analyze_training_step(Model(), [torch.ones(4, dtype=torch.float64)], trial_compile="never")
    assert (asked, counted()) == (["v5e:2x2"], {})


def test_what_would_end_the_process_runs_on_the_cpu(
    on_tpu: None, trials: list[Verdict | None]
) -> None:
    trials += [DEATH]
    x = torch.randn(4, dtype=torch.float64)
    compiled = torch.compile(lambda x: fatal(x) + 1, backend="xla")
    with pytest.warns(xla_dynamo.FallbackWarning, match="libtpu ends the process that compiles"):
        torch.testing.assert_close(compiled(x), x.abs() * 2**0.5 + 1)
    assert (trials, counted()) == ([], {"trial_compiles": 1})


def test_or_is_an_error(on_tpu: None, trials: list[Verdict | None]) -> None:
    trials += [DEATH]
    compiled = torch.compile(lambda x: fatal(x), backend="xla", options={"fallback": "error"})
    here = r"(?s)libtpu ends .*jax_call.default at \S*test_trial.py:\d+.*never"
    with pytest.raises(UnsupportedOp, match=here):
        compiled(torch.randn(4, dtype=torch.float64))


def test_what_survives_is_compiled(on_tpu: None, trials: list[Verdict | None]) -> None:
    trials += [SURVIVED]
    x = torch.randn(4, dtype=torch.float64)
    options = {"fallback": "error"}
    torch.testing.assert_close(
        torch.compile(torch.sinh, backend="xla", options=options)(x), x.sinh()
    )
    assert (trials, counted()) == ([], {"trial_compiles": 1})


def test_a_trial_that_tells_nothing_is_made_again(trials: list[Verdict | None]) -> None:
    """The other process was killed for memory, say: the program is compiled, and nothing kept."""
    trials += [None, DEATH]
    given, chosen = torch.ones(4, dtype=torch.float64), parse(None, None)
    lowered, graph = analyze._lowered(Model(), [given], chosen)
    trial.survive(lowered, graph, "v5e:2x2", chosen, {}, "it")
    with pytest.raises(CompileError, match="compiles it"):
        trial.survive(lowered, graph, "v5e:2x2", chosen, {}, "it")
    assert trials == []


@pytest.mark.parametrize(
    ("choice", "dtype", "tried"),
    [
        ("unproved", torch.float32, 0),
        ("unproved", torch.float64, 1),
        ("always", torch.float32, 1),
        ("never", torch.float64, 0),
    ],
)
def test_what_is_tried(
    choice: str,
    dtype: torch.dtype,
    tried: int,
    on_tpu: None,
    trials: list[Verdict | None],
) -> None:
    trials += [SURVIVED] * tried
    compiled = torch.compile(torch.tanh, backend="xla", options={"trial_compile": choice})
    compiled(torch.randn(4, dtype=dtype))
    assert counted().get("trial_compiles", 0) == tried


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_an_ordinary_step_is_not_tried(dtype: torch.dtype, on_tpu: None) -> None:
    """Nobody waits twice for a compile without need."""
    layers = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 5)
    model = torch.compile(nn.Sequential(*layers).to(dtype), backend="xla")
    logits = model(torch.randn(2, 3, 8, 8, dtype=dtype))
    nn.functional.cross_entropy(logits, torch.zeros(2, dtype=torch.int64)).backward()
    assert len(xla_dynamo.compiles()) == 2
    assert counted() == {}


def test_other_platforms_try_nothing(trials: list[Verdict | None]) -> None:
    torch.compile(torch.tanh, backend="xla", options={"trial_compile": "always"})(torch.randn(4))
    assert counted() == {}


def test_devices_of_unknown_kinds_are_not_tried(
    trials: list[Verdict | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pjrt, "platform", lambda of: "tpu")
    torch.compile(torch.tanh, backend="xla", options={"trial_compile": "always"})(torch.randn(4))
    assert counted() == {}


def test_without_a_disk_cache_verdicts_are_not_kept(trials: list[Verdict | None]) -> None:
    trials += [DEATH, SURVIVED]
    model, x = Model(), torch.ones(4, dtype=torch.float64)
    chosen = parse({"disk_cache": False}, None)
    lowered, graph = analyze._lowered(model, [x], chosen)
    with pytest.raises(CompileError, match="compiles it"):
        trial.survive(lowered, graph, "v5e:2x2", chosen, {}, "it")
    trial.survive(lowered, graph, "v5e:2x2", chosen, {}, "it")
    assert counted() == {"trial_compiles": 2}
