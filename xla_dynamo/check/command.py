"""`python -m xla_dynamo check train.py src`: what scripts use of torch_xla's, and how it does."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from . import render, report, sources


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's own arguments."""
    parser.add_argument("paths", nargs="+", type=Path, help="scripts, notebooks, folders of them")
    parser.add_argument("--json", action="store_true", help="for a program to read")


def main(paths: Sequence[Path], as_json: bool) -> int:
    """Print the reports; 0 if nothing that the scripts use is missing."""
    reports = [report.of(path) for path in sources.find(paths)]
    (render.as_json if as_json else render.text)(reports)
    return 0 if all(each.is_complete() for each in reports) else 1
