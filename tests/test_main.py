from __future__ import annotations

from pathlib import Path

import pytest

import xla_dynamo
from tests.report import runs
from xla_dynamo import __main__, config
from xla_dynamo.backend.runtime import cache
from xla_dynamo.backend.runtime.cache import DiskCache
from xla_dynamo.reporting import page


@pytest.fixture
def cache_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of two executables, and a file that is none."""
    settings = config.from_environment({"XLA_DYNAMO_CACHE_DIR": str(tmp_path)})
    monkeypatch.setattr(__main__, "config", lambda: settings)
    monkeypatch.setattr(cache, "config", lambda: settings)
    for name in ("0" * 64, "f" * 64):
        (tmp_path / name).write_bytes(b"\0" * 2**20)
    (tmp_path / "notes.txt").write_text("not ours")
    return tmp_path


def test_cache_tells_its_size(cache_dir, capsys):
    assert __main__.main(["cache"]) == 0
    assert capsys.readouterr().out == f"{cache_dir}: 2 executables, 2.0 MiB\n"


def test_clear_deletes_executables_and_nothing_else(cache_dir, capsys):
    assert __main__.main(["cache", "--clear"]) == 0
    assert [entry.name for entry in cache_dir.iterdir()] == ["notes.txt"]
    assert capsys.readouterr().out == f"{cache_dir}: 0 executables, 0.0 MiB\n"


def test_verify_deletes_what_is_damaged(cache_dir, capsys):
    """The executables of the fixture have no digests; one is replaced."""
    whole = "f" * 64
    DiskCache(cache_dir, 10**9).put(whole, b"x")
    assert __main__.main(["cache", "--verify"]) == 1
    told = capsys.readouterr().out
    assert told.count("is damaged: deleted") == 1
    assert told.endswith(f"{cache_dir}: 1 executables, 0.0 MiB\n")
    assert __main__.main(["cache", "--verify"]) == 0
    assert (cache_dir / whole).exists()


def test_verify_says_what_is_not_trusted(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XLA_DYNAMO_CACHE_DIR", str(tmp_path))
    config.config.cache_clear()
    DiskCache(tmp_path, 10**9).put("f" * 64, b"x")
    (tmp_path / ("f" * 64)).chmod(0o666)
    try:
        assert __main__.main(["cache", "--verify"]) == 1
    finally:
        monkeypatch.undo()
        config.config.cache_clear()
    assert "XLA_DYNAMO_CACHE_TRUST=folder" in capsys.readouterr().out
    assert (tmp_path / ("f" * 64)).exists()


def test_cache_folder_that_does_not_exist_is_empty(tmp_path, monkeypatch, capsys):
    settings = config.from_environment({"XLA_DYNAMO_CACHE_DIR": str(tmp_path / "absent")})
    monkeypatch.setattr(__main__, "config", lambda: settings)
    assert __main__.main(["cache", "--clear"]) == 0
    assert "0 executables" in capsys.readouterr().out


def test_cache_that_is_off(monkeypatch, capsys):
    settings = config.from_environment({"XLA_DYNAMO_CACHE_DIR": "0"})
    monkeypatch.setattr(__main__, "config", lambda: settings)
    assert __main__.main(["cache", "--clear"]) == 0
    assert capsys.readouterr().out == "off (XLA_DYNAMO_CACHE_DIR=0)\n"


def test_doctor_is_told_of_the_cache(cache_dir, monkeypatch):
    monkeypatch.setattr(
        __main__.doctor, "main", lambda cache, as_json: int("2 executables" in cache) + 2 * as_json
    )
    assert __main__.main(["doctor"]) == 1
    assert __main__.main(["doctor", "--json"]) == 3


def test_a_page_is_shown_as_text(tmp_path, capsys):
    page.write(runs.run(), tmp_path / "run.html")
    assert __main__.main(["report", str(tmp_path / "run.html")]) == 0
    assert "0/1 forward" in capsys.readouterr().out
    (tmp_path / "other.html").write_text("")
    assert __main__.main(["report", str(tmp_path / "other.html")]) == 1
    assert "is not a page of xla_dynamo.report" in capsys.readouterr().err


def test_version(capsys):
    with pytest.raises(SystemExit, match="0"):
        __main__.main(["--version"])
    assert capsys.readouterr().out == f"xla_dynamo {xla_dynamo.__version__}\n"


def test_a_command_is_required(capsys):
    with pytest.raises(SystemExit) as stopped:
        __main__.main([])
    assert stopped.value.code == 2
    assert "doctor" in capsys.readouterr().err
