"""What the doctor finds in a good installation, and what it says of bad ones."""

from __future__ import annotations

import json

import pytest

from xla_dynamo import doctor, versions


def rows(capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    lines = capsys.readouterr().out.splitlines()
    return {line[:14].strip(): line[15:] for line in lines if line[14:15] == " "} | {
        "verdict": lines[-1]
    }


def test_a_good_installation_works_both_ways(capsys: pytest.CaptureFixture[str]) -> None:
    assert doctor.main("off") == 0
    told = rows(capsys)
    assert told.keys() > {"python", "torch", "torch-mlir", "jax", "jaxlib", "plug-ins"}
    assert told["device"].startswith("0: cpu/")
    assert told["torch.compile"] == "a training step is compiled and runs"
    assert told["xla tensors"] == "a training step is recorded, compiled and runs"
    assert (told["cache"], told["verdict"]) == ("off", "This installation works.")


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("XLA_DYNAMO_PLATFORM", "abacus", "abacus"),  # a device that is not there
        # A process that dies is told by its last words.
        ("XLA_FLAGS", "--no_such_flag=1", "Unknown flag in XLA_FLAGS: --no_such_flag=1"),
    ],
)
def test_what_fails_is_the_verdict(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    value: str,
    told: str,
) -> None:
    monkeypatch.setenv(name, value)
    assert doctor.main("off") == 1
    assert told in rows(capsys)["verdict"]


def test_what_is_too_old_is_the_verdict_and_what_is_new_a_note(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [
        versions.Finding("jax", "newer than 0.1, the newest that was tested", is_error=False),
        versions.Finding("torch", "too old: pip install 'torch>=9'", is_error=True),
    ]
    monkeypatch.setattr(versions, "findings", lambda: found)
    monkeypatch.setattr(doctor, "_try", lambda function: (True, "works"))
    assert doctor.main("off") == 1
    told = rows(capsys)
    assert told["jax"].endswith("   newer than 0.1, the newest that was tested")
    assert told["verdict"] == (
        "This installation does not work. torch is too old: pip install 'torch>=9'"
    )


def test_json_for_a_bug_report(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XLA_DYNAMO_NUMERICS", "eager")
    monkeypatch.setattr(doctor, "_try", lambda function: (function != "try_tensors", "told"))
    assert doctor.main("off", as_json=True) == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["works"], told["problems"]) == (False, ["xla tensors: told"])
    assert {"python", "torch", "jaxlib", "device", "system"} <= told["report"].keys()
    assert "XLA_DYNAMO_NUMERICS=eager" in told["report"]["variables"]


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (["Traceback ...", "  at", "a.b.TooBad: no", "more: of it"], "a.b.TooBad: no"),
        (["Segmentation fault"], "Segmentation fault"),
        ([], ""),
    ],
)
def test_reasons(lines: list[str], reason: str) -> None:
    assert doctor._reason(lines) == reason
