"""torch_xla.stablehlo: programs with and without weights, the folder of torch_xla 2.9, calls."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch_xla
from torch import Tensor, nn
from torch_xla.stablehlo import (
    StableHLOExportOptions,
    StableHLOGraphModule,
    exported_program_to_stablehlo,
    save_as_stablehlo,
    save_torch_model_as_stablehlo,
)

X = torch.linspace(-1, 1, 6).reshape(2, 3)


class Model(nn.Module):
    """A parameter, a buffer, a constant, an int, and results in a dict."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 2)
        self.shift = nn.Buffer(torch.tensor([1.0, 2.0]))

    def forward(self, x: Tensor, power: int) -> dict[str, Any]:
        y = nn.functional.gelu(self.linear(x)) + self.shift / torch.tensor(3.0)
        return {"y": y**power, "none": None, "rows": [x.sum(1)]}


def exported(model: nn.Module | Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    if not isinstance(model, nn.Module):
        wrapped, model = model, nn.Module()
        model.forward = wrapped
    return torch.export.export(model.eval(), args, kwargs)


@pytest.fixture
def model() -> Model:
    torch.manual_seed(0)
    return Model()


def files(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


WEIGHTS = ["linear.bias", "linear.weight", "lifted_tensor_0", "shift"]
FUNCTION = [f"functions/forward.{kind}" for kind in ("bytecode", "meta", "mlir")]


def test_the_folder_is_torch_xlas(model: Model, tmp_path: Path) -> None:
    save_as_stablehlo(exported(model, X, 2), tmp_path)
    assert files(tmp_path) == sorted(f"data/{name}" for name in WEIGHTS) + FUNCTION
    assert (tmp_path / "constants").is_dir()
    weight = np.load(tmp_path / "data" / "linear.weight")
    np.testing.assert_array_equal(weight, model.linear.weight.detach().numpy())
    np.testing.assert_array_equal(np.load(tmp_path / "data" / "lifted_tensor_0"), np.float32(3))
    meta = json.loads((tmp_path / "functions" / "forward.meta").read_text())
    assert meta.keys() == {
        *("name", "stablehlo_version", "input_signature", "output_signature", "input_locations"),
        *("unused_inputs", "input_pytree_spec", "output_pytree_spec"),
    }
    assert meta["name"] == "forward"
    at = {location["name"]: i for i, location in enumerate(meta["input_locations"])}
    assert meta["input_locations"][at["shift"]] == {
        **{"type_": "parameter", "position": -1, "name": "shift"}
    }
    assert meta["input_signature"][at["linear.weight"]] == {
        **{"shape": [2, 3], "dtype": "float32", "dynamic_dims": []}
    }
    assert meta["input_locations"][at[""]]["type_"] == "input_arg"
    assert meta["unused_inputs"] == [
        [
            {"type_": "input_arg", "position": 1, "name": "2"},
            {"shape": [], "dtype": "int", "dynamic_dims": []},
        ]
    ]
    assert [of["shape"] for of in meta["output_signature"]] == [[2, 2], [], [2]]
    bytecode = (tmp_path / "functions" / "forward.bytecode").read_bytes()
    assert bytecode.startswith(b"ML\xefR")
    assert b"StableHLO_v" in bytecode[:64]  # a portable artifact


OPTIONS = [
    (StableHLOExportOptions(), True, True),
    (StableHLOExportOptions(save_weights=False), False, True),
    (StableHLOExportOptions(export_weights=False), False, True),
    (StableHLOExportOptions(include_human_readable_text=False), True, False),
]


@pytest.mark.parametrize(("options", "weights", "text"), OPTIONS)
def test_what_is_asked_for_is_written_and_read(
    options: StableHLOExportOptions, weights: bool, text: bool, model: Model, tmp_path: Path
) -> None:
    program = exported_program_to_stablehlo(exported(model, X, 2), options)
    assert bool(program._bundle.state_dict) is options.export_weights
    program.save(tmp_path, options)
    assert (tmp_path / "data").exists() is options.save_weights
    assert any(name.startswith("data/") for name in files(tmp_path)) is weights
    assert (tmp_path / "functions" / "forward.mlir").exists() is text
    loaded = StableHLOGraphModule.load(tmp_path)
    assert loaded.get_stablehlo_bytecode() == program.get_stablehlo_bytecode("forward")
    for each in (loaded, program):
        assert "func.func @main" in each.get_stablehlo_text()
    if weights:
        torch.testing.assert_close(loaded(X, 2), model(X, 2))
        torch.testing.assert_close(program(X, 2), model(X, 2))
        return
    assert not loaded._bundle.state_dict
    with pytest.raises(KeyError, match=r"has no weight 'linear.weight'.*save_weights"):
        loaded(X, 2)


def test_a_folder_by_torch_xla(tmp_path: Path) -> None:
    """Inputs in HLO's order, a constant of the exporter's, an unused input, no specs."""
    program = exported_program_to_stablehlo(exported(lambda a, b, c: a * b - c, X, X[0], -X))
    for name in ("data", "constants", "functions"):
        (tmp_path / name).mkdir()
    functions = tmp_path / "functions"
    (functions / "forward.bytecode").write_bytes(program.get_stablehlo_bytecode())
    for path, array in (("data/scale", X[0] * 3), ("constants/0", X + 1)):
        with (tmp_path / path).open("wb") as file:
            np.save(file, array.numpy())
    shapes = [[2, 3], [3], [2, 3]]
    signatures = [{"shape": s, "dtype": "float32", "dynamic_dims": []} for s in shapes]
    locations = [("input_arg", 1, ""), ("parameter", -1, "scale"), ("constant", 0, "")]
    found = [{"type_": t, "position": p, "name": n} for t, p, n in locations]
    unused = {"type_": "input_arg", "position": 0, "name": ""}
    meta = {
        **{"name": "forward", "stablehlo_version": "0.0.0", "input_signature": signatures},
        **{"output_signature": signatures[:1], "input_locations": found},
        **{"unused_inputs": [[unused, {"shape": [], "dtype": "int", "dynamic_dims": []}]]},
        **{"input_pytree_spec": None, "output_pytree_spec": None},
    }
    (functions / "forward.meta").write_text(json.dumps(meta))
    (result,) = StableHLOGraphModule.load(tmp_path)(7, X)
    torch.testing.assert_close(result, X * (X[0] * 3) - (X + 1))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64, torch.float8_e5m2, torch.bool])
def test_weights_of_every_dtype(dtype: torch.dtype, tmp_path: Path) -> None:
    module = nn.Module()
    module.table = nn.Buffer(torch.eye(3).to(dtype).t()[1:])
    module.forward = lambda x: x + module.table.to(x.dtype)
    save_torch_model_as_stablehlo(module, (X,), tmp_path)
    torch.testing.assert_close(StableHLOGraphModule.load(tmp_path)(X), module.forward(X))


def test_tensors_of_the_device(model: Model) -> None:
    program = torch_xla.stablehlo.exported_program_to_stablehlo(exported(model, X, 2))
    for _ in range(2):
        results = program((X * 2).to("xla"), 2)
        assert results["y"].device.type == "xla"
        expected = model(X * 2, 2)
        torch.testing.assert_close(results["y"].cpu(), expected["y"])
        torch.testing.assert_close(results["rows"][0].cpu(), expected["rows"][0])


def test_keyword_arguments_follow_the_others() -> None:
    program = exported_program_to_stablehlo(exported(lambda x, *, y: x - y, X, y=X * 2))
    torch.testing.assert_close(program(X, X * 3), -2 * X)


def test_random_numbers_are_constants_of_the_program(tmp_path: Path) -> None:
    program = exported_program_to_stablehlo(exported(lambda x: torch.rand_like(x) + x, X))
    program.save(tmp_path)
    assert "constants/0" in files(tmp_path)
    first = program(X)
    torch.testing.assert_close(StableHLOGraphModule.load(tmp_path)(X), first)
    assert len({*(first - X).flatten().tolist()}) == X.numel()


def test_arguments_that_were_not_exported_are_refused(model: Model) -> None:
    program = exported_program_to_stablehlo(exported(model, X, 2))
    with pytest.raises(ValueError, match=r"argument 0 is float32\[3, 2\].*for float32\[2, 3\]"):
        program(X.reshape(3, 2), 2)
    with pytest.raises(ValueError, match=r"argument 0 is float64\[2, 3\]"):
        program(X.double(), 2)
    with pytest.raises(ValueError, match="argument 1 is 3, and the program was exported for 2"):
        program(X, 3)
    with pytest.raises(TypeError, match="1 arguments, where the exported program takes 2"):
        program(X)
    with pytest.raises(KeyError, match="'backward': the program has the methods"):
        program.evaluate("backward", (X, 2))


def test_what_a_program_writes_is_left_out_and_told() -> None:
    norm = nn.BatchNorm1d(3)
    trained = torch.export.export(norm, (X,))
    with pytest.warns(UserWarning, match=r"writes to running_mean, running_var, num_batches.*eval"):
        program = exported_program_to_stablehlo(trained)
    torch.testing.assert_close(program(X), norm(X))
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        exported_program_to_stablehlo(exported(norm, X))


def test_a_result_that_is_no_tensor_is_refused() -> None:
    with pytest.raises(TypeError, match="returns 3, and StableHLO returns tensors alone"):
        exported_program_to_stablehlo(exported(lambda x: (x, x.shape[1]), X))


def test_a_folder_without_a_program(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no StableHLO program.*functions/\*.meta"):
        StableHLOGraphModule.load(tmp_path)
