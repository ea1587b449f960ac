"""Reasons of compile records -> causes: what docs/recompilation.md and the backend say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from xla_dynamo.reporting.causes import CAUSES, cause_of

pytestmark = pytest.mark.spine
PAGE = Path(__file__).parents[2] / "docs" / "recompilation.md"
REASONS = {
    "first call": "first",
    "x dimension 0 changed from 8 to 4": "sizes",
    "L['x'] dimension 0 was 8, now varies": "sizes",
    "primals_3 changed from 16 to 8": "sizes",
    "x changed from 2 to 3 dimensions": "sizes",
    "x changed from torch.float32 to torch.float64": "sizes",
    "x dimension 0: bucket 8 (2..8)": "sizes",
    "x no longer requires a gradient": "options",
    "Dynamo captured the function again (TORCH_LOGS=recompiles shows its guards)": "options",
    "the executable had been evicted": "evicted",
    "not known": "other",
}
# Of the page's table, by how a reason begins.
OF_PAGE = {
    "input 0": "sizes",
    "argument": "ops",
    "aten.relu": "ops",
    "self was": "ops",
    "the barrier": "barrier",
    "the set of live": "live",
    "the options": "options",
    "... dimension 0": "sizes",
    "its program": "evicted",
    "first compile": "first",
}


@pytest.mark.parametrize(("reason", "cause"), REASONS.items())
def test_reasons_of_the_backend(reason: str, cause: str) -> None:
    assert cause_of(reason) == cause
    assert cause in CAUSES


def test_each_reason_of_the_page_has_its_cause() -> None:
    table = PAGE.read_text().partition("## Reasons")[2].partition("\n\nNumbers")[0]
    rows = [line for line in table.splitlines() if line.startswith("| `")]
    reasons = [reason for row in rows for reason in re.findall(r"`([^`]+)`", row.split(" | ")[0])]
    assert len(reasons) > 10
    for reason in reasons:
        (cause,) = [OF_PAGE[begin] for begin in OF_PAGE if reason.startswith(begin)]
        assert cause_of(reason) == cause, reason
