"""Runs random programs through a door, and writes those on which it disagrees with eager.

    python -m tests.fuzz --graphs 1000 --seed 1 --door both --shard 1/2 --out found

A disagreement is shrunk by hypothesis to a small program and written into the folder as a script
that runs by itself. Exits with 1 if there is one. A program whose process dies is left there too,
as `running-*.py`. `--door symbolic` is torch.compile(dynamic=True), `--door bucket`
the same with sizes of buckets; both are the two others. `--large` programs have tensors that a
compiler gives to threads, tiles and vectors.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

# Each graph is new: keeping the executables would fill the disk.
os.environ.setdefault("XLA_DYNAMO_CACHE_DIR", "0")
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import torch

from . import script
from .doors import DOORS
from .hunt import hunt
from .runner import Disagreement, Tally
from .templates import FAMILIES


def main() -> int:
    options = _parse()
    if not options.large:
        torch.set_num_threads(1)
    index, count = map(int, options.shard.split("/"))
    doors = ["compile", "lazy"] if options.door == "both" else [options.door]
    tallies = {door: Tally() for door in doors}

    def report(found: Disagreement) -> None:
        path = script.write(found, options.out)
        print(f"{found.door}: {path}: {found.text[:300]}", flush=True)

    running = options.out / f"running-{options.door}-{options.seed}-{index}.py"
    graphs = options.graphs // count
    seed = options.seed * 1_000_000 + (index - 1) * graphs
    chosen = (options.batch, running, options.families, options.large)
    failures = hunt(graphs, seed, tallies, report, *chosen)
    for door, tally in tallies.items():
        print(f"{door}: {tally}", flush=True)
    return 1 if failures else 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--graphs", type=int, default=1000, help="in all shards, for each door")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--door", choices=[*sorted(DOORS), "both"], default="both")
    parser.add_argument("--shard", default="1/1", help="which part of how many: 3/8")
    parser.add_argument("--batch", type=int, default=32, help="graphs that are compiled together")
    parser.add_argument(
        "--families",
        type=lambda names: names.split(","),
        default=list(FAMILIES),
        help="kinds of steps, by commas: views,views,writes,writes,unary for aliasing",
    )
    parser.add_argument("--large", action="store_true", help="tensors of thousands of elements")
    parser.add_argument("--out", type=Path, default=Path("fuzz"), help="folder for the scripts")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
