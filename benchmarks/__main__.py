"""All benchmarks, into docs/benchmarks.md: `python -m benchmarks` (or `make bench`).

The tables between that page's markers are replaced, the short one of README.md, and docs/speed.md;
every measurement is appended to benchmarks/*.jsonl.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

from . import cpu, imports, lazy, operators, overhead, shapes, tpu

README, PAGE = Path("README.md"), Path("docs/benchmarks.md")
SECTION = re.compile("(<!-- benchmarks -->\n).*?(<!-- /benchmarks -->)", re.DOTALL)
# Engines of benchmarks.cpu -> the heads of README's columns, in order.
ENGINES = {
    "xla": "`torch.compile`",
    "xla lazy": "`xla:0`",
    "eager": "eager",
    "inductor": "Inductor",
    "torch_xla": "torch_xla 2.9",
    "jax": "JAX",
}
TEXT = """
## Training steps on a CPU

Training steps on this machine's CPU. `first step` includes compiling; `step / xla` above 1 means
slower than this backend; JAX is written by hand, one jitted step with its optimizer.

{cpu}

## Host time of a step for torch_xla

Host time of a training step written for torch_xla (12 layers of small matrices, so that tracing is
what takes time), here and on torch_xla itself; least of several runs, engines taking turns.

{lazy}

## What a call costs

What a call costs beyond its arithmetic.

{overhead}

## Sizes that change

50 steps of random sizes (lengths 2 to 128 of a block of GPT, batches of 2 to 64
images), programs and seconds without a disk cache; then a step whose size is its bucket's, as a
multiple of the static program's, with masks, and when it has come eight times.

{shapes}

## Importing

CPU time of fresh processes, least of five.

{imports}

## Training steps on a TPU, compiled

Whole training steps (forward, backward, SGD with momentum) compiled for one TPU v5e core, with
hand-written JAX compiled for the same core: ours / JAX = ratio, by the TPU compiler's own analysis.

{tpu}

"""


def replace_section(page: Path, text: str) -> None:
    """Put `text` between a page's benchmark markers."""
    page.write_text(SECTION.sub(lambda found: found[1] + text + found[2], page.read_text()))


def summary(rows: list[dict[str, Any]], comparisons: list[tpu.Comparison]) -> str:
    """Markdown for the README: a row for each model, a step's time on each engine."""
    engines = [engine for engine in ENGINES if any(row["engine"] == engine for row in rows)]
    heads = " | ".join(f"{ENGINES[engine]}, ms" for engine in engines)
    lines = [
        f"| model | {heads} | TPU FLOPs / JAX's | TPU bytes / JAX's |",
        f"|---|{'--:|' * (len(engines) + 2)}",
    ]
    times = {(row["problem"], row["engine"]): row.get("step_milliseconds") for row in rows}
    for one in comparisons:
        taken = [times.get((one.problem, engine)) for engine in engines]
        cells = ["failed" if time is None else f"{time:.1f}" for time in taken]
        ratios = [f"{one.ratio(measure):.2f}" for measure in ("flops", "bytes_accessed")]
        lines.append(f"| {one.problem} | {' | '.join(cells + ratios)} |")
    return "\n".join(lines)


def tpu_table(comparisons: list[tpu.Comparison]) -> str:
    """Markdown."""
    lines = ["| model | GFLOP | MB accessed | MB temporary |", "|---|--:|--:|--:|"]
    for one in comparisons:
        cells = [
            f"{getattr(one.ours, measure) / scale:.1f} / {getattr(one.theirs, measure) / scale:.1f}"
            f" = {one.ratio(measure):.3f}"
            for measure, scale in (("flops", 1e9), ("bytes_accessed", 1e6), ("temporary", 1e6))
        ]
        lines.append(f"| {one.problem} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0, help="measured time of each engine")
    parser.add_argument("--torch-xla", metavar="PYTHON", help="Python of an environment with it")
    arguments = parser.parse_args()
    calls = overhead.table(overhead.run())
    output = Path("benchmarks/results.jsonl")
    rows = cpu.run(cpu.PROBLEMS, arguments.seconds, arguments.torch_xla, output)
    names = ("mnist", "resnet18", "gpt")
    comparisons = [tpu.compare(tpu.PROBLEMS[name](), "medium") for name in names]
    steps = started = "(needs --torch-xla)"
    if arguments.torch_xla:
        steps = lazy.table(*lazy.run(arguments.torch_xla))
        started = imports.table(imports.run(arguments.torch_xla))
    text = TEXT.format(
        cpu=cpu.table(rows),
        lazy=steps,
        overhead=calls,
        shapes=shapes.table(shapes.run()),
        imports=started,
        tpu=tpu_table(comparisons),
    )
    print(text)
    replace_section(PAGE, text)
    replace_section(README, f"\n{summary(rows, comparisons)}\n\n")
    operators.measure_all(operators.OUTPUT)


if __name__ == "__main__":
    main()
