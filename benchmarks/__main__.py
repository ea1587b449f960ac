"""All benchmarks, into docs/benchmarks.md: `python -m benchmarks` (or `make bench`).

The tables between that page's markers are replaced, the short one of README.md, and docs/speed.md;
every measurement is appended to benchmarks/*.jsonl. `--only cpu,tpu` measures parts, and writes no
page; with `--write` their tables replace those of the page, where the others stay.
"""

from __future__ import annotations

import argparse
import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from . import cpu, imports, lazy, operators, overhead, shapes, start, tpu
from .cpu_problems import PROBLEMS

README, PAGE = Path("README.md"), Path("docs/benchmarks.md")
SECTION = re.compile("(<!-- benchmarks -->\n).*?(<!-- /benchmarks -->)", re.DOTALL)
# Engines of benchmarks.cpu -> the heads of README's columns, in order.
ENGINES = {
    "xla": "`torch.compile`",
    "xla step": "`training_step`",
    "xla lazy": "`xla:0`",
    "eager": "eager",
    "inductor": "Inductor",
    "torch_xla": "torch_xla 2.9",
    "jax": "JAX",
}
# Of the models of benchmarks.cpu, those that are compiled for a TPU, too, and are in README.
SHOWN = ("mnist", "resnet18", "gpt")
# In the order that they are measured in.
PARTS = ("overhead", "cpu", "start", "tpu", "lazy", "shapes", "imports")
TEXT = """
## Models on a CPU

Float32, on 2 CPU cores with nothing else to do. Each engine has a process of its own; they compile
one after another and are then measured in turns, eight of half a second. A time is the median of
the steps. A ratio above 1 means slower than that engine. `xla` is `torch.compile`, `xla step` a
whole step as one program (`xla_dynamo.training_step`), `xla lazy` a script for torch_xla; JAX is
written by hand.

| model | what it is | batch |
|---|---|---|
| mnist | the convnet of PyTorch's MNIST example | 64x1x28x28 |
| resnet18 | torchvision's | 16x3x64x64 |
| resnet18_224 | the same | 8x3x224x224 |
| convnext | ConvNeXt cut down to two stages: depthwise 7x7, layer norm, GELU | 8x3x128x128 |
| unet | eleven convolutions at three sizes: group norm, SiLU, upsampling | 4x4x64x64 |
| gpt | GPT-2's decoder, four layers 256 wide | 8x128 |
| bert | one layer of BERT-base, dropout 0.1 | 4x128x768 |
| lstm | a language model: embedding, two layers of LSTM 256 wide | 16x32 |
| dlrm | DLRM: eight embedding bags, dot products, MLPs | 256 |

### Training steps

Forward, backward and SGD with momentum; JAX's is one jitted step. `first step` includes compiling.

{training}

### Inference

A forward with its loss, in eval mode, without gradients.

{inference}

## Beginning

Fresh processes; the first finds no programs on disk, the second those of the first. Seconds to the
end of the first training step, with the import of what compiles it. Dynamo captures the model again
in the second process, which takes the rest from PyTorch's cache and ours; of a function that is
saved, it does not. Imports are 2 to 2.5 s of each: PyTorch's Dynamo, which its optimizers import in
eager mode too, and JAX. `aot_eager` has the first of them, traces, and compiles nothing.

{first}

{tiny}

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


def written(page: Path) -> dict[str, str]:
    """The fields of TEXT as a page has them.

    Raises:
        ValueError: the words around them are not those of TEXT.
    """
    pieces = re.split(r"{(\w+)}", TEXT)
    pattern = "".join(
        f"(?P<{piece}>.*?)" if at % 2 else re.escape(piece) for at, piece in enumerate(pieces)
    )
    section = SECTION.search(page.read_text())
    found = section and re.search(f"^<!-- benchmarks -->\n{pattern}<!--", section[0], re.DOTALL)
    if not found:
        raise ValueError(f"{page} has other words than `make bench` writes: write it whole.")
    return found.groupdict()


def summary(rows: Sequence[dict[str, Any]], comparisons: Sequence[tpu.Comparison]) -> str:
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


def tpu_table(comparisons: Sequence[tpu.Comparison]) -> str:
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


def measure(part: str, arguments: argparse.Namespace) -> Any:
    """What a part found; of most it is their table."""
    match part:
        case "cpu":
            return cpu.run_chosen(arguments)
        case "tpu":
            return [compiled_for_tpu(name) for name in SHOWN]
        case "overhead":
            return overhead.table(overhead.run())
        case "start":
            return {
                "first": start.first_table(start.first_steps()),
                "tiny": start.tiny_table(start.tiny(arguments.torch_xla)),
            }
        case "shapes":
            return shapes.table(shapes.run())
        case _ if not arguments.torch_xla:
            return "(needs --torch-xla)"
        case "lazy":
            return lazy.table(*lazy.run(arguments.torch_xla))
        case _:
            return imports.table(imports.run(arguments.torch_xla))


def compiled_for_tpu(name: str) -> tpu.Comparison:
    """A training step of a model of benchmarks.cpu, at the size that is measured there."""
    return dataclasses.replace(tpu.compare(PROBLEMS[name](), "medium"), problem=name)


def tables(part: str, found: Any) -> dict[str, str]:
    """Fields of TEXT, and what goes there."""
    match part:
        case "cpu":
            modes = {row["mode"] for row in found}
            return {mode: cpu.table(found, mode) for mode in cpu.STEPS if mode in modes}
        case "tpu":
            return {part: tpu_table(found)}
        case "start":
            return found
        case _:
            return {part: found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    cpu.add_arguments(parser)
    parts = cpu.some_of(PARTS)
    parser.add_argument("--only", type=parts, metavar="A,B", help=f"some of {', '.join(PARTS)}")
    parser.add_argument("--write", action="store_true", help="the tables of --only into the page")
    arguments = parser.parse_args()
    if not arguments.only and cpu.is_partial(arguments):
        parser.error("the pages have all models, engines and modes: add --only cpu")
    found: dict[str, Any] = {}
    texts = written(PAGE) if arguments.write else {}
    for part in arguments.only or PARTS:
        found[part] = measure(part, arguments)
        texts |= (new := tables(part, found[part]))
        for field, text in new.items():
            print(f"\n{field}\n\n{text}", flush=True)
    if arguments.only and not arguments.write:
        return
    replace_section(PAGE, TEXT.format(**texts))
    if {"cpu", "tpu"} <= found.keys():
        training = [row for row in found["cpu"] if row["mode"] == "training"]
        replace_section(README, f"\n{summary(training, found['tpu'])}\n\n")
    if not arguments.only:
        operators.measure_all(operators.OUTPUT)


if __name__ == "__main__":
    main()
