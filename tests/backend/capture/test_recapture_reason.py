"""Why a function was captured again: the first argument that differs, in the user's words."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from xla_dynamo.backend.capture.recapture_reason import FIRST, reason

pytestmark = pytest.mark.spine
NAMES = ("x", "n")
X = torch.ones(2, 3)

CHANGES: dict[str, tuple[tuple[Any, Any], str]] = {
    "a size": ((torch.ones(2, 4), 5), "x dimension 1 changed from 3 to 4"),
    "dimensions": ((torch.ones(2), 5), "x changed from 2 to 1 dimensions"),
    "a dtype": ((X.double(), 5), "x changed from torch.float32 to torch.float64"),
    "a gradient": ((X.clone().requires_grad_(), 5), "x now requires a gradient"),
    "a number": ((X, 6), "n changed from 5 to 6"),
    "a kind": ((X, X), "n changed from 5 to a torch.float32 tensor"),
    "two": ((torch.ones(1, 3), 6), "x dimension 0 changed from 2 to 1, n changed from 5 to 6"),
    "nothing": ((X, 5), "Dynamo captured the function again"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_changes(name: str) -> None:
    arguments, expected = CHANGES[name]
    assert reason(-1, 0, NAMES, (X, 5)) == FIRST
    assert reason(-1, 1, NAMES, arguments).startswith(expected)


def test_frames_are_kept_apart_and_a_first_capture_begins_anew() -> None:
    assert reason(-2, 0, NAMES, (X, 5)) == FIRST
    assert reason(-3, 1, NAMES, (X, 6)) == FIRST
    assert reason(-2, 1, NAMES, (X, 7)) == "n changed from 5 to 7"
    assert reason(-2, 0, NAMES, (X, 8)) == FIRST


def test_a_gradient_that_is_no_longer_required() -> None:
    reason(-4, 0, NAMES, (X.clone().requires_grad_(), 5))
    assert reason(-4, 1, NAMES, (X, 5)) == "x no longer requires a gradient"
