"""docs/versions.md: the table of combinations, and what of it is not as it should be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .checks import CHECKS
from .combinations import COMBINATIONS, OPERATORS, Combination

_HEAD = """# Versions

`make matrix` writes this page. For each line it builds a fresh environment, installs the versions
and runs:

- **doctor**: `python -m xla_dynamo doctor`, which tries both ways in;
- **spine**: the fast tests of passes, pipeline, lowering and runtime;
- **kernels**: programs on the CPU that call PyTorch's own kernels;
- **seeds**: the programs of torch_xla's public documents;
- **digits**: `examples/digits.py`, three epochs;
- **operators**, **lazy operators**: {operators} operators of PyTorch's own database by
  torch.compile and on `xla` tensors, against eager;
- **GPT step**: training steps of a GPT.

**at** is the commit of this project that a line was last run with.

The newest torch-mlir goes with all of them: its StableHLO is handed to jaxlib in the older of both
sides' versions. torch 2.9 has no torch.compile on Python 3.14. `python -m xla_dynamo doctor`
compares an installation with this range.
"""


def page(done: Mapping[str, Any]) -> str:
    """The page as Markdown, of the combinations that were run."""
    names = [check.name for check in CHECKS]
    rows = [c for c in COMBINATIONS if c.name in done]
    lines = [
        _HEAD.format(operators=len(OPERATORS)),
        f"| Python | torch | jax | transformers | {' | '.join(names)} | at | |",
        "|---" * (len(names) + 6) + "|",
        *(_row(combination, done[combination.name]) for combination in rows),
    ]
    told = [
        f"- {combination.name}, {name}: {text}"
        for combination in rows
        for name, text in done[combination.name]["checks"].items()
        if text
    ]
    return "\n".join([*lines, *(["", "What does not pass:", "", *told] if told else [])]) + "\n"


def _row(combination: Combination, known: Mapping[str, Any]) -> str:
    told = [known["checks"].get(check.name) for check in CHECKS]
    cells = ["not run" if text is None else "no" if text else "yes" for text in told]
    cells += [known.get("commit", ""), combination.why]
    beside = f" beside torch_xla {combination.torch_xla}" if combination.torch_xla else ""
    given = [combination.python, combination.torch + beside, combination.jax]
    return f"| {' | '.join([*given, combination.transformers, *cells])} |"
