"""What `make bench` measures, and where it writes its tables: docs/benchmarks.md and README.md.

JAX's models are PyTorch's: test_tpu.py compares those that it compiles, too; the others are here.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest
import torch

from benchmarks import __main__ as bench
from benchmarks import (
    cpu,
    cpu_losses,
    jax_models,
    operator_page,
    replicas,
    start,
    torch_models,
    turns,
)
from benchmarks.cpu_problems import PROBLEMS
from benchmarks.torch_dlrm import dlrm
from benchmarks.torch_images import convnext, unet
from benchmarks.torch_models import Problem
from benchmarks.torch_sequences import bert_layer, lstm

ROOT = Path(__file__).parents[1]


def test_summary_has_a_row_for_each_model():
    rows = [
        {"problem": "gpt", "engine": "xla", "step_milliseconds": 12.34},
        {"problem": "gpt", "engine": "jax", "error": "..."},
        {"problem": "mnist", "engine": "xla", "step_milliseconds": 5.0},
        {"problem": "mnist", "engine": "jax", "step_milliseconds": 6.06},
    ]
    ratios = {"flops": 0.987, "bytes_accessed": 1.0}
    models = [SimpleNamespace(problem=name, ratio=ratios.get) for name in ("gpt", "mnist")]
    assert bench.summary(rows, models).splitlines() == [
        "| model | `torch.compile`, ms | JAX, ms | TPU FLOPs / JAX's | TPU bytes / JAX's |",
        "|---|--:|--:|--:|--:|",
        "| gpt | 12.3 | failed | 0.99 | 1.00 |",
        "| mnist | 5.0 | 6.1 | 0.99 | 1.00 |",
    ]


@pytest.mark.parametrize("page", [bench.PAGE, bench.README])
def test_pages_have_the_markers(page, tmp_path):
    copy = tmp_path / page.name
    copy.write_text((ROOT / page).read_text())
    bench.replace_section(copy, "\nnew\n\n")
    before, rest = copy.read_text().split("<!-- benchmarks -->\n")
    assert rest.startswith("\nnew\n\n<!-- /benchmarks -->\n")
    assert (ROOT / page).read_text().startswith(before)


def test_page_is_what_would_be_written():
    """The words around the tables are those of the next run."""
    text = (ROOT / bench.PAGE).read_text()
    for part in bench.TEXT.split("\n\n"):
        assert part.startswith("{") or part.strip() in text


def test_single_operators(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "docs").mkdir()
    operator_page.SUMMARY.write_text((ROOT / operator_page.SUMMARY).read_text())
    operator_page.publish([operator_page.Result("scans", "cumsum", "forward", 1.0, 2.0)], 2)
    assert "| scans | 1 | 0.50 | 0.50 | cumsum, forward |" in operator_page.SUMMARY.read_text()
    assert "| cumsum | forward | 1.00 | 2.00 | 0.50 |" in operator_page.PAGE.read_text()


def test_table_compares_with_three_engines():
    measured = {"mode": "training", "problem": "lstm", "first_step_seconds": 1.25}
    rows = [
        {**measured, "engine": "xla", "step_milliseconds": 30.0, "peak_megabytes": 9},
        {**measured, "engine": "jax", "error": "..."},
        {**measured, "engine": "eager", "step_milliseconds": 7.5, "peak_megabytes": 8},
        {**measured, "engine": "eager", "mode": "inference", "step_milliseconds": 1.0},
    ]
    assert cpu.table(rows, "training").splitlines() == [
        "| model | engine | first step, s | step, ms | step / xla | step / eager | step / inductor "
        "| peak memory, MB |",
        "|---|---|--:|--:|--:|--:|--:|--:|",
        "| lstm | xla | 1.2 | 30.0 | 1.00 | 4.00 |  | 9 |",
        "| lstm | jax | failed | | | | | |",
        "| lstm | eager | 1.2 | 7.50 | 0.25 | 1.00 |  | 8 |",
    ]


def test_a_part_is_measured_and_no_page_written(tmp_path, monkeypatch, capsys):
    """There is no page to write in this folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "benchmarks").mkdir()
    jobs = []

    def measure(mode: str, model: str, engines: dict[str, str], seconds: float):
        jobs.append((mode, *engines, model))
        return [{"mode": mode, "engine": e, "problem": model, "error": "not run"} for e in engines]

    monkeypatch.setattr(cpu, "measure", measure)
    chosen = ["--only", "cpu", "--models", "lstm,unet", "--engines", "eager,torch_xla"]
    monkeypatch.setattr(sys, "argv", ["bench", *chosen])
    bench.main()
    expected = [
        (mode, "eager", name) for mode in ("training", "inference") for name in ("lstm", "unet")
    ]
    assert jobs == expected
    assert "| unet | eager | failed |" in capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", ["bench", *chosen[2:]])
    with pytest.raises(SystemExit):
        bench.main()
    assert "add --only cpu" in capsys.readouterr().err


def test_an_engine_that_hangs_is_a_failure(monkeypatch):
    monkeypatch.setattr(turns, "LIMIT", 0.01)
    (row,) = cpu.measure("inference", "dlrm", {"eager": sys.executable}, 0.0)
    assert row["error"] == "took longer than 0.01 seconds"


FAKE = """
import itertools, sys
name = sys.argv[2]
for line in itertools.chain(["first"], sys.stdin):
    print(name, line.strip(), file=open("turns.txt", "a"))
    if (name, line) == ("dies", "0.5\\n"):
        sys.exit("has died")
    print("ready", flush=True)
print('{"step_milliseconds": 1.0}')
"""


def test_engines_take_turns(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fake.py").write_text(FAKE)
    monkeypatch.setattr(cpu, "SCRIPT", tmp_path / "fake.py")
    monkeypatch.setattr(cpu, "TURNS", 2)
    engines = {"dies": sys.executable, "lives": sys.executable}
    dead, alive = cpu.measure("training", "gpt", engines, 1.0)
    of_both = ["dies first", "lives first", "dies 0.5", "lives 0.5", "lives 0.5"]
    assert (tmp_path / "turns.txt").read_text().splitlines() == of_both
    assert (dead["engine"], dead["error"]) == ("dies", "has died")
    assert (alive["engine"], alive["problem"], alive["step_milliseconds"]) == ("lives", "gpt", 1.0)


def test_tables_that_are_not_measured_stay(tmp_path):
    page = tmp_path / "page.md"
    page.write_text((ROOT / bench.PAGE).read_text())
    texts = bench.written(page)
    assert texts["overhead"].startswith("| call |")
    bench.replace_section(page, bench.TEXT.format(**{**texts, "tpu": "new"}))
    assert bench.written(page) == {**texts, "tpu": "new"}
    page.write_text(page.read_text().replace("What a call costs", "What"))
    with pytest.raises(ValueError, match="write it whole"):
        bench.written(page)


def test_an_unknown_name_is_refused():
    with pytest.raises(argparse.ArgumentTypeError, match="no 'c': there are a, b"):
        cpu.some_of(("a", "b"))("a,c")


def test_engine_needs_torch_alone(tmp_path):
    """As in an environment of torch_xla; it finds the models by its own path."""
    program = (
        "import runpy, sys; sys.modules.update(dict.fromkeys(('jax', 'xla_dynamo', 'rich')));"
        f"sys.argv[0] = {str(cpu.SCRIPT)!r}; runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "inference", "eager", "dlrm"],
        input="0\n0\n",
        env={**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "PYTHONPATH": ""},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    *readies, row = done.stdout.splitlines()
    assert readies == [turns.READY] * 3
    row = json.loads(row)
    assert (row["mode"], row["engine"], row["problem"]) == ("inference", "eager", "dlrm")
    assert len(set(row["losses"])) == 1


def test_every_model_is_written_in_jax():
    names = {make().name for make in PROBLEMS.values()}
    assert names <= cpu_losses.TRAINING.keys()
    assert names <= cpu_losses.EVALUATION.keys()


SMALL = [
    convnext(batch=2, size=32, widths=(4, 6), depth=2),
    unet(batch=1, size=8, width=8),
    bert_layer(batch=2, length=5, width=24, dropout=0.0),
    lstm(batch=2, length=6, vocabulary=11, narrow=3, width=5),
    dlrm(batch=6, tables=3, bag=2, rows=7, width=4),
]


@pytest.mark.parametrize("problem", SMALL, ids=lambda problem: problem.name)
def test_same_loss_and_gradients_as_jax(problem: Problem):
    """Of parameters that are all random: none is so small that it hides others."""
    model, batch = _with_random_parameters(problem)
    loss = model(*batch)
    loss.backward()
    parameters, buffers, _ = jax_models.state_of(model)
    inputs = jax_models.inputs_of(batch)
    grad = jax.jit(jax.value_and_grad(cpu_losses.EVALUATION[problem.name], has_aux=True))
    (value, _), gradients = grad(parameters, buffers, jax.random.key(0), *inputs)
    _assert_close(value, loss.detach())
    for name, parameter in model.named_parameters():
        _assert_close(gradients[name], parameter.grad)


@pytest.mark.parametrize(
    "problem",
    [torch_models.mnist(batch=2), torch_models.resnet18(batch=2, size=32)],
    ids=lambda problem: problem.name,
)
def test_jax_evaluates_as_pytorch(problem: Problem):
    """Those that evaluation does another way than training."""
    model, batch = _with_random_parameters(problem)
    for name, buffer in model.named_buffers():
        if name.endswith(("mean", "var")):
            buffer.uniform_(0.5, 2)
    parameters, buffers, _ = jax_models.state_of(model)
    run = jax_models.evaluation(cpu_losses.EVALUATION[problem.name])
    value = run(parameters, buffers, jax.random.key(0), *jax_models.inputs_of(batch))
    _assert_close(value, model.eval()(*batch).detach())


def test_jax_draws_dropout_by_the_key():
    model, batch = bert_layer(batch=2, length=5, width=24).build()
    parameters, buffers, _ = jax_models.state_of(model)
    run = jax_models.evaluation(cpu_losses.TRAINING["bert_layer"])
    inputs = jax_models.inputs_of(batch)
    losses = [float(run(parameters, buffers, jax.random.key(k), *inputs)) for k in (0, 0, 1)]
    assert losses[0] == losses[1] != losses[2]


def _with_random_parameters(problem: Problem) -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    model, batch = problem.build()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
    return model, batch


def _assert_close(actual: jax.Array, expected: torch.Tensor | None) -> None:
    torch.testing.assert_close(torch.from_numpy(np.array(actual)), expected, rtol=1e-4, atol=1e-5)


def test_tables_of_the_beginning():
    first = {("gpt", "xla"): (5.0, 4.0), ("gpt", "aot_eager"): (3.0, 3.0)}
    assert start.first_table(first).splitlines()[2:] == [
        "| gpt | `torch.compile` | 5.0 | 4.0 | 0.80 |",
        "| gpt | PyTorch's part of the first | 3.0 | 3.0 | 1.00 |",
    ]
    assert start.tiny_table({"JAX": (0.84, 224.3)}).splitlines()[2:] == ["| JAX | 0.8 | 224 |"]


def test_a_fresh_process_is_measured():
    seconds, peak = start.process(sys.executable, "import json", "0")
    assert 0 < seconds < 5
    assert 5 < peak < 100


def test_replicas_beside_jax(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside JAX in as many processes: each runs twice, in turns, and the faster run counts."""
    ran: list[tuple[str, int]] = []

    def run(engine: str, count: int) -> replicas.Times:
        ran.append((engine, count))
        slower = float([each for each, _ in ran].count(engine) % 2)
        times = (1.0 + 2 * slower, 2.0) if engine.startswith("jax") else (4.0 + slower, 4.0)
        return {"step": (2.0, 1.0), "all_reduce": times}

    monkeypatch.setattr(replicas, "run", run)
    lines = list(replicas.rows([2, 4], list(replicas.BESIDE)))
    assert [engine for engine, count in ran if count == 4] == [
        *(("jax", "spmd", "spmd step", "threads", "threads step") * 2),
        *(("jax processes", "processes", "processes step") * 2),
        *(("jax both", "both", "both step") * 2),
    ]
    assert ("both", 2) not in ran
    assert "| 2 | jax | 2.00 |  | 1.00 |  | 1.00 |  | 2.00 |  | 16.78 |" in lines
    assert "| 4 | both | 2.00 | 1.00 | 1.00 | 1.00 | 4.00 | 4.00 | 4.00 | 2.00 | 4.19 |" in lines


def test_times_of_processes() -> None:
    found = [{"step": (1.0, 2.0)}, {"step": (5.0, 3.0)}]
    assert replicas.together(found) == {"step": (1.0, 5.0)}
