"""Exported programs (torch.export) -> the parts of a StableHLO program."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind
from torch.utils import _pytree as pytree

from xla_dynamo.backend.graph import fx, rng_keys
from xla_dynamo.lazily import lazily

from ._stablehlo_folder import (
    InputLocation,
    StableHLOFunc,
    StableHLOFunctionMeta,
    StableHLOModelBundle,
    VariableSignature,
    VariableType,
)

if TYPE_CHECKING:
    from xla_dynamo.backend.executable import exported
    from xla_dynamo.backend.lowering import linker
    from xla_dynamo.backend.runtime import pjrt
else:
    exported = lazily("xla_dynamo.backend.executable.exported", globals())
    linker = lazily("xla_dynamo.backend.lowering.linker", globals())
    pjrt = lazily("xla_dynamo.backend.runtime.pjrt", globals())

METHOD = "forward"


def bundle_of(
    model: ExportedProgram, *, text: bool, weights: bool, calls: Collection[str]
) -> StableHLOModelBundle:
    """Lower an exported program.

    text, weights: whether the bundle has them.
    calls: namespaces of ops that become custom calls if they have no lowering.

    Raises:
        UnsupportedOp: an op has no lowering.
        TypeError: a result is neither a tensor nor None.
    """
    program = exported.decomposed(model)
    results = _results(program)
    lowered, random = exported.lower_decomposed(program, writes=False, calls=calls)
    _warn_of_writes(program)
    function = StableHLOFunc(
        _meta(program, results, random),
        pjrt.portable_artifact(lowered.module, linker.stablehlo_version()),
        linker.text(lowered.module, locations=False) if text else None,
    )
    constants = [rng_keys.new_key()] if random else []
    return StableHLOModelBundle(_weights(program) if weights else {}, constants, [function])


def signature_of(value: Any) -> VariableSignature:
    """The shape and dtype of a tensor, or the type of another value."""
    if isinstance(value, Tensor):
        return VariableSignature(list(value.shape), str(value.dtype).removeprefix("torch."))
    return VariableSignature([], type(value).__name__)


def _meta(
    program: ExportedProgram, results: list[VariableSignature], random: bool
) -> StableHLOFunctionMeta:
    locations: list[InputLocation] = []
    signatures: list[VariableSignature] = []
    unused: list[tuple[InputLocation, VariableSignature]] = []
    position = 0
    specs = program.graph_signature.input_specs
    for node, spec in zip(fx.placeholders(program.graph), specs, strict=True):
        value = node.meta["val"]
        location = InputLocation(VariableType.PARAMETER, name=str(spec.target))
        if spec.kind is InputKind.USER_INPUT:
            name = "" if isinstance(value, Tensor) else repr(value)
            location = InputLocation(VariableType.INPUT_ARG, position, name)
            position += 1
        if isinstance(value, Tensor):
            locations.append(location)
            signatures.append(signature_of(value))
        elif spec.kind is InputKind.USER_INPUT:
            unused.append((location, signature_of(value)))
    if random:
        locations.append(InputLocation(VariableType.CONSTANT, 0))
        signatures.append(VariableSignature(list(rng_keys.KEY_SHAPE), "uint32"))
    return StableHLOFunctionMeta(
        METHOD,
        linker.stablehlo_version(),
        signatures,
        results,
        locations,
        unused,
        _dumped(program.call_spec.in_spec),
        _dumped(program.call_spec.out_spec),
    )


def _results(program: ExportedProgram) -> list[VariableSignature]:
    specs = program.graph_signature.output_specs
    found = []
    for result, spec in zip(fx.results(program.graph), specs, strict=True):
        if spec.kind is OutputKind.USER_OUTPUT:
            value = result.meta["val"] if isinstance(result, torch.fx.Node) else result
            if value is not None and not isinstance(value, Tensor):
                raise TypeError(
                    f"The exported program returns {value!r}, and StableHLO returns tensors alone: "
                    "return it as a tensor, or not at all."
                )
            found.append(signature_of(value))
    return found


def _weights(program: ExportedProgram) -> dict[str, Tensor]:
    states: Mapping[str, Any] = {**program.constants, **program.state_dict}
    kinds = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)
    specs = [spec for spec in program.graph_signature.input_specs if spec.kind in kinds]
    return {str(spec.target): states[str(spec.target)].detach() for spec in specs}


def _warn_of_writes(program: ExportedProgram) -> None:
    writes = [
        str(spec.target or spec.arg.name)
        for spec in program.graph_signature.output_specs
        if spec.kind.name.endswith("_MUTATION")
    ]
    if writes:
        warnings.warn(
            f"The exported program writes to {', '.join(writes)}. Its StableHLO leaves that out, "
            "as torch_xla's does: it returns results alone. Export the model after eval(), or "
            "return what it writes.",
            stacklevel=4,
        )


def _dumped(spec: pytree.TreeSpec | None) -> str | None:
    return None if spec is None else pytree.treespec_dumps(spec)
