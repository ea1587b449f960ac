"""What a TPU program moves and keeps, read off its optimized HLO.

XLA's "bytes accessed" counts what its scheduler copies between HBM and VMEM (the core's own 128 MB)
two to four times, beside what instructions read and write in either; its temporary memory is what
did not fit into VMEM, with the gaps between. Both vary with the order of the schedule. What does
not: the bytes that instructions read and write, and those of the values that are alive at once.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

_SHAPE = re.compile(r"([a-z]\w*)\[([\d,]*)\](?:\{([\d,]*)(?::T\((\d+),(\d+)\))?([^}]*)\})?")
_LINE = re.compile(r"\s+(?:ROOT )?%([\w.\-]+) = (.*)")
_OPCODE = re.compile(r" ([a-z][\w\-]*)\(")
_OPERAND = re.compile(r"%([\w.\-]+)")
_CALLS = re.compile(r'(?:calls=%|custom_call_target=")([\w.\-]+)')
_INDEX = re.compile(r"\bindex=(\d+)")
_CYCLES = re.compile(r'"estimated_cycles":"(\d+)"')
_COMPUTATION = re.compile(r"^(ENTRY )?%([\w.\-]+) \(.*\{$")
# What only names values; what moves them between memories, of itself or in parts.
_NAMES = frozenset({"bitcast", "tuple", "get-tuple-element", "opt-barrier", "constant"})
_STARTS, _DONE = frozenset({"copy-start", "slice-start"}), frozenset({"copy-done", "slice-done"})

_Values = frozenset[tuple[str, int]]


@dataclass(frozen=True)
class Program:
    """Bytes of one step.

    Attributes:
        computed: what instructions that compute read and write, in HBM and VMEM.
        hbm: what is read from and written to HBM, copies to and from VMEM included.
        copied: of it, those copies, which the scheduler makes.
        alive: results of instructions that are in HBM or VMEM at once, where they are most; what
            the step returns does not count.
        largest: the shapes of the largest of them.
        product_cycles: the compiler's estimate of what multiplies or convolves, with all that is
            fused with it.
        other_cycles: that of the rest.
    """

    computed: int
    hbm: int
    copied: int
    alive: int
    largest: tuple[str, ...]
    product_cycles: int
    other_cycles: int


@dataclass(frozen=True)
class _Array:
    """An array of a result: its bytes, tiles filled up, and whether it is in VMEM."""

    size: int
    in_vmem: bool
    shape: str


@dataclass(frozen=True)
class _Instruction:
    name: str
    opcode: str
    arrays: tuple[_Array, ...]
    operands: tuple[str, ...]
    calls: str | None
    index: int
    cycles: int


def read(hlo: str) -> Program:
    """The program of optimized HLO, as libtpu schedules it; loops count once."""
    computations, entry = _parse(hlo)
    instructions = computations[entry]
    arrays = {each.name: each.arrays for each in instructions}
    computed = hbm = copied = 0
    for each in instructions:
        if each.opcode in _STARTS:
            destination = each.arrays[0 if each.opcode == "copy-start" else len(each.operands)]
            (source, *_) = arrays[each.operands[0]]
            moved = destination.size * ((not destination.in_vmem) + (not source.in_vmem))
            hbm, copied = hbm + moved, copied + moved
        elif not _only_names(each):
            used = list(_used(each, arrays, computations))
            computed += sum(size for size, _ in used)
            hbm += sum(size for size, in_vmem in used if not in_vmem)
    alive, largest = _most_alive(instructions)
    products = {name for name, body in computations.items() if any(map(_multiplies, body))}
    cycles = [0, 0]
    for each in instructions:
        cycles[_multiplies(each) or each.calls in products] += each.cycles
    return Program(computed, hbm, copied, alive, largest, cycles[True], cycles[False])


def _multiplies(each: _Instruction) -> bool:
    return each.opcode in ("convolution", "dot")


def _only_names(each: _Instruction) -> bool:
    is_joined = each.calls == "ConcatBitcast"  # slices that were copied next to each other
    return is_joined or each.opcode in _NAMES | _STARTS | _DONE | {"parameter"}


def _used(
    each: _Instruction,
    arrays: Mapping[str, Sequence[_Array]],
    computations: Mapping[str, Sequence[_Instruction]],
) -> Iterator[tuple[int, bool]]:
    """Bytes that an instruction reads and writes, and whether in VMEM."""
    body = computations.get(each.calls or "", ())
    parameters = [inner for inner in body if inner.opcode == "parameter"]
    for position, operand in enumerate(each.operands):
        for array in arrays[operand]:
            size = array.size
            if position < len(parameters):
                size = min(size, _read_of(parameters[position].name, body, size))
            yield size, array.in_vmem
    yield from ((array.size, array.in_vmem) for array in each.arrays)


def _read_of(parameter: str, body: Sequence[_Instruction], whole: int) -> int:
    """Of a parameter of a fusion that is only gathered or sliced: what is taken of it."""
    users = [each for each in body if parameter in each.operands]
    taken = ("gather", "dynamic-slice", "slice")
    if all(each.opcode in taken and each.operands[0] == parameter for each in users):
        return sum(each.arrays[0].size for each in users)
    return whole


def _most_alive(instructions: Sequence[_Instruction]) -> tuple[int, tuple[str, ...]]:
    """The most bytes of results that are alive at once, and the shapes of the largest."""
    values: dict[str, list[_Values]] = {}  # of each array of a result, what it names
    born: dict[tuple[str, int], tuple[int, _Array]] = {}
    last: dict[tuple[str, int], int] = {}
    for at, each in enumerate(instructions):
        operands = [values[operand] for operand in each.operands]
        last.update((value, at) for arrays in operands for array in arrays for value in array)
        if each.opcode in ("parameter", "constant"):
            values[each.name] = [frozenset() for _ in each.arrays]
        elif _only_names(each):
            values[each.name] = _named(each, operands)
        else:
            values[each.name] = [frozenset({(each.name, i)}) for i in range(len(each.arrays))]
            born.update(((each.name, i), (at, array)) for i, array in enumerate(each.arrays))
    returned = frozenset().union(*values[instructions[-1].name])
    spans = [
        (start, last.get(value, start), array)
        for value, (start, array) in born.items()
        if value not in returned
    ]
    changes = [0] * (len(instructions) + 1)
    for start, end, array in spans:
        changes[start] += array.size
        changes[end + 1] -= array.size
    totals = list(itertools.accumulate(changes))
    most = max(totals)
    when = totals.index(most)
    there = [array for start, end, array in spans if start <= when <= end]
    there.sort(key=lambda array: -array.size)
    return most, tuple(array.shape for array in there[:8])


def _named(each: _Instruction, operands: Sequence[Sequence[_Values]]) -> list[_Values]:
    """What the arrays of a view, a tuple, or a copy between memories are."""
    if each.opcode == "tuple":
        return [array for arrays in operands for array in arrays]
    if each.opcode == "get-tuple-element":
        return [operands[0][each.index]]
    everything = frozenset().union(*(array for arrays in operands for array in arrays))
    return [everything for _ in each.arrays]


def _parse(hlo: str) -> tuple[dict[str, list[_Instruction]], str]:
    """The instructions of every computation, in their order, and which is the entry."""
    computations: dict[str, list[_Instruction]] = {}
    entry, current = "", []
    for line in hlo.splitlines():
        if start := _COMPUTATION.match(line):
            current = computations.setdefault(start[2], [])
            entry = start[2] if start[1] else entry
        elif found := _LINE.match(line):
            current.append(_instruction(found[1], found[2]))
    return computations, entry


def _instruction(name: str, text: str) -> _Instruction:
    opcode = _OPCODE.search(text)
    assert opcode is not None
    operands, attributes = text[opcode.end() :].split(")", 1)
    calls, index = _CALLS.search(attributes), _INDEX.search(attributes)
    cycles = _CYCLES.search(attributes)
    return _Instruction(
        name,
        opcode[1],
        tuple(_arrays(text[: opcode.start()])),
        tuple(_OPERAND.findall(operands)),
        calls[1] if calls else None,
        int(index[1]) if index else 0,
        int(cycles[1]) if cycles else 0,
    )


def _arrays(text: str) -> Iterator[_Array]:
    """Those of a result's type, whose last dimensions are filled up to whole tiles."""
    for found in _SHAPE.finditer(text):
        dtype, dims, order, rows, columns, rest = found.groups()
        sizes = [int(size) for size in dims.split(",") if size]
        minor = [int(dim) for dim in (order or "").split(",") if dim]
        if rows and len(minor) > 1:
            for dim, tile in zip(minor, (int(columns), int(rows)), strict=False):
                sizes[dim] = -(-sizes[dim] // tile) * tile
        bits = int(re.sub(r"\D", "", dtype.removeprefix("bf"))[:2] or 8)
        yield _Array(math.prod(sizes) * bits // 8, "S(1)" in (rest or ""), f"{dtype}[{dims}]")
