"""torch-mlir's module + the JAX bodies that it calls -> one StableHLO module for PJRT.

Every op of a body gets the location of its call, so that XLA's own dumps and profiles name the
user's line and the aten op. XLA inlines the calls. Uses JAX's public MLIR bindings only.
"""

from __future__ import annotations

import io
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
from jax.extend.mlir import ir
from jax.extend.mlir.dialects import stablehlo

from xla_dynamo import versions
from xla_dynamo.backend import jax_adapter
from xla_dynamo.errors import CompileError

from . import contexts, manual
from .bodies import UNKNOWN_LOCATION, Body
from .source import Location

# What PJRT plug-ins take; chlo ops become composites or expansions inside jaxlib itself.
_LEGAL_DIALECTS = frozenset({"stablehlo", "chlo", "func", "builtin", "sdy"})


@dataclass(frozen=True)
class Precision:
    """Of float32 products and convolutions: "DEFAULT", "HIGH" or "HIGHEST"."""

    products: str
    convolutions: str


@dataclass(frozen=True)
class Shardings:
    """Of each argument and result of a partitioned program: an attribute of Shardy, or None."""

    arguments: Sequence[str | None] = ()
    results: Sequence[str | None] = ()


NO_SHARDINGS = Shardings()


def stablehlo_version() -> str:
    """The StableHLO version that jaxlib reads."""
    return stablehlo.get_current_version()


def link(
    main: bytes,
    bodies: Mapping[str, tuple[Body, Location]],
    precision: Precision,
    aliases: Mapping[int, int],
    shardings: Shardings = NO_SHARDINGS,
) -> ir.Module:
    """Give each declaration in the artifact `main` its body, at the location of its calls.

    `precision` is set on every float32 product and convolution. `aliases` maps an argument to the
    result that takes over its memory.

    Raises:
        CompileError: anything but StableHLO is left over.
        InstallationError: jaxlib cannot read what torch-mlir writes.
    """
    with _contexts.dropped_on_error(), _context() as context:
        module = _read(context, main)
        _erase_declarations(module, bodies)
        symbols = ir.SymbolTable(module.operation)
        for name, (body, location) in bodies.items():
            located = body.text.replace(UNKNOWN_LOCATION, f"#loc = {location.mlir()}")
            _define(module, symbols, name, ir.Module.parse(located))
        _describe(module.body.operations[0], aliases, shardings)
        if shardings is not NO_SHARDINGS:
            with ir.Location.unknown():
                manual.to_regions(module, module.body.operations[0])
        for operation in _walk(module.operation):
            _check(operation)
            if operation.name == "stablehlo.dot_general":
                _convert_integers(operation)
                _set_precision(operation, precision.products)
            elif operation.name == "stablehlo.convolution":
                _set_precision(operation, precision.convolutions)
            elif operation.name == "stablehlo.reduce_window":
                _hide_start(operation)
    _contexts.count(len(main) + sum(len(body.text) for body, _ in bodies.values()))
    return module


def text(module: ir.Module, *, locations: bool = True) -> str:
    """The module as MLIR text."""
    if locations:
        return str(module.operation.get_asm(enable_debug_info=True, large_elements_limit=64))
    return str(module.operation.get_asm(enable_debug_info=False))


def bytecode(module: ir.Module) -> bytes:
    """The module as MLIR's bytecode, for this very jaxlib."""
    data = io.BytesIO()
    module.operation.write_bytecode(data)
    return data.getvalue()


def of_artifact(artifact: bytes) -> ir.Module:
    """The module of a portable artifact.

    Raises:
        InstallationError: it is none, or of a later version of StableHLO.
    """
    with _context() as context:
        return _read(context, artifact, "an artifact")


def _new_context() -> ir.Context:
    """An MLIR context with every dialect that JAX emits, from a lowering of the public API."""
    with jax_adapter.apart():
        module: Any = jax.jit(lambda: ()).lower().compiler_ir("stablehlo")
    return module.context


_contexts = contexts.OfThread(_new_context)


def _context() -> ir.Context:
    return _contexts.get() if jax_adapter.SHARES_CONTEXTS else _new_context()


def _read(context: ir.Context, artifact: bytes, what: str = "torch-mlir's StableHLO") -> ir.Module:
    try:
        return stablehlo.deserialize_portable_artifact(context, artifact)
    except Exception as error:
        raise versions.explain(f"jaxlib cannot read {what}: {error}") from error


def _erase_declarations(module: ir.Module, names: Container[str]) -> None:
    """Not through a symbol table: in jaxlib 0.7 the next op at the same address is then invalid."""
    for function in list(module.body.operations):
        if ir.StringAttr(function.attributes["sym_name"]).value in names:
            function.operation.erase()


def _define(module: ir.Module, symbols: ir.SymbolTable, name: str, body: ir.Module) -> None:
    """Insert the functions of `body`, renamed not to collide; its main one is called `name`."""
    body_symbols = ir.SymbolTable(body.operation)
    functions = list(body.body.operations)
    for function in functions:
        old = ir.StringAttr(function.attributes["sym_name"]).value
        new = name if old == "main" else f"{name}.{old}"
        if old != "main":
            ir.SymbolTable.replace_all_symbol_uses(old, new, body.operation)
        body_symbols.set_symbol_name(function, new)
        function.attributes["sym_visibility"] = ir.StringAttr.get("private")
    for function in functions:  # copies: jaxlib 0.7 crashes on what is detached from its module
        copy = function.operation.clone()
        module.body.append(copy)
        symbols.insert(copy)


def _describe(function: Any, aliases: Mapping[int, int], shardings: Shardings) -> None:
    """Tell XLA which results take over memory, and how arguments and results are split."""
    arguments = _split(shardings.arguments)
    i32 = ir.IntegerType.get_signless(32)
    for argument, result in aliases.items():
        alias: ir.Attribute = ir.IntegerAttr.get(i32, result)
        arguments.setdefault(argument, {})["tf.aliasing_output"] = alias
    counts = len(function.arguments), len(shardings.results)
    described = arguments, _split(shardings.results)
    for name, found, count in zip(("arg_attrs", "res_attrs"), described, counts, strict=True):
        if found:
            each = [ir.DictAttr.get(found.get(i, {})) for i in range(count)]
            function.attributes[name] = ir.ArrayAttr.get(each)


def _split(shardings: Sequence[str | None]) -> dict[int, dict[str, ir.Attribute]]:
    return {
        i: {"sdy.sharding": ir.Attribute.parse(text)}
        for i, text in enumerate(shardings)
        if text is not None
    }


def _walk(operation: Any) -> Iterator[Any]:
    for region in operation.regions:
        for block in region:
            for child in block:
                yield child.operation
                yield from _walk(child.operation)


def _check(operation: Any) -> None:
    dialect = operation.name.partition(".")[0]
    if dialect not in _LEGAL_DIALECTS:
        raise CompileError(
            f"{operation.name} is left in the program after lowering, at {operation.location}"
        )


def _hide_start(window: Any) -> None:
    """Keep XLA from computing a running sum of equal constants as multiples of the constant.

    This cures a miscompilation, and is always on. XLA's AlgebraicSimplifier (HandleReduceWindow,
    seen in jaxlib 0.10.2) looks for the constant through conversions, whose rounding and wrapping
    it forgets, and ends the process if the constant is an array of one element. It does so only
    where it sees that the sum starts from 0.
    """
    if len(window.operands) != 2:  # of several arrays at once: a running maximum and its place
        return
    whole, start = window.operands
    sizes = list(ir.DenseI64ArrayAttr(window.attributes["window_dimensions"]))
    lengths = list(ir.ShapedType(whole.type).shape)
    if not any(size == length > 1 for size, length in zip(sizes, lengths, strict=True)):
        return
    barrier = ir.Operation.create(
        "stablehlo.optimization_barrier",
        results=[start.type],
        operands=[start],
        loc=window.location,
        ip=ir.InsertionPoint(window),
    )
    window.operands[1] = barrier.result


def _convert_integers(product: Any) -> None:
    """Multiply floats by integers as floats, which XLA would make of them.

    In JAX's decompositions of matrices an identity has the widest integers; libtpu, which has no 64
    bits, ends the process where it meets one in such a product (0.0.42.1, TransposeFolding).
    """
    elements = [ir.ShapedType(operand.type).element_type for operand in product.operands]
    for position, element in enumerate(elements):
        other = elements[1 - position]
        if isinstance(element, ir.IntegerType) and not isinstance(other, ir.IntegerType):
            integers, place = product.operands[position], ir.InsertionPoint(product)
            with product.location as location:
                floats = ir.RankedTensorType.get(ir.ShapedType(integers.type).shape, other)
                converted = ir.Operation.create(
                    "stablehlo.convert", [floats], [integers], loc=location, ip=place
                )
            product.operands[position] = converted.result


def _set_precision(operation: Any, precision: str) -> None:
    element = ir.ShapedType(operation.operands[0].type).element_type
    if isinstance(element, ir.F32Type):
        attribute = stablehlo.PrecisionAttr.get(precision)
        operation.attributes["precision_config"] = ir.ArrayAttr.get([attribute, attribute])
