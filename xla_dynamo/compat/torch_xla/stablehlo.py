"""Exported programs (torch.export) -> StableHLO, as text, bytecode, files, and to call.

A folder holds functions/forward.mlir (text) and .bytecode, and the exported program itself, from
which `load` makes a callable again.
"""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.export import ExportedProgram

from xla_dynamo.lazily import lazily

if TYPE_CHECKING:
    from xla_dynamo.backend.executable import exported
    from xla_dynamo.backend.lowering import linker
else:
    exported = lazily("xla_dynamo.backend.executable.exported", globals())
    linker = lazily("xla_dynamo.backend.lowering.linker", globals())


_METHOD = "forward"
_PROGRAM = "program.pt2"


@dataclass
class StableHLOExportOptions:
    """What torch_xla's exporter takes; weights are arguments of the program, shapes are static."""

    include_human_readable_text: bool = True
    override_tracing_arguments: tuple[Any, ...] | None = None
    override_tracing_kwargs: Mapping[str, Any] | None = None
    save_weights: bool = True
    inline_all_constant: bool = True
    export_weights: bool = True
    custom_ops_allowed_in_graph: set[str] = field(default_factory=set)
    export_node_metadata: bool = False


class StableHLOGraphModule:
    """A program with its weights."""

    def __init__(self, program: ExportedProgram) -> None:
        self._exported = program
        self._module = exported.lower_exported(program).module
        self._call = torch.compile(program.module(), backend="xla")

    def __call__(self, *args: Any) -> Any:
        """The program's results on the xla platform; tensors come back where the inputs are."""
        return self._call(*args)

    def evaluate(self, method_name: str, args: tuple[Any, ...]) -> Any:
        """Call a method: there is one, "forward"."""
        self._check(method_name)
        return self(*args)

    def get_stablehlo_text(self, method_name: str | None = None) -> str:
        """The module's MLIR text."""
        self._check(method_name)
        return linker.text(self._module, locations=False)

    def get_stablehlo_bytecode(self, method_name: str | None = None) -> bytes:
        """The module's MLIR bytecode."""
        self._check(method_name)
        data = io.BytesIO()
        self._module.operation.write_bytecode(data)
        return data.getvalue()

    def save(self, directory_path: Any, options: StableHLOExportOptions | None = None) -> None:
        """Write the program into a folder."""
        folder = Path(os.fspath(directory_path))
        (folder / "functions").mkdir(parents=True, exist_ok=True)
        (folder / "functions" / f"{_METHOD}.bytecode").write_bytes(self.get_stablehlo_bytecode())
        if options is None or options.include_human_readable_text:
            (folder / "functions" / f"{_METHOD}.mlir").write_text(self.get_stablehlo_text())
        torch.export.save(self._exported, folder / _PROGRAM)

    @classmethod
    def load(cls, directory_path: Any) -> StableHLOGraphModule:
        """The program that `save` wrote.

        Raises:
            FileNotFoundError: there is none.
        """
        return cls(torch.export.load(Path(os.fspath(directory_path), _PROGRAM)))

    def _check(self, method_name: str | None) -> None:
        if method_name not in (None, _METHOD):
            raise KeyError(f"{method_name!r}: the program has one method, {_METHOD!r}")


def exported_program_to_stablehlo(
    exported_model: ExportedProgram, options: StableHLOExportOptions | None = None
) -> StableHLOGraphModule:
    """Lower an exported program.

    Raises:
        UnsupportedOp: an op has no lowering.
    """
    return StableHLOGraphModule(exported_model)


def save_as_stablehlo(
    exported_model: ExportedProgram,
    stablehlo_dir: Any,
    options: StableHLOExportOptions | None = None,
) -> None:
    """Lower an exported program and write it into a folder."""
    exported_program_to_stablehlo(exported_model, options).save(stablehlo_dir, options)


def save_torch_model_as_stablehlo(
    torchmodel: torch.nn.Module,
    args: tuple[Any, ...],
    path: Any,
    options: StableHLOExportOptions | None = None,
) -> None:
    """Export a module for these arguments, and save_as_stablehlo."""
    save_as_stablehlo(torch.export.export(torchmodel, args), path, options)
