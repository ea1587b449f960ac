"""Run a program in eager on the CPU and through one door, and compare its numbers."""

from __future__ import annotations

import copy
from typing import Any

import torch

import xla_dynamo
import xla_dynamo.compat

from .programs import Program


def compare(program: Program, door: str) -> str:
    """ "as eager", with the fallbacks if there were any; door: "lazy" or "compile".

    Raises:
        AssertionError: the numbers differ.
    """
    torch.manual_seed(0)
    want = [x.cpu() for x in program(lambda x: x, lambda f: f)]
    torch.manual_seed(0)
    if door == "lazy":
        got = program(_on_device, lambda f: f)
    else:
        got = program(lambda x: x, lambda f: torch.compile(f, backend="xla"))
    for ours, theirs in zip(got, want, strict=True):
        torch.testing.assert_close(ours.cpu(), theirs, rtol=2e-3, atol=2e-4)
    fallbacks = [name for name in xla_dynamo.counters() if name.startswith("fallback")]
    return f"as eager; {', '.join(fallbacks)}" if fallbacks else "as eager"


def _on_device(x: Any) -> Any:
    """A copy: modules move in place."""
    return copy.deepcopy(x).to("xla")
