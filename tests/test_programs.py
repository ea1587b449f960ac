"""The tests' own forks behave as processes of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.programs import run

PROGRAM = """
import atexit, os, subprocess, sys, threading
atexit.register(lambda: print("at exit"))
print(__name__, sys.argv, sys.path[0], os.getcwd(), os.environ["GIVEN"], flush=True)
print([name for name in sys.modules if name.startswith("xla_dynamo")], sys.stdin.read())
print(sys.modules["__main__"].__dict__ is globals(), threading.active_count(), flush=True)
subprocess.run(["echo", "a child's"])
def f():
    raise {error}
f()
"""


@pytest.mark.parametrize("error", ["ValueError('wrong')", "SystemExit(3)", "SystemExit('bye')"])
@pytest.mark.parametrize("way", ["-c", "-m", "script"])
def test_a_fork_does_what_a_fresh_process_does(tmp_path: Path, way: str, error: str) -> None:
    text = PROGRAM.format(error=error)
    script = tmp_path / "program.py"
    script.write_text(text)
    arguments = {"-c": ("-c", text), "-m": ("-m", "program"), "script": (str(script),)}[way]
    forked, fresh = (
        run(*arguments, "a", "--b", fails=True, fresh=fresh, cwd=tmp_path, GIVEN="given")
        for fresh in (False, True)
    )
    assert "a child's\n" in fresh
    assert forked == fresh


def test_only_the_last_words_of_nanobind_are_left_out_of_what_a_fork_prints() -> None:
    leaks = 'nanobind: leaked 2 types!\n - leaked type "A"\n - ... skipped remainder\n'
    place = "See https://nanobind.readthedocs.io/en/latest/refleaks.html"
    assert run("-c", f"print({leaks!r} + 'seen')") == leaks + "seen\n"
    ends = f"import os; print('seen', flush=True); os.write(2, {(leaks + place).encode()!r})"
    assert run("-c", ends) == "seen\n"
    assert run("-c", ends, fresh=True) == "seen\n" + leaks + place
