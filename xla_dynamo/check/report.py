"""A source -> what is to say of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from . import loops, names, sources, surroundings
from .findings import Finding, State
from .scan import Scan, scan
from .sources import Source

_MENTIONS = re.compile(r"torch_xla|_XLAC|torch\._six|ops\.xla")
# The modules' short names in torch_xla's documentation, which findings are called by.
_SHORT = {
    "torch_xla.core.xla_model.": "xm.",
    "torch_xla.distributed.xla_multiprocessing.": "xmp.",
    "torch_xla.distributed.parallel_loader.": "pl.",
    "torch_xla.distributed.spmd.": "xs.",
    "torch_xla.runtime.": "xr.",
}


@dataclass(frozen=True)
class Report:
    """findings: of what does not simply work, by place; works: name -> its lines. A source that
    cannot be read has neither, and the reason in `error`."""

    source: Source
    findings: tuple[Finding, ...] = ()
    works: dict[str, list[int]] = field(default_factory=dict)
    error: str = ""

    @property
    def is_of_torch_xla(self) -> bool:
        """Whether there is anything to say."""
        return bool(self.findings or self.works or self.error)

    def is_complete(self) -> bool:
        """Whether nothing is missing."""
        states = (finding.verdict.state for finding in self.findings)
        return not self.error and State.MISSING not in states


def of(path: Path) -> Report:
    """Read a file and judge it."""
    try:
        source = sources.read(path)
        if not _MENTIONS.search(source.text):
            return Report(source)
        found = scan(source.text)
    except SyntaxError as error:
        line = sources.read(path).place(error.lineno or 1)
        return Report(Source(path, ""), error=f"it is not Python: {error.msg} (line {line})")
    except (OSError, ValueError) as error:
        return Report(Source(path, ""), error=f"it cannot be read: {error}")
    uses = [use for use in found.uses if names.is_of_torch_xla(use.name)]
    uses = [use for use in uses if not use.is_guess or names.exists(use.name)]
    if not uses:
        return Report(source)
    works: dict[str, list[int]] = {}
    findings = [*_around(found)]
    for use in uses:
        verdict = names.judge(use.name, use.call)
        if verdict.state is State.WORKS:
            works.setdefault(use.name, []).append(use.line)
        else:
            findings.append(Finding(use.line, use.column, short(use.name), verdict))
    return Report(source, tuple(_joined(findings)), works)


def _joined(findings: list[Finding]) -> Iterator[Finding]:
    """By place; what is said of a name is said once, where it comes first."""
    groups: dict[object, list[Finding]] = {}
    for finding in sorted(findings, key=lambda finding: (finding.line, finding.column)):
        groups.setdefault((finding.name, finding.verdict), []).append(finding)
    for first, *others in groups.values():
        lines = sorted({other.line for other in others} - {first.line})
        yield replace(first, also=tuple(lines))


def _around(found: Scan) -> Iterator[Finding]:
    yield from surroundings.variables(found)
    yield from surroundings.other_devices(found)
    yield from loops.waits(found)
    yield from loops.without_barrier(found)


def short(name: str) -> str:
    """A name as torch_xla's documentation abbreviates it: "xm.xla_device"."""
    for module, letters in _SHORT.items():
        if name.startswith(module):
            return letters + name.removeprefix(module)
    return name


def count(reports: list[Report]) -> dict[State, int]:
    """How many names work, and how many findings there are of each other state."""
    counts = dict.fromkeys(State, 0)
    counts[State.WORKS] = len({name for report in reports for name in report.works})
    for report in reports:
        for finding in report.findings:
            counts[finding.verdict.state] += 1
    return counts
