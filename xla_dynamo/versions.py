"""The versions of other packages that xla_dynamo is tested with, and what is installed.

`make matrix` tests the combinations and writes docs/versions.md; pyproject.toml has the oldest of
each. How jax's versions differ is in `backend.jax_adapter`.
"""

from __future__ import annotations

import functools
import importlib.metadata
import platform
import re
from dataclasses import dataclass

from .errors import InstallationError

# Package -> the oldest and the newest version that was tested.
TESTED = {
    "python": ("3.11", "3.14"),
    "torch": ("2.9.0", "2.15.0"),
    "torch-mlir": ("20261001", "20261001"),
    "jax": ("0.7.2", "0.12.0.1"),
    "jaxlib": ("0.7.2", "0.12.0.1"),
}


@dataclass(frozen=True)
class Finding:
    """Something about an installed package: what, and whether nothing can work with it."""

    package: str
    text: str
    is_error: bool


def installed(package: str) -> str | None:
    """The version of a package, or None; of "python" that which runs."""
    if package == "python":
        return platform.python_version()
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def findings() -> list[Finding]:
    """What is missing or outside the tested range; empty where all is as tested."""
    return [*filter(None, map(_judge, TESTED)), *_pairs()]


def _judge(package: str) -> Finding | None:
    (oldest, newest), version = TESTED[package], installed(package)
    if version is None:
        return Finding(package, f"not installed: pip install '{package}>={oldest}'", True)
    if _key(version) < _key(oldest):
        remedy = f"pip install '{package}>={oldest}'" if package != "python" else "take a newer one"
        return Finding(package, f"too old, {oldest} is the oldest that works: {remedy}", True)
    if _key(version)[: len(_key(newest))] > _key(newest):
        return Finding(package, f"newer than {newest}, the newest that was tested", False)
    return None


def _pairs() -> list[Finding]:
    """Versions that do not go together."""
    jax, jaxlib = installed("jax"), installed("jaxlib")
    found = []
    if jax and jaxlib and _key(jax)[:3] != _key(jaxlib)[:3]:
        remedy = f"jax is {jax}: pip install 'jaxlib=={jax}'"
        found.append(Finding("jaxlib", remedy, False))
    torch = installed("torch")
    if torch and _key(torch) < (2, 10) and _key(installed("python") or "") >= (3, 14):
        remedy = "without torch.compile on Python 3.14 and newer: pip install 'torch>=2.10'"
        found.append(Finding("torch", remedy, True))
    wanted = other_libtpu_wanted()
    if wanted is not None:
        remedy = f"jax {jax} goes with {wanted}: pip install 'jax[tpu]=={jax}'"
        found.append(Finding("libtpu", remedy, False))
    return found


def other_libtpu_wanted() -> str | None:
    """The libtpu that the installed jax goes with, such as "0.0.42", where there is another one."""
    libtpu, wanted = installed("libtpu"), _libtpu_of_jax()
    fits = not libtpu or not wanted or _key(libtpu)[: len(_key(wanted))] == _key(wanted)
    return None if fits else wanted


def _libtpu_of_jax() -> str | None:
    """The libtpu that jax's extra "tpu" names: "0.0.42"."""
    required = importlib.metadata.requires("jax") if installed("jax") else None
    named = (re.match(r"libtpu[=~]=([\d.]+\d)", line) for line in required or ())
    return next((match[1] for match in named if match), None)


def _key(version: str) -> tuple[int, ...]:
    """ "2.13.0+cpu" -> (2, 13, 0)."""
    return tuple(int(number) for number in re.findall(r"\d+", version.partition("+")[0]))


@functools.cache
def require() -> None:
    """Check once that nothing is missing or too old.

    Raises:
        InstallationError: with what to install.
    """
    wrong = [found for found in map(_judge, TESTED) if found is not None and found.is_error]
    if wrong:
        raise InstallationError("; ".join(f"{found.package} is {found.text}" for found in wrong))


def explain(failure: str) -> InstallationError:
    """The error for a failure that no program of the user can have caused."""
    unknown = [f"{f.package} {installed(f.package)} is {f.text}" for f in findings()]
    advice = "; ".join([*unknown, "`python -m xla_dynamo doctor` checks the installation"])
    return InstallationError(f"{failure}. {advice}.")
