"""results.json -> docs/operators.md, the table of operators, and tests/expected_failures.toml."""

from __future__ import annotations

import collections
import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import torch

from .cases import DIRECTIONS, DTYPES, operators
from .record import Row

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "operators.md"
EXPECTED = ROOT / "tests" / "expected_failures.toml"

_MARKS = {
    "right": "✓",
    "declined": "cpu",
    "wrong": "✗",
    "crash": "✗✗",
    "absent": "·",
    "not declared": "",
}
_SHORT: dict[str, str] = dict(
    zip(
        DTYPES,
        ("f32", "f64", "bf16", "f16", "i32", "i64", "u8", "bool", "c64", "c128"),
        strict=True,
    )
)

_DOORS = {
    "compile": "torch.compile",
    "lazy": "lazy tensors",
    "bucket": "sizes of buckets",
    "batch": "a batch of buckets",
    "tpu": "compiled for a TPU",
}
_WAYS = {"torch-mlir": "torch-mlir", "rule": "JAX rule", "cpu": "CPU"}

_INTRODUCTION = """# Operators

The tables: [forward](#forward), [backward](#backward).

Every operator of PyTorch's own test database (`torch.testing`'s OpInfo) and every dtype that it
declares for the CPU, run on the CPU client and compared with eager PyTorch at
`torch.testing.assert_close`'s default bounds; float64 gradients to 1e-7. It is run through two
doors: `torch.compile(fullgraph=True, backend="xla")`, and tensors of the lazy device `xla:0`; and
for float32 through two more, `options={"bucket": ...}` ([shapes.md](shapes.md)), where what is
behind the elements is nan: with every dimension of every tensor padded, called with the sizes 2, 3,
P-1, P and P+1 around a bucket of P; and with the first dimension alone, the batch. There "declined"
means that a dimension gets exact sizes, with a warning. A last door is for TPUs, of which there was
none: graphs are lowered as for a TPU v5e, libtpu compiles each program, and the CPU runs it, so
that the numbers are those of the lowerings, in the CPU's arithmetic. This page is generated: `make
operators` runs the sweep and rewrites it.

| mark | meaning |
|---|---|
| ✓ | right on every sample |
| cpu | declined on at least one sample: a clear error, or the op runs on the CPU, with a warning |
| ✗ | wrong on at least one sample |
| ✗✗ | the compiler or the process crashed on at least one sample |
| · | eager runs none of the samples here |
| empty | PyTorch does not declare this dtype |
| ✓ lazy: cpu | the doors differ: the first mark is of torch.compile, the second of lazy tensors |
| bucket: exact | with sizes of buckets, a dimension goes back to exact sizes, with a warning |
| batch: exact | the same where only the first dimensions are padded |
| tpu: cpu | on a TPU the op, or the program, is declined, or runs on the CPU with a warning |

Where one mark stands alone, it is of torch.compile, and of lazy tensors too where they were run
(the counts say for which dtypes).

Right also means: within the default bounds of the same operator in float64, or as near to it, by a
factor of four, as eager is, or as the answer to inputs that are changed in the last place (two
orders of adding float32 numbers differ by rounding); drawn from the same distribution (random
operators; two-sample Kolmogorov-Smirnov tests); the same shape, dtype and strides (`empty` and its
kin); an equally valid answer (eigenvectors, singular vectors: checked by what they reconstruct).

`lowered by` says who lowers the operator's own aten op. `via`: PyTorch makes other ops of it, by
decomposition or because it is a function of several; those, and who lowers them. `no op`: nothing
is left to compute (views of inputs, constants), or Dynamo leaves it to eager.
"""


def page(rows: Mapping[str, Row]) -> str:
    """The text of docs/operators.md: counts of each door, then a table for each direction."""
    run = {where for row in rows.values() for where in row.outcomes}
    parts = [_INTRODUCTION]
    for direction in DIRECTIONS:
        for door, name in _DOORS.items():
            if (where := f"{door} {direction}") in run:
                parts.append(f"## Counts: {name}, {direction}\n\n{_counts(rows, where)}")
    for direction in DIRECTIONS:
        if any(f"{door} {direction}" in run for door in _DOORS):
            parts.append(f"## {direction.capitalize()}\n\n{_table(rows, direction)}")
    return "\n".join(parts)


def _counts(rows: Mapping[str, Row], where: str) -> str:
    lines = ["| dtype | right | declined | wrong | crash | in all | right, % |"]
    lines.append("|---|--:|--:|--:|--:|--:|--:|")
    total: collections.Counter[str] = collections.Counter()
    core: collections.Counter[str] = collections.Counter()
    for dtype in DTYPES:
        found = collections.Counter(row.outcome(where, dtype) for row in rows.values())
        total.update(found)
        lines.append(_count_line(dtype, found))
        core.update(row.outcome(where, dtype) for op, row in rows.items() if is_core(op))
    lines.append(_count_line("**all**", total))
    lines.append(_count_line("of the ATen core opset", core))
    return "\n".join(line for line in lines if line) + "\n"


def _count_line(name: str, found: Mapping[str, int]) -> str:
    numbers = [found.get(outcome, 0) for outcome in ("right", "declined", "wrong", "crash")]
    total = sum(numbers)
    if not total:
        return ""
    share = f"{100 * numbers[0] / total:.1f}"
    return f"| {name} | " + " | ".join(map(str, (*numbers, total, share))) + " |"


def is_core(op: str) -> bool:
    """Whether the operator is an op of the ATen core opset."""
    packet = getattr(torch.ops.aten, operators()[op].aten_name, None)
    if packet is None:
        return False
    overloads = (getattr(packet, name) for name in packet.overloads())
    return any(torch.Tag.core in overload.tags for overload in overloads)


def _table(rows: Mapping[str, Row], direction: str) -> str:
    wheres = [f"{door} {direction}" for door in _DOORS]
    run = {op: row for op, row in rows.items() if any(where in row.outcomes for where in wheres)}
    used = [d for d in DTYPES if any(_mark(row, wheres, d) for row in run.values())]
    columns = ["operator", *(["lowered by"] if direction == "forward" else [])]
    lines = ["| " + " | ".join([*columns, *(_SHORT[d] for d in used)]) + " |"]
    lines.append("|---" * len(columns) + "|:-:" * len(used) + "|")
    for op, row in sorted(run.items()):
        cells = [f"`{op}`", *([lowered_by(op, row)] if direction == "forward" else [])]
        cells += [_mark(row, wheres, dtype) for dtype in used]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _mark(row: Row, wheres: Sequence[str], dtype: str) -> str:
    """Such as "✓", or "✓ lazy: cpu" where the doors `wheres` (the compiler's first) differ."""
    first, *others = ((where.split()[0], row.outcome(where, dtype)) for where in wheres)
    mark = _MARKS[first[1]]
    for door, outcome in others:
        is_exact = door in ("bucket", "batch") and outcome == "declined"
        other = "exact" if is_exact else _MARKS[outcome]
        mark += f" {door}: {other}" if other not in ("", _MARKS[first[1]]) else ""
    return mark.strip()


def lowered_by(op: str, row: Row) -> str:
    """Such as "torch-mlir", "JAX rule", or, of what it becomes, "via cat, view (JAX rule)"."""
    own = {_base(operators()[op].aten_name), _base(op.split(".")[-1])}
    bases = {
        word: {_base(name) for name in row.ways[way]}
        for way, word in _WAYS.items()
        if way in row.ways
    }
    direct = [way for way, names in bases.items() if own & names]
    if direct:
        return ", ".join(direct)
    made_of = sorted(set().union(*bases.values()))
    if not made_of:
        return "no op"
    more = f", {len(made_of) - 3} more" if len(made_of) > 3 else ""
    return f"via {', '.join(made_of[:3])}{more} ({', '.join(bases)})"


def _base(name: str) -> str:
    return name.split(".")[0].strip("_").removesuffix("_functional")


def toml(rows: Mapping[str, Row]) -> str:
    """The text of expected_failures.toml: failures in groups of one door, outcome and reason."""
    groups: dict[tuple[str, str, str], dict[str, list[str]]] = {}
    for op, where, dtype, outcome, reason in failures(rows):
        groups.setdefault((where, outcome, reason), {}).setdefault(op, []).append(dtype)
    lines = [
        "# What the operator sweep finds not right, by reason. Generated: see docs/operators.md.",
        "# A case that is listed here and comes out right fails the sweep, as does one that is",
        "# not listed and does not.",
    ]
    for (where, outcome, reason), ops in sorted(groups.items()):
        door, direction = where.split()
        lines += ["", "[[group]]", f'door = "{door}"', f'direction = "{direction}"']
        lines += [f'outcome = "{outcome}"', f"reason = {_quoted(reason)}", "[group.operators]"]
        lines += [f"{_quoted(op)} = {json.dumps(dtypes)}" for op, dtypes in sorted(ops.items())]
    return "\n".join(lines) + "\n"


def failures(rows: Mapping[str, Row]) -> Iterator[tuple[str, str, str, str, str]]:
    """(operator, "door direction", dtype, outcome, reason) of all that is not right."""
    for op, row in sorted(rows.items()):
        for where, reasons in row.reasons.items():
            for dtype, reason in reasons.items():
                yield op, where, dtype, row.outcome(where, dtype), reason


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def expected(path: Path = EXPECTED) -> dict[tuple[str, str, str], str]:
    """("door direction", operator, dtype) -> outcome, of what is expected not to be right."""
    groups = tomllib.loads(path.read_text()).get("group", [])
    return {
        (f"{group['door']} {group['direction']}", op, dtype): group["outcome"]
        for group in groups
        for op, dtypes in group["operators"].items()
        for dtype in dtypes
    }
