"""A program: the text of its inputs and of its steps -> functions that make and run it.

What runs is what is printed: there is no other form of a program than its text.
"""

from __future__ import annotations

import itertools
import linecache
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf, nan
from typing import Any

import torch
from torch import Tensor

PRELUDE = """\
import torch
import torch.nn.functional as F
from math import inf, nan
"""

_numbers = itertools.count()


@dataclass(frozen=True)
class Program:
    """Straight-line code over named tensors.

    inputs: assignments, in which `device` is known; a later one may be a view of an earlier one.
    steps: statements over the names of the inputs and of earlier steps.
    results: the names that are returned.
    gradient: whether results are differentiated by the inputs that require it.
    single: whether float32 numbers take part, so that results have no more than its precision.
    """

    inputs: tuple[str, ...]
    steps: tuple[str, ...]
    results: tuple[str, ...]
    gradient: bool = False
    single: bool = False

    @property
    def names(self) -> list[str]:
        return [line.split(" = ", 1)[0] for line in self.inputs]

    def text(self) -> str:
        """The source of `inputs(device)`, a list of tensors, and of `program(*inputs)`."""
        return "\n".join(
            [
                "def inputs(device):",
                *(f"    {line}" for line in self.inputs),
                f"    return [{', '.join(self.names)}]",
                "",
                "",
                f"def program({', '.join(self.names)}):",
                *(f"    {line}" for line in self.steps),
                f"    return [{', '.join(self.results)}]",
                "",
            ]
        )

    def functions(self) -> Functions:
        # Known to linecache: error messages show the line of the program.
        file = f"<program {next(_numbers)}>"
        text = self.text()
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
        scope = namespace()
        exec(compile(text, file, "exec"), scope)
        return Functions(scope["inputs"], scope["program"])


@dataclass(frozen=True)
class Functions:
    inputs: Callable[[str], list[Tensor]]
    run: Callable[..., list[Tensor]]


def namespace() -> dict[str, Any]:
    """The names that the text of a program uses."""
    return {"torch": torch, "F": torch.nn.functional, "inf": inf, "nan": nan}


def weights(results: Sequence[Tensor]) -> list[Tensor]:
    """The cotangents with which results are differentiated: different for each element."""
    return [
        torch.linspace(-1, 1, x.numel(), dtype=x.dtype).view(x.shape).to(x.device) for x in results
    ]


def differentiable(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Those that require gradients, each once."""
    return list({id(x): x for x in tensors if x.requires_grad}.values())
