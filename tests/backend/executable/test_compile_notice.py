"""A compile that lasts says so: what, why and how long it took before."""

from __future__ import annotations

import io
import re
import sys
import time
from dataclasses import replace

import pytest
import torch

from xla_dynamo.backend import metrics
from xla_dynamo.backend.executable import compile_notice
from xla_dynamo.backend.runtime import pjrt
from xla_dynamo.config import config


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiles take longer than it takes to say so."""
    compile, settings = pjrt.compile, config()
    notice = _Seconds(0.05)

    def slowly(*arguments: object, **keywords: object) -> object:
        time.sleep(0.3)
        return compile(*arguments, **keywords)  # type: ignore[arg-type]

    monkeypatch.setattr(pjrt, "compile", slowly)
    monkeypatch.setattr(compile_notice, "config", lambda: replace(settings, compile_notice=notice))


class _Seconds(float):
    """Less than a whole second, which users cannot ask for."""


def _compile(size: int) -> None:
    function = torch.compile(lambda x: x.sin() * size, backend="xla", dynamic=False)
    torch.compiler.reset()
    function(torch.ones(size))


def test_a_line_says_what_why_and_how_long_it_took(
    slow: None, capsys: pytest.CaptureFixture[str]
) -> None:
    metrics.reset_metrics()
    _compile(1001)
    line = r"xla_dynamo: XLA compiles 0/0 inference \(test_compile_notice.py:\d+, \d ops\) for cpu"
    [first] = capsys.readouterr().err.splitlines()
    assert re.fullmatch(f"{line}: first call", first)
    _compile(1002)
    [second] = capsys.readouterr().err.splitlines()
    assert re.fullmatch(f"{line}: first call; the last time took 0 s", second)


def test_a_terminal_shows_it_live(slow: None, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = io.StringIO()
    terminal.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    _compile(1003)
    shown = terminal.getvalue()
    assert "XLA compiles 0/0 inference" in shown
    assert "0:00:00" in shown
    assert not compile_notice._live.locked()


def test_nothing_is_said_of_short_ones(capsys: pytest.CaptureFixture[str]) -> None:
    _compile(1004)
    assert capsys.readouterr().err == ""
