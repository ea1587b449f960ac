"""python -m xla_dynamo check | run | report | doctor | cache: scripts, runs, this environment."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from . import __version__, doctor, run
from .backend.runtime import cache
from .check import command as check
from .config import config


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["run"]:  # argparse must not see the script's own arguments
        return run.main(given[1:])
    parser = argparse.ArgumentParser(prog="python -m xla_dynamo", description=__doc__)
    parser.add_argument("--version", action="version", version=f"xla_dynamo {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    reader = commands.add_parser("check", help="what of torch_xla's a script uses, and how it does")
    check.add_arguments(reader)
    commands.add_parser("run", help="a script that was written for torch_xla, with its arguments")
    shown = commands.add_parser("report", help="the page of a run (run --report), as text")
    shown.add_argument("page", type=Path, help="the .html file")
    tried = commands.add_parser("doctor", help="whether this installation works, and what is wrong")
    tried.add_argument("--json", action="store_true", help="for a bug report")
    stored = commands.add_parser("cache", help="the folder of compiled executables and its size")
    what = stored.add_mutually_exclusive_group()
    what.add_argument("--clear", action="store_true", help="delete the executables")
    what.add_argument("--verify", action="store_true", help="read all, delete what is damaged")
    options = parser.parse_args(given)
    if options.command == "check":
        return check.main(options.paths, options.json)
    if options.command == "doctor":
        return doctor.main(_describe_cache(), options.json)
    if options.command == "report":
        return _show(options.page)
    if options.clear:
        _clear()
    faults = _verify() if options.verify else 0
    print(_describe_cache())
    return 1 if faults else 0


def _describe_cache() -> str:
    folder = config().cache_dir
    if folder is None:
        return "off (XLA_DYNAMO_CACHE_DIR=0)"
    sizes = [entry.stat().st_size for entry in cache.entries(folder)]
    return f"{folder}: {len(sizes)} executables, {sum(sizes) / 2**20:.1f} MiB"


def _show(path: Path) -> int:
    from .reporting import page, terminal

    try:
        run = page.read(path)
    except (OSError, ValueError) as error:
        print(f"python -m xla_dynamo report: {error}", file=sys.stderr)
        return 1
    print(terminal.text(run, colour=sys.stdout.isatty()))
    return 0


def _clear() -> None:
    folder = config().cache_dir
    if folder is not None:
        for entry in cache.entries(folder):
            entry.unlink(missing_ok=True)
        cache.sweep(folder)


def _verify() -> int:
    """Print what is wrong with entries, delete those that are damaged; how many there were."""
    disk = cache.configured()
    found = [] if disk is None else list(disk.faults())
    for entry, fault in found:
        if fault == "damaged":
            entry.unlink(missing_ok=True)
            print(f"{entry.name} is damaged: deleted; it is compiled again when it is needed.")
        else:
            print(
                f"{entry.name} is another user's, or others may write to it: it is not run. "
                "Set XLA_DYNAMO_CACHE_TRUST=folder if you trust all who write there."
            )
    return len(found)


if __name__ == "__main__":
    raise SystemExit(main())
