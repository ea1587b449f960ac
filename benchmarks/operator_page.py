"""What benchmarks/operators.py measured -> docs/speed.md, a summary in docs/benchmarks.md."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

LIMIT = 1.1
PAGE, SUMMARY = Path("docs/speed.md"), Path("docs/benchmarks.md")
SECTION = re.compile("(<!-- operators -->\n).*?(<!-- /operators -->)", re.DOTALL)
TEXT = """# Speed of single ops

Written by `python -m benchmarks.operators`. Each op, and its gradients, as torch.compile
(backend="xla") compiles it, beside the same op written by hand in jax.numpy, jax.nn and lax
([benchmarks/jax_operators.py](../benchmarks/jax_operators.py)), in float32 and PyTorch's layouts,
on the same CPU client: {cpus} cores.

What is timed is the executable alone, with its inputs on the device; [benchmarks.md](benchmarks.md)
says what a call costs beyond it. Both sides take turns in one process. A time is the least of all
rounds, since other load on the machine only ever adds to it; memory that results have left is used
again. "forward and gradients" are two executables here, as autograd calls them, and one in JAX;
other gradients are timed without the forward. Indices are int64 here, and int32 in JAX, where a row
does not say otherwise.

{above} of {count} cases are above {limit} times JAX's time.
{notes}
{table}
"""
_NANS = "PyTorch counts every NaN among the largest, and to look for one reads the input once more"
_BETWEEN = "the weights are written by one program and read by another"
_INT64 = (
    "indices of int64 are twice the bytes, and most of what is read (see the rows of one width)"
)
_UNKNOWN = "no reason is known"
# Why a case is above the limit: "family: name, what" -> reason.
NOTES: dict[str, str] = {
    "matrix products: linear on 3-d, gradient of 1, 2, 3": (
        "XLA:CPU runs the product for the weight, over rows of both operands, in a slower kernel"
    ),
    **{
        f"attention: {mask}, forward and gradients": _BETWEEN
        for mask in ("full", "causal", "additive mask", "grouped queries")
    },
    "sorting: topk 50, forward": _NANS,
    "sorting: topk 50, forward and gradients": _NANS,
    "sorting: topk 1, forward": _NANS,
    "indexing: x[i, j], forward": _INT64,
    "indexing: gather, forward": _INT64,
    "scans: cummax, forward": "positions are int64, twice the bytes of JAX's",
}


@dataclass(frozen=True)
class Result:
    """Milliseconds of the executables of one case."""

    family: str
    name: str
    what: str
    ours: float
    jax: float

    @property
    def ratio(self) -> float:
        return self.ours / self.jax


def least(first: Result, second: Result) -> Result:
    """The least times of two measurements of one case."""
    ours, jax = min(first.ours, second.ours), min(first.jax, second.jax)
    return replace(first, ours=ours, jax=jax)


def table(results: list[Result]) -> str:
    """Markdown: every case; ratios above the limit are bold."""
    lines = ["| op | what | ours, ms | JAX, ms | ours / JAX |", "|---|---|--:|--:|--:|"]
    family = ""
    for one in results:
        if one.family != family:
            family = one.family
            lines.append(f"| **{family}** | | | | |")
        ratio = f"**{one.ratio:.2f}**" if one.ratio > LIMIT else f"{one.ratio:.2f}"
        lines.append(f"| {one.name} | {one.what} | {one.ours:.2f} | {one.jax:.2f} | {ratio} |")
    return "\n".join(lines)


def summary(results: list[Result]) -> str:
    """Markdown: for each family the median and the worst ratio."""
    lines = [
        "| family | cases | median ratio | worst ratio | worst case |",
        "|---|--:|--:|--:|---|",
    ]
    for family in dict.fromkeys(one.family for one in results):
        of_family = sorted((r for r in results if r.family == family), key=lambda r: r.ratio)
        middle, worst = of_family[len(of_family) // 2], of_family[-1]
        cells = (family, len(of_family), f"{middle.ratio:.2f}", f"{worst.ratio:.2f}")
        lines.append(f"| {' | '.join(map(str, cells))} | {worst.name}, {worst.what} |")
    return "\n".join(lines)


def publish(results: list[Result], cpus: int) -> None:
    """Rewrite docs/speed.md and the section of docs/benchmarks.md."""
    above = [one for one in results if one.ratio > LIMIT]
    reasons = {key: NOTES.get(key, _UNKNOWN) for key in map(_key, above)}
    notes = "".join(f"\n- {key}: {reason}." for key, reason in reasons.items())
    PAGE.write_text(
        TEXT.format(
            cpus=cpus,
            above=len(above),
            count=len(results),
            limit=LIMIT,
            notes=f"{notes}\n" if notes else "",
            table=table(results),
        )
    )
    text = SUMMARY.read_text()
    SUMMARY.write_text(
        SECTION.sub(lambda found: f"{found[1]}\n{summary(results)}\n\n{found[2]}", text)
    )


def _key(one: Result) -> str:
    return f"{one.family}: {one.name}, {one.what}"
