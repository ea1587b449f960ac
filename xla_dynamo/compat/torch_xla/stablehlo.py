"""Exported programs (torch.export) -> StableHLO, as text, bytecode, files, and to call.

Weights are arguments of the function, shapes are static. What the program writes to its buffers or
inputs is no result of it, as in torch_xla; a warning says so. Random numbers are the same at every
call: their key is a constant of the program.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from xla_dynamo.backend import options as compile_options
from xla_dynamo.backend.runtime import resident
from xla_dynamo.backend.runtime.platforms import default_platform
from xla_dynamo.lazily import lazily

from . import _stablehlo_export, _stablehlo_folder
from ._stablehlo_folder import InputLocation as InputLocation
from ._stablehlo_folder import StableHLOFunc as StableHLOFunc
from ._stablehlo_folder import StableHLOFunctionMeta as StableHLOFunctionMeta
from ._stablehlo_folder import StableHLOModelBundle as StableHLOModelBundle
from ._stablehlo_folder import VariableSignature as VariableSignature
from ._stablehlo_folder import VariableType as VariableType

if TYPE_CHECKING:
    from xla_dynamo.backend.lowering import dtypes, linker
    from xla_dynamo.backend.runtime import buffers, pjrt, transfers
else:
    dtypes = lazily("xla_dynamo.backend.lowering.dtypes", globals())
    linker = lazily("xla_dynamo.backend.lowering.linker", globals())
    buffers = lazily("xla_dynamo.backend.runtime.buffers", globals())
    pjrt = lazily("xla_dynamo.backend.runtime.pjrt", globals())
    transfers = lazily("xla_dynamo.backend.runtime.transfers", globals())


@dataclass
class StableHLOExportOptions:
    """What torch_xla's exporter takes.

    include_human_readable_text: whether the program has text, and writes it.
    save_weights: whether `save` writes the weights; export_weights: whether the program has them.
        Without them it can be read, and not be called.
    custom_ops_allowed_in_graph: namespaces of ops that stay calls by name in the program, for who
        runs it, where no rule lowers them.
    The others change nothing: an exported program has its arguments, and constants are inlined.
    """

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

    def __init__(self, bundle: StableHLOModelBundle) -> None:
        self._bundle = bundle
        self._functions = {function.meta.name: function for function in bundle.stablehlo_funcs}
        self._executables: dict[tuple[str, torch.device | None], Any] = {}

    def __call__(self, *args: Any) -> Any:
        """The program's results on the xla platform; tensors come back where the inputs are.

        Keyword arguments of the export are taken by position, after the others.

        Raises:
            TypeError, ValueError: arguments of another number, shape or dtype than were exported.
            KeyError: the program has no weights.
        """
        return self.evaluate(self._bundle.stablehlo_funcs[0].meta.name, args)

    def evaluate(self, method_name: str, args: tuple[Any, ...]) -> Any:
        """Call a method: there is one, "forward"."""
        meta = self._function(method_name).meta
        given = pytree.tree_leaves(args) if meta.input_pytree_spec else list(args)
        _check(meta, given)
        tensors = [self._input(location, given) for location in meta.input_locations]
        home = resident.device_of(given)
        executable = self._executables.get((method_name, home))
        if executable is None:
            executable = self._executables[method_name, home] = self._compiled(method_name, home)
        results = _launched(executable, tensors, home)
        if meta.output_pytree_spec is None:
            return results
        rest = iter(results)
        leaves = [None if of.dtype == "NoneType" else next(rest) for of in meta.output_signature]
        return pytree.tree_unflatten(leaves, pytree.treespec_loads(meta.output_pytree_spec))

    def get_stablehlo_text(self, method_name: str | None = None) -> str:
        """The module's MLIR text."""
        function = self._function(method_name)
        if function.text is not None:
            return function.text
        return linker.text(linker.of_artifact(function.bytecode), locations=False)

    def get_stablehlo_bytecode(self, method_name: str | None = None) -> bytes:
        """The module as a portable artifact of StableHLO."""
        return self._function(method_name).bytecode

    def save(self, directory_path: Any, options: StableHLOExportOptions | None = None) -> None:
        """Write the program into a folder, with its weights if `options` do not say otherwise."""
        weights = options is None or options.save_weights
        _stablehlo_folder.write(self._bundle, Path(os.fspath(directory_path)), weights=weights)

    @classmethod
    def load(cls, directory_path: Any) -> StableHLOGraphModule:
        """The program that `save`, or torch_xla, wrote.

        Raises:
            FileNotFoundError: there is none.
        """
        return cls(_stablehlo_folder.read(Path(os.fspath(directory_path))))

    def _function(self, name: str | None) -> StableHLOFunc:
        if name is None:
            return self._bundle.stablehlo_funcs[0]
        if name not in self._functions:
            raise KeyError(f"{name!r}: the program has the methods {list(self._functions)}")
        return self._functions[name]

    def _input(self, location: InputLocation, given: Sequence[Any]) -> Tensor:
        if location.type_ is VariableType.INPUT_ARG:
            return given[location.position].detach()
        if location.type_ is VariableType.CONSTANT:
            return self._bundle.additional_constants[location.position]
        if location.name not in self._bundle.state_dict:
            raise KeyError(
                f"The program has no weight {location.name!r}: it was exported or saved without "
                "(export_weights, save_weights). Export and save it with them to call it here."
            )
        return self._bundle.state_dict[location.name]

    def _compiled(self, method_name: str, home: torch.device | None) -> Any:
        function = self._functions[method_name]
        inputs, outputs = (
            [(tuple(of.shape), dtypes.to_numpy(getattr(torch, of.dtype))) for of in signatures]
            for signatures in (
                function.meta.input_signature,
                [of for of in function.meta.output_signature if of.dtype != "NoneType"],
            )
        )
        module = linker.of_artifact(function.bytecode)
        device = _device(home)
        overrides = compile_options.parse(None, None).xla_overrides(device.platform)
        return pjrt.compile(module, device, inputs, outputs, overrides)


def _device(home: torch.device | None) -> Any:
    if home is None:
        return pjrt.device(default_platform())
    return resident.RESIDENCIES[home.type].device(home)


def _launched(executable: Any, tensors: Sequence[Tensor], home: torch.device | None) -> list[Any]:
    if home is not None:
        return list(resident.RESIDENCIES[home.type].launch(executable, tensors, home, {}))
    device = _device(None)
    arrays = [buffers.transient(tensor, device) for tensor in tensors]
    return transfers.to_tensors(executable(*arrays), device, True)


def _check(meta: StableHLOFunctionMeta, given: Sequence[Any]) -> None:
    """Raise for arguments that are not as those of the export: the program holds their sizes."""
    used = zip(meta.input_locations, meta.input_signature, strict=True)
    expected = {
        location.position: (location, signature)
        for location, signature in (*used, *meta.unused_inputs)
        if location.type_ is VariableType.INPUT_ARG
    }
    if len(given) != len(expected):
        raise TypeError(f"{len(given)} arguments, where the exported program takes {len(expected)}")
    for position, (location, of) in sorted(expected.items()):
        value = given[position]
        found = _stablehlo_export.signature_of(value)
        if found != VariableSignature(of.shape, of.dtype):
            raise ValueError(
                f"argument {position} is {found.dtype}{found.shape}, where the program was "
                f"exported for {of.dtype}{of.shape}: export it once more, for such arguments"
            )
        if not isinstance(value, Tensor) and location.name not in ("", repr(value)):
            raise ValueError(
                f"argument {position} is {value!r}, and the program was exported for "
                f"{location.name}: export it once more, or make it a tensor"
            )


def exported_program_to_stablehlo(
    exported_model: ExportedProgram, options: StableHLOExportOptions | None = None
) -> StableHLOGraphModule:
    """Lower an exported program.

    Raises:
        UnsupportedOp: an op has no lowering.
        TypeError: a result is neither a tensor nor None.
    """
    options = options or StableHLOExportOptions()
    bundle = _stablehlo_export.bundle_of(
        exported_model,
        text=options.include_human_readable_text,
        weights=options.export_weights,
        calls=options.custom_ops_allowed_in_graph,
    )
    return StableHLOGraphModule(bundle)


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
