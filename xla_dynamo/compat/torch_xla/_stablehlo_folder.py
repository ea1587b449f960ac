"""The parts of a StableHLO program, and the folder that torch_xla 2.9 writes of them.

    data/<name>                 a parameter, buffer or constant of the model, as NumPy saves it
    constants/<number>          a value that the exporter made: the key of random numbers
    functions/forward.meta      JSON: what goes into the function, what comes out, in what order
    functions/forward.bytecode  a portable artifact of StableHLO
    functions/forward.mlir      the same, as text

NumPy has no bfloat16 and no float8: such tensors are saved as raw bytes of their size.
"""

from __future__ import annotations

import dataclasses
import enum
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor


class VariableType(enum.Enum):
    """Where an input of a function comes from."""

    INPUT_ARG = "input_arg"
    PARAMETER = "parameter"
    CONSTANT = "constant"


@dataclass(frozen=True)
class VariableSignature:
    """Shape and dtype ("float32") of a tensor, or the type's name of another value ("int")."""

    shape: list[int]
    dtype: str
    dynamic_dims: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class InputLocation:
    """Which argument, weight or constant an input is.

    name: of a weight; of an argument that is no tensor, its value as text: the program holds it.
    """

    type_: VariableType
    position: int = -1
    name: str = ""


@dataclass(frozen=True)
class StableHLOFunctionMeta:
    """What a function takes and gives; the specs are those of torch's pytree, serialised."""

    name: str
    stablehlo_version: str
    input_signature: list[VariableSignature]
    output_signature: list[VariableSignature]
    input_locations: list[InputLocation]
    unused_inputs: list[tuple[InputLocation, VariableSignature]]
    input_pytree_spec: str | None = None
    output_pytree_spec: str | None = None


@dataclass(frozen=True)
class StableHLOFunc:
    """A function; text: None if it was not asked for."""

    meta: StableHLOFunctionMeta
    bytecode: bytes
    text: str | None


@dataclass
class StableHLOModelBundle:
    """Functions, and the weights by name; no weights if they were not exported."""

    state_dict: Mapping[str, Tensor]
    additional_constants: list[Tensor]
    stablehlo_funcs: list[StableHLOFunc]


def write(bundle: StableHLOModelBundle, folder: Path, *, weights: bool) -> None:
    """Write a program into a folder; weights: whether data/ is written."""
    if weights:
        (folder / "data").mkdir(parents=True, exist_ok=True)
        for name, weight in bundle.state_dict.items():
            _save(folder / "data" / name, weight)
    functions, constants = folder / "functions", folder / "constants"
    for made in (functions, constants):
        made.mkdir(parents=True, exist_ok=True)
    for function in bundle.stablehlo_funcs:
        name = function.meta.name
        (functions / f"{name}.meta").write_text(json.dumps(function.meta, default=_encoded))
        (functions / f"{name}.bytecode").write_bytes(function.bytecode)
        if function.text is not None:
            (functions / f"{name}.mlir").write_text(function.text)
    for number, constant in enumerate(bundle.additional_constants):
        _save(constants / str(number), constant)


def read(folder: Path) -> StableHLOModelBundle:
    """The program in a folder; it may have no weights.

    Raises:
        FileNotFoundError: there is no program.
    """
    functions = [_function(path) for path in sorted((folder / "functions").glob("*.meta"))]
    if not functions:
        raise FileNotFoundError(f"{folder}: no StableHLO program, for it has no functions/*.meta")
    dtypes = {
        (location.type_, location.name or location.position): signature.dtype
        for meta in (function.meta for function in functions)
        for location, signature in zip(meta.input_locations, meta.input_signature, strict=True)
    }

    def load(path: Path, key: tuple[VariableType, Any]) -> Tensor:
        return _load(path, dtypes.get(key, ""))

    weights = {p.name: load(p, (VariableType.PARAMETER, p.name)) for p in _files(folder / "data")}
    numbered = sorted(_files(folder / "constants"), key=lambda path: int(path.name))
    constants = [load(path, (VariableType.CONSTANT, int(path.name))) for path in numbered]
    return StableHLOModelBundle(weights, constants, functions)


def _files(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []


def _function(path: Path) -> StableHLOFunc:
    text = path.with_suffix(".mlir")
    meta = _meta(json.loads(path.read_text()))
    bytecode = path.with_suffix(".bytecode").read_bytes()
    return StableHLOFunc(meta, bytecode, text.read_text() if text.exists() else None)


def _encoded(part: Any) -> Any:
    if isinstance(part, VariableType):
        return part.value
    return {of.name: getattr(part, of.name) for of in dataclasses.fields(part)}


def _meta(found: dict[str, Any]) -> StableHLOFunctionMeta:
    def location(of: dict[str, Any]) -> InputLocation:
        return InputLocation(VariableType(of["type_"]), of["position"], of["name"])

    return StableHLOFunctionMeta(
        found["name"],
        found["stablehlo_version"],
        [VariableSignature(**of) for of in found["input_signature"]],
        [VariableSignature(**of) for of in found["output_signature"]],
        [location(of) for of in found["input_locations"]],
        [(location(at), VariableSignature(**of)) for at, of in found["unused_inputs"]],
        found["input_pytree_spec"],
        found["output_pytree_spec"],
    )


_INTEGERS = {1: torch.int8, 2: torch.int16}


def _save(path: Path, tensor: Tensor) -> None:
    tensor = tensor.detach().cpu().contiguous()
    try:
        array = tensor.numpy()
    except TypeError:
        array = tensor.view(_INTEGERS[tensor.itemsize]).numpy().view(f"V{tensor.itemsize}")
    with path.open("wb") as file:
        np.save(file, array)


def _load(path: Path, dtype: str) -> Tensor:
    with path.open("rb") as file:
        array = np.load(file, allow_pickle=False)
    if array.dtype.kind != "V":
        return torch.from_numpy(array)
    whole = torch.from_numpy(array.view(f"i{array.itemsize}"))
    return whole.view(getattr(torch, dtype)) if dtype else whole
