"""Programs of XLA:CPU that compute wrong numbers, or end the process, by the fusions that do.

XLA:CPU leaves some fusions to a library, YNNPACK. Two of its faults are in versions of jaxlib that
users have, and in nothing that XLA refuses, so a compiled program is looked through for them.

jaxlib 0.10.2 (jax-ml/jax#39103): `(b * a[:, None]).sum(-1)` with more ops after it in its fusion,
as in the logits of all pairs, has other elements' numbers from its 32,768th result on, or before.
So has a product of matrices with three elements to a sum, where its rows are added up. Of 1,500
programs with larger products and other sums, none was wrong.

jaxlib 0.10.2 and 0.11.0 (jax-ml/jax#39257, #40412): with arrays of seven or more dimensions the
process dies, or hangs.

Such a program is compiled once more, with products of matrices as all that YNNPACK gets. Without
its reductions everywhere, a step of a ConvNeXt takes 1.8 times as long, and of a GPT 1.07 times.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from xla_dynamo.backend.jax_adapter import VERSION

OPTION = "xla_cpu_experimental_ynn_fusion_type"
WITHOUT_REDUCTIONS = {OPTION: "LIBRARY_FUSION_TYPE_INDIVIDUAL_DOT"}

_MIXES_RESULTS = VERSION[:3] == (0, 10, 2)
_MOST_DIMENSIONS = 6 if (0, 10, 2) <= VERSION[:3] <= (0, 11, 0) else None

_COMPUTATION = re.compile(r"^(?:ENTRY )?%([\w.-]+) \(.*\{$")
_INSTRUCTION = re.compile(r"^  (?:ROOT )?%([\w.-]+) = (\S+) ([\w-]+)\((.*?)\)")
_FUSED = re.compile(r'calls=%([\w.-]+).*"__ynn_fusion"')
_OPERAND = re.compile(r"%([\w.-]+)")
_SHAPE = re.compile(r"^\w+\[([\d,]*)\]")
_CONTRACTED = re.compile(r"lhs_contracting_dims=\{([\d,]*)\}")
_SAFE_CONTRACTION = 8  # elements to a sum; seen wrong with three
_RESHAPES = ("bitcast", "convert", "copy", "reshape")


class _Instruction(NamedTuple):
    shape: tuple[int, ...]
    opcode: str
    operands: tuple[str, ...]
    contracted: tuple[int, ...]  # dimensions of the left factor of a product


_Computation = Mapping[str, _Instruction]  # by name, in order: the last one is the result


def remedy(loaded: Any, overrides: Mapping[str, Any]) -> Mapping[str, Any]:
    """Options for XLA's compiler without which a program is wrong; none where it is right.

    loaded: the executable of jaxlib, for CPUs, as compiled with the options `overrides`; a user's
        own word on YNNPACK is left alone.
    """
    if _MOST_DIMENSIONS is None or OPTION in overrides:
        return {}
    texts = (module.to_string() for module in loaded.hlo_modules())
    wrong = any(is_wrong(fusion) for text in texts for fusion in fusions(text))
    return WITHOUT_REDUCTIONS if wrong else {}


def is_wrong(fusion: _Computation) -> bool:
    """Whether this version of jaxlib may get what YNNPACK shall compute wrong."""
    if max(len(one.shape) for one in fusion.values()) > (_MOST_DIMENSIONS or 0):
        return True
    *inner, _ = fusion
    return _MIXES_RESULTS and any(_is_mixed(fusion, name) for name in inner)


def _is_mixed(fusion: _Computation, name: str) -> bool:
    """Whether it is a product of few elements to a sum, or a sum of products of two broadcasts."""
    _, opcode, operands, contracted = fusion[name]
    if opcode == "dot":
        left = fusion[operands[0]].shape
        return math.prod(left[dim] for dim in contracted) < _SAFE_CONTRACTION
    if opcode != "reduce":
        return False
    source = fusion[operands[0]]
    while source.opcode in _RESHAPES:
        source = fusion[source.operands[0]]
    return (
        source.opcode == "multiply"
        and len(set(source.operands)) == 2
        and all(_is_spread(fusion, factor) for factor in source.operands)
    )


def _is_spread(fusion: _Computation, name: str) -> bool:
    """Whether a broadcast, of more than a number, is in what a value is made of."""
    pending, seen = [name], set[str]()
    while pending:
        name = pending.pop()
        if name in seen:
            continue
        seen.add(name)
        _, opcode, operands, _ = fusion[name]
        if opcode == "broadcast" and fusion[operands[0]].shape:
            return True
        pending += operands
    return False


def fusions(text: str) -> list[_Computation]:
    """The computations of an HLO module's text that YNNPACK is called for."""
    if "__ynn_fusion" not in text:
        return []
    computations: dict[str, dict[str, _Instruction]] = {}
    called: list[str] = []
    current: dict[str, _Instruction] = {}
    for line in text.splitlines():
        if head := _COMPUTATION.match(line):
            current = computations.setdefault(head[1], {})
        elif found := _INSTRUCTION.match(line):
            current[found[1]] = _instruction(line, *found.groups()[1:])
        if fused := _FUSED.search(line):
            called.append(fused[1])
    return [computations[name] for name in called]


def _instruction(line: str, shape: str, opcode: str, operands: str) -> _Instruction:
    dimensions, contracted = _SHAPE.match(shape), _CONTRACTED.search(line)
    return _Instruction(
        _numbers(dimensions),
        opcode,
        tuple(_OPERAND.findall(operands)) if opcode != "constant" else (),
        _numbers(contracted),
    )


def _numbers(found: re.Match[str] | None) -> tuple[int, ...]:
    return tuple(map(int, found[1].split(","))) if found and found[1] else ()
