"""The debugging variables, and the text of what is pending: IR, dot, HLO, StableHLO."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch_xla
import torch_xla.core.xla_model as xm
from torch_xla.debug import graph_saver, metrics_saver, model_comparator, profiler
from torch_xla.distributed.parallel_loader import MpDeviceLoader

from tests.programs import python
from xla_dynamo.compat.execution import sync
from xla_dynamo.compat.reporting import debugging, ir_text, program_analysis

XLA = torch.device("xla:0")

_TRAINING = """
import torch, torch_xla, torch_xla.core.xla_model as xm
device = xm.xla_device()
x = torch.ones(3, 4).to(device)
xm.mark_step()
def step(rows):
    y = x[:rows] * 2.5
    xm.mark_step()
    return y.sum()
for rows in (3, 2, 3):
    print(step(rows).item())
"""


def pending() -> torch.Tensor:
    xm.mark_step()
    x, w = torch.ones(2, 3).to(XLA), torch.ones(3, 3).to(XLA)
    return torch.relu(x * 2.5 + 1).mm(w)


def test_ir() -> None:
    y = pending()
    assert ir_text.text([y]) == (
        "IR {\n"
        "  %0 = f32[2,3]{1,0} xla::device_data(), xla_shape=f32[2,3]{1,0}\n"
        "  %1 = f32[] xla::device_data(), xla_shape=f32[]\n"
        "  %2 = f32[2,3]{1,0} aten::mul(%0, %1), xla_shape=f32[2,3]{1,0}\n"
        "  %3 = s64[] xla::device_data(), xla_shape=s64[]\n"
        "  %4 = f32[2,3]{1,0} aten::add(%2, %3), xla_shape=f32[2,3]{1,0}\n"
        "  %5 = f32[2,3]{1,0} aten::relu(%4), xla_shape=f32[2,3]{1,0}\n"
        "  %6 = f32[3,3]{1,0} xla::device_data(), xla_shape=f32[3,3]{1,0}\n"
        "  %7 = f32[2,3]{1,0} aten::mm(%5, %6), xla_shape=f32[2,3]{1,0}, ROOT=0\n"
        "}\n"
    )


def test_ir_has_only_what_the_tensors_need() -> None:
    y = pending()
    z = torch.ones(5).to(XLA).exp()
    assert "aten::mm" not in ir_text.text([z])
    assert ir_text.text([z]).count("%") == 3
    assert "ROOT=1" in ir_text.text([y, z])


def test_ir_of_an_op_with_several_results() -> None:
    xm.mark_step()
    values, indices = torch.ones(2, 3).to(XLA).max(1)
    text = ir_text.text([indices, values * 2])
    assert "(f32[2]{0}, s64[2]{0}) aten::max(%0), num_outputs=2, dim=1" in text
    assert "aten::mul(%1.0, %2)" in text


def test_ir_locations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLA_IR_DEBUG", "1")
    xm.mark_step()
    y = torch.ones(2).to(XLA).exp()
    line = re.search(r"aten::exp\(%0\), location=(\S+)@(\S+):(\d+),", ir_text.text([y]))
    assert line is not None
    assert line[1] == "test_ir_locations"
    assert line[2] == "test_debugging.py"


def test_dot() -> None:
    text = ir_text.dot([pending()])
    assert text.startswith("digraph G {\n  node0 [label=")
    assert r'label="aten::relu\nf32[2,3]{1,0}\nxla_shape=f32[2,3]{1,0}"' in text
    assert "  node4 -> node5\n" in text
    assert '  node5 -> node7 [label="i=0"]\n' in text


def test_hlo_and_stablehlo() -> None:
    y = pending()
    hlo = ir_text.hlo([y])
    assert re.match(r"HloModule IrToHlo\.\d+, entry_computation_layout=\{\(f32\[2,3\]", hlo)
    assert "aten.relu" in hlo
    assert "select(" in hlo
    text = xm.get_stablehlo([y])
    assert re.match(r"module @IrToHlo\.\d+", text)
    assert "stablehlo.dot_general" in text
    assert "func.func @main(%arg0: tensor<2x3xf32>" in text
    assert xm.get_stablehlo_bytecode([y])[:4] == b"ML\xefR"
    torch.testing.assert_close(y.cpu(), torch.full((2, 3), 10.5))


def test_stablehlo_of_everything_that_is_pending() -> None:
    y = pending()
    z = torch.ones(7).to(XLA).exp()
    text = xm.get_stablehlo()
    assert "tensor<7xf32>" in text
    assert "-> (tensor<2x3xf32>, tensor<7xf32>)" in text
    assert y.device == z.device


def test_what_is_computed_has_no_text() -> None:
    y = pending()
    xm.mark_step()
    assert ir_text.text([y]) == "IR {\n}\n"
    assert ir_text.hlo([y]) == ""
    assert xm.get_stablehlo([y]) == ""


def test_the_text_of_random_ops_and_embeddings_lowers() -> None:
    xm.mark_step()
    table = torch.ones(4, 3).to(XLA)
    index = torch.tensor([1, 2]).to(XLA)
    y = torch.nn.functional.embedding(index, table) + torch.rand(2, 3, device=XLA)
    assert "aten::embedding" in ir_text.text([y])
    assert "stablehlo" in xm.get_stablehlo([y])


def test_graph_hashes_tell_programs_apart() -> None:
    first, again = ir_text.graph_hash([pending()]), ir_text.graph_hash([pending()])
    assert first == again
    assert len(first) == 16
    assert ir_text.graph_hash([pending() * 2]) != first


def test_debug_info() -> None:
    assert ir_text.debug_info(torch.ones(2)) == "Not a XLATensor\n"
    y = pending()
    info = ir_text.debug_info(y)
    assert info.startswith("XLATensor {\nTensorID: ")
    assert "XLA Shape: f32[2,3]\n" in info
    assert "IR: [] aten::mm, xla_shape=f32[2,3]{1,0}" in info
    assert "XLAData: None\n" in info
    xm.mark_step()
    info = ir_text.debug_info(y)
    assert "XLAData: None" not in info
    assert "  Data Shape: f32[2,3]\n" in info


@pytest.mark.parametrize(("kind", "start"), [("text", "IR {"), ("dot", "digraph"), ("hlo", "Hlo")])
def test_saving_graphs(
    kind: str, start: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SAVE_GRAPH_FMT", kind)
    graph_saver.save_tensors_graph(tmp_path, kind, [pending()])
    (path,) = tmp_path.iterdir()
    assert path.name.startswith(f"{kind}-")
    assert path.name.endswith(f"-0.{kind}")
    assert path.read_text().startswith(start)


def test_saving_metrics(tmp_path: Path) -> None:
    path = tmp_path / "metrics"
    xm.mark_step()
    metrics_saver.save_metrics(str(path))
    assert re.match(r"\[MetricsData; step=\d+\]\n(Metric|Counter): ", path.read_text())


def test_comparing_saved_tensors(tmp_path: Path) -> None:
    for folder, values in (("a", [1.0, 2.0, 3.0]), ("b", [1.0, 2.5, 3.0])):
        (tmp_path / folder).mkdir()
        model_comparator.configure(str(tmp_path / folder))
        y = model_comparator.save("logits", torch.tensor(values).to(XLA), step=2)
        assert y.device == XLA
    model_comparator.save("only_b", torch.ones(1))
    model_comparator.configure(None)
    report = model_comparator.compare(str(tmp_path / "a"), str(tmp_path / "b"))
    assert report == (
        f"Mismatch: only_b.0 not in {tmp_path / 'a'}\n"
        'Changes in saved tensor "logits" with id=0 at step=2\n  [1]: 2.0 vs. 2.5\terror=0.5\n'
    )


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder into which a run of _TRAINING wrote all that the variables can ask for."""
    folder = tmp_path_factory.mktemp("debugging")
    python(
        _TRAINING,
        PT_XLA_DEBUG="1",
        PT_XLA_DEBUG_FILE=str(folder / "analysis"),
        XLA_SAVE_TENSORS_FILE=str(folder / "graphs"),
        XLA_METRICS_FILE=str(folder / "metrics"),
    )
    return folder


def test_analysis_of_compiles_and_launches(written: Path) -> None:
    text = (written / "analysis").read_text()
    assert text.count("\nCompilation Analysis: Compilation Cause\n") == 4
    assert text.count("\nPost Compilation Analysis: Graph input size: 0.000000 GB\n") == 4
    assert text.count("\nExecution Analysis: Execution Cause\n") == 6
    assert "Compilation Analysis:   user torch_xla.sync\n" in text
    access = "most likely user code trying to access tensor value before torch_xla.sync"
    assert f"Compilation Analysis:   {access}\n" in text
    assert "argument end was 3, is 2 at" in text
    block = text.split("\n\n")[0].splitlines()
    assert block[1] == "Compilation Analysis: " + "=" * 80
    assert re.fullmatch(r"Compilation Analysis:   Graph Hash: [0-9a-f]{32}", block[7])
    assert block[8:11] == [
        "Compilation Analysis:   Number of Graph Inputs: 2",
        "Compilation Analysis:   Number of Graph Outputs: 1",
        "Compilation Analysis: Python Frame Triggered Execution: ",
    ]
    assert re.fullmatch(r"Compilation Analysis:   mark_step \(.*xla_model.py:\d+\)", block[11])
    assert re.fullmatch(r"Compilation Analysis:   step \(<string>:\d+\)", block[12])
    assert re.fullmatch(r"Compilation Analysis:   <module> \(<string>:\d+\)", block[13])


def test_graphs_of_torch_compile_are_shown(tmp_path: Path) -> None:
    python(
        """
        import torch, torch_xla
        x = torch.ones(4, 4, device=torch_xla.device())
        compiled = torch.compile(lambda x: x * 100, backend="openxla")
        for _ in range(2):
            compiled(x)
        """,
        PT_XLA_DEBUG="1",
        PT_XLA_DEBUG_FILE=str(tmp_path / "analysis"),
    )
    text = (tmp_path / "analysis").read_text()
    inputs = "torch_xla.sync when dynamo processing input graphs"
    assert re.findall(r"\nCompilation Analysis: Compilation Cause\n.*?:   (.*)\n", text) == [
        inputs,
        "dynamo is compiling a FX graph to HLO",
    ]
    executing = "dynamo is executing a compiled program"
    launches = re.findall(r"\nExecution Analysis: Execution Cause\n.*?:   (.*)\n", text)
    assert launches == [inputs, executing, executing]
    hashes = re.findall(r"Graph Hash: ([0-9a-f]{32})\n", text)
    assert hashes[0] == hashes[1] != hashes[2]
    assert len(set(hashes[2:])) == 1
    assert text.count("Compilation Analysis:   <module> (<string>:") == 2


def test_saving_every_graph(written: Path) -> None:
    text = (written / "graphs.0").read_text()
    assert text.startswith("[ScheduleSyncTensorsGraph]\nTensorsGraphInfo:\n  mark_step (")
    assert text.count("[ScheduleSyncTensorsGraph]") == 6
    assert text.count("## BEGIN_GRAPH\nIR {\n  %0 = f32[") == 6
    assert re.search(r"\nRoot Hashes: \([0-9a-f]{32}\)\n\n## BEGIN_GRAPH\n", text)
    assert re.search(r"\nGraph Hash: [0-9a-f]{32}\n\n## END_GRAPH\n", text)


def test_metrics_of_every_step(written: Path) -> None:
    text = (written / "metrics").read_text()
    assert re.findall(r"\[MetricsData; step=(\d+)\]\n", text) == ["0", "1", "2", "3"]
    assert "Counter: MarkStep\n  Value: 4\n" in text


def test_level_1_on_stderr_and_the_summary_at_exit(tmp_path: Path) -> None:
    printed = python(
        """
        import torch, torch_xla.core.xla_model as xm, warnings
        warnings.simplefilter("ignore")
        x = torch.ones(20, 4).to(xm.xla_device())
        for rows in range(1, 13):
            y = torch.linalg.lstsq(x[:rows] * 2, x[:rows])
            xm.mark_step()
        """,
        PT_XLA_DEBUG_LEVEL="1",
        XLA_SAVE_TENSORS_FILE=str(tmp_path / "graphs"),
        XLA_SAVE_TENSORS_FMT="hlo",
        XLA_METRICS_FILE="STDERR",
    )
    assert "Compilation Analysis: Compilation Cause" in printed
    assert "Execution Analysis" not in printed
    assert "[MetricsData; step=11]\nMetric: " in printed
    graphs = (tmp_path / "graphs.0").read_text()
    assert graphs.count("## BEGIN_GRAPH\nHloModule IrToHlo.") == 12
    lines = [line for line in printed.splitlines() if line.startswith("pt-xla-profiler: ")]
    assert lines == [
        "pt-xla-profiler: CompileTime too frequent: 12 counts during 12 steps",
        "pt-xla-profiler: TransferFromDeviceTime too frequent: 24 counts during 12 steps",
        "pt-xla-profiler: Op(s) not lowered: aten::linalg_lstsq, Please open a GitHub issue with "
        "the above op lowering requests.",
    ]


def test_without_the_variables_nothing_is_registered() -> None:
    printed = python(
        """
        from xla_dynamo.compat.device import step_barrier
        from xla_dynamo.compat.execution import compiled_graphs, program_cache, sync
        print(program_cache.on_compile, sync.on_launch, step_barrier._after_step)
        print(compiled_graphs.on_compile, compiled_graphs.on_launch)
        """
    )
    assert printed == "[] [] []\n[] []\n"


def _read(x: torch.Tensor) -> None:
    (x * 2).sum().item()


def _barrier(x: torch.Tensor) -> None:
    y = x * 2
    xm.mark_step()
    assert y.shape == x.shape


def _step_trace(x: torch.Tensor) -> None:
    with profiler.StepTrace("step"):
        y = x * 2
    assert y.shape == x.shape


def _compile(x: torch.Tensor) -> None:
    with torch_xla.compile():
        y = x * 2
    assert y.shape == x.shape


def _before_compile(x: torch.Tensor) -> None:
    y = x * 2
    with torch_xla.compile():
        pass
    assert y.shape == x.shape


def _loader(x: torch.Tensor) -> None:
    for y in MpDeviceLoader([torch.ones(3), torch.ones(3)], XLA):
        x = y + 1
    assert x.shape == (3,)


def _dynamo(x: torch.Tensor) -> None:
    y = torch.compile(lambda x: x * 3, backend="xla")(x * 2)
    assert y.shape == x.shape


@pytest.mark.parametrize(
    ("launch", "words"),
    [
        (_read, "most likely user code trying to access tensor value before torch_xla.sync"),
        (_barrier, "user torch_xla.sync"),
        (_step_trace, "torch_xla.sync when exiting a profiler StepTrace region"),
        (_compile, "torch_xla.compile"),
        (
            _before_compile,
            "torch_xla.compile clear the pending graph prior calling the target function",
        ),
        (_dynamo, "torch_xla.sync when dynamo processing input graphs"),
        (_loader, "torch_xla.sync in parallel loader at step end"),
    ],
)
def test_causes(
    launch: Callable[[torch.Tensor], None], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = torch.ones(3).to(XLA)
    profiler.set_tracer_marked_step(False)
    xm.mark_step()
    causes: list[str] = []
    monkeypatch.setattr(sync, "on_launch", [lambda *_: causes.append(program_analysis.cause())])
    launch(x)
    profiler.set_tracer_marked_step(False)
    assert set(causes) == {words}


def test_reading_the_variables() -> None:
    assert debugging.from_environment({}) == debugging.Debugging(0, None, None, "text", None)
    assert debugging.from_environment({"PT_XLA_DEBUG": "1"}).level == 100
    assert debugging.from_environment({"PT_XLA_DEBUG": "0"}).level == 0
    both = {"PT_XLA_DEBUG": "1", "PT_XLA_DEBUG_LEVEL": "2", "XLA_SAVE_TENSORS_FMT": "HLO"}
    assert debugging.from_environment(both).level == 2
    assert debugging.from_environment(both).graph_format == "hlo"
