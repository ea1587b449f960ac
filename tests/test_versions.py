"""Which versions are fine, which are an error with a remedy, and which are a note."""

import re
import tomllib
from pathlib import Path

import pytest

from xla_dynamo import InstallationError, versions

FINE = {
    "python": "3.12.1",
    "torch": "2.13.0+cpu",
    "torch-mlir": "20261001",
    "jax": "0.10.2",
    "jaxlib": "0.10.2",
}


def told(monkeypatch: pytest.MonkeyPatch, **changed: str | None) -> dict[str, tuple[str, bool]]:
    named = {name.replace("_", "-"): version for name, version in changed.items()}
    monkeypatch.setattr(versions, "installed", (FINE | named).get)
    monkeypatch.setattr(versions, "_libtpu_of_jax", lambda: "0.0.42")
    return {found.package: (found.text, found.is_error) for found in versions.findings()}


def test_what_was_tested_needs_no_word(monkeypatch: pytest.MonkeyPatch) -> None:
    assert told(monkeypatch) == told(monkeypatch, libtpu="0.0.42.1") == {}
    newest = {package: newest for package, (_, newest) in versions.TESTED.items()}
    assert told(monkeypatch, **{k.replace("-", "_"): v for k, v in newest.items()}) == {}


@pytest.mark.parametrize(
    ("package", "version", "text"),
    [
        ("torch", "2.8.1", "too old, 2.9.0 is the oldest that works: pip install 'torch>=2.9.0'"),
        ("torch_mlir", None, "not installed: pip install 'torch-mlir>=20261001'"),
        ("python", "3.10.4", "too old, 3.11 is the oldest that works: take a newer one"),
    ],
)
def test_what_cannot_work_is_an_error(
    monkeypatch: pytest.MonkeyPatch, package: str, version: str | None, text: str
) -> None:
    name = package.replace("_", "-")
    assert told(monkeypatch, **{package: version}) == {name: (text, True)}
    versions.require.cache_clear()
    try:
        with pytest.raises(InstallationError, match=re.escape(f"{name} is {text}")):
            versions.require()
    finally:
        versions.require.cache_clear()


@pytest.mark.parametrize("version", ["2.99.0", "3.0"])
def test_what_is_newer_is_a_note(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    ((text, is_error),) = told(monkeypatch, torch=version).values()
    assert text.startswith("newer than ")
    assert not is_error
    versions.require.__wrapped__()


def test_pairs_that_do_not_go_together_name_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    assert told(monkeypatch, jax="0.11.0") == {
        "jaxlib": ("jax is 0.11.0: pip install 'jaxlib==0.11.0'", False)
    }
    assert told(monkeypatch, python="3.14.1", torch="2.10.0") == {}
    assert told(monkeypatch, python="3.14.1", torch="2.9.1") == {
        "torch": (
            "without torch.compile on Python 3.14 and newer: pip install 'torch>=2.10'",
            True,
        )
    }
    assert told(monkeypatch, libtpu="0.0.21") == {
        "libtpu": ("jax 0.10.2 goes with 0.0.42: pip install 'jax[tpu]==0.10.2'", False)
    }


def test_the_libtpu_of_jax_is_read_from_its_metadata() -> None:
    assert re.fullmatch(r"[\d.]+\d", versions._libtpu_of_jax() or "")


def test_a_failure_of_the_installation_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    told(monkeypatch, jax="9.0", jaxlib="9.0")
    text = str(versions.explain("It does not compile"))
    assert text.startswith("It does not compile. jax 9.0 is newer than ")
    assert text.endswith("`python -m xla_dynamo doctor` checks the installation.")


def test_the_oldest_versions_are_those_of_pyproject() -> None:
    text = (Path(__file__).parents[1] / "pyproject.toml").read_text()
    project = tomllib.loads(text)["project"]
    bounds = dict(line.split(">=") for line in project["dependencies"] if ">=" in line)
    bounds["python"] = project["requires-python"].removeprefix(">=")
    assert bounds == {package: oldest for package, (oldest, _) in versions.TESTED.items()}
