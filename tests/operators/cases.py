"""What the sweep runs: PyTorch's OpInfo database as (operator, dtype, direction) cases.

A case has an id, such as "linalg.norm.subgradients_at_zero float32 backward": the operator's name
with its variant, the dtype, and which way values flow.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.testing._internal import common_methods_invocations, common_utils
from torch.testing._internal.opinfo import core

DTYPES = (
    "float32",
    "float64",
    "bfloat16",
    "float16",
    "int32",
    "int64",
    "uint8",
    "bool",
    "complex64",
    "complex128",
)
DIRECTIONS = ("forward", "backward")
# How many samples a case runs where not all of them: spread evenly over those that there are.
SAMPLES = {"forward": 3, "backward": 5}
# The lazy door runs the same lowerings: fewer samples tell whether it reaches them.
_LAZY_FORWARD, _LAZY = 6, 3
_BUCKET = 2
_TPU = 2


@dataclass(frozen=True, order=True)
class Case:
    """One cell of the table: an operator (name and variant), a dtype, a direction."""

    op: str
    dtype: str
    direction: str

    def __str__(self) -> str:
        return f"{self.op} {self.dtype} {self.direction}"


@functools.cache
def operators() -> dict[str, Any]:
    """OpInfo by name and variant: {"add": ..., "linalg.norm.subgradients_at_zero": ...}."""
    # Random operators are wrapped to set the seed, which no graph can hold.
    common_methods_invocations.wrapper_set_seed = _unseeded  # pyright: ignore
    # The name of the test that asks for samples: it reads source files all the way up the stack.
    common_utils.extract_test_fn = core.extract_test_fn = lambda: None  # pyright: ignore
    return {info.full_name: info for info in common_methods_invocations.op_db}


def _unseeded(op: Any, *args: Any, **kwargs: Any) -> Any:
    return op(*args, **kwargs)


def cases(dtypes: Sequence[str], directions: Sequence[str]) -> list[Case]:
    """Every case that the OpInfos declare for the CPU, in the order of names."""
    return [
        Case(name, dtype, direction)
        for direction in directions
        for dtype in dtypes
        for name, info in sorted(operators().items())
        if declares(info, getattr(torch, dtype), direction)
    ]


def declares(info: Any, dtype: torch.dtype, direction: str) -> bool:
    if direction == "forward":
        return dtype in info.supported_dtypes("cpu")
    return bool(info.supports_autograd) and dtype in info.supported_backward_dtypes("cpu")


def shard(all_cases: Sequence[Case], spec: str) -> list[Case]:
    """The cases of shard "3/8": every eighth, from the third on."""
    number, count = map(int, spec.split("/"))
    if not 1 <= number <= count:
        raise ValueError(f"shard {spec}: the first number must lie in 1..{count}")
    return list(all_cases[number - 1 :: count])


def recorded_samples(case: Case, door: str) -> int | None:
    """How many samples of a case the record is made of; None: of all."""
    whole = case.dtype == "float32" and case.direction == "forward"
    if door in ("bucket", "batch"):
        return _BUCKET
    if door == "tpu":
        return _TPU
    if door == "lazy":
        return _LAZY_FORWARD if whole else _LAZY
    return None if whole else SAMPLES[case.direction]


SEED = "XLA_DYNAMO_SWEEP_SEED"


def samples(case: Case, limit: int | None) -> list[Any]:
    """The case's SampleInputs, at most `limit` of them (None: all), the same at every call.

    The record is made of those of seed 0; the environment variable `SEED` asks for others.
    """
    torch.manual_seed(int(os.environ.get(SEED, "0")))
    info = operators()[case.op]
    found = list(
        info.sample_inputs(
            "cpu", getattr(torch, case.dtype), requires_grad=case.direction == "backward"
        )
    )
    if limit is None or len(found) <= limit:
        return found
    if limit == 1:
        return [found[len(found) // 2]]
    return [found[i * (len(found) - 1) // (limit - 1)] for i in range(limit)]
