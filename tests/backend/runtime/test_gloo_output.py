"""gloo's lines on stdout are withheld, and no others."""

from __future__ import annotations

import os

import pytest

from xla_dynamo.backend.runtime import gloo_output

pytestmark = pytest.mark.spine


def test_only_lines_of_gloo_are_withheld(capfd: pytest.CaptureFixture[str]) -> None:
    print("before")
    with gloo_output.withheld():
        os.write(1, b"[Gloo] Rank 0 is connected to 1 peer ranks.\n")
        print("within")
    print("after")
    assert capfd.readouterr().out.split() == ["before", "within", "after"]


def test_what_is_raised_within_is_raised(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ZeroDivisionError), gloo_output.withheld():
        os.write(1, b"%d\n" % (1 // int("0")))
    print("after")
    assert capfd.readouterr().out == "after\n"
