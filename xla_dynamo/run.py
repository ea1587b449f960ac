"""`python -m xla_dynamo run script.py args...` runs a script with torch_xla's names.

With `--report out.html` before the script, a page about the run is written (xla_dynamo.reporting).

The script has the sys.argv, sys.path, __main__, exit code and tracebacks that plain Python gives
it. The names resolve in it and, through XLA_DYNAMO_COMPAT, in the processes that it starts.
"""

from __future__ import annotations

import builtins
import io
import os
import pkgutil
import runpy
import sys
from collections.abc import Sequence
from importlib.machinery import SourceFileLoader
from types import ModuleType, TracebackType
from typing import Any

from .errors import InstallationError

USAGE = (
    "usage: python -m xla_dynamo run [--report FILE.html | --report -] (SCRIPT | -m MODULE) "
    "[ARGUMENTS...]"
)
# What `python -m` itself calls, in the namespace of sys.modules["__main__"].
_run_as_main: Any = runpy._run_module_as_main  # type: ignore[attr-defined]


def main(arguments: Sequence[str]) -> int:
    """Run a script or, after "-m", a module; the exit code of what ran to its end.

    Raises:
        SystemExit, KeyboardInterrupt: as the script raises them.
    """
    arguments, report = _report_of(arguments)
    if not arguments or arguments[0] in ("-h", "--help") or arguments == ["-m"]:
        print(USAGE, file=sys.stdout if "-h" in arguments[:1] else sys.stderr)
        return 0 if arguments and arguments[0] in ("-h", "--help") else 2
    os.environ["XLA_DYNAMO_COMPAT"] = "1"
    import xla_dynamo.compat  # noqa: F401

    if report is not None and not _begin(report):
        return 2
    sys.modules["__main__"] = module = ModuleType("__main__")
    module.__dict__.update(__builtins__=builtins, __annotations__={}, __cached__=None)
    sys.argv = list(arguments)
    try:
        if arguments[0] == "-m":
            del sys.argv[1]
            _run_as_main(arguments[1])
        elif pkgutil.get_importer(arguments[0]) is not None:  # a folder or an archive
            sys.path[0] = os.path.abspath(arguments[0])
            _run_as_main("__main__", alter_argv=False)
        else:
            sys.path[0] = os.path.dirname(os.path.realpath(arguments[0]))
            _run_file(os.path.abspath(arguments[0]), module)
    except SystemExit:
        raise
    except BaseException as error:
        trace = _below_this_file(error.__traceback__)
        sys.last_type, sys.last_value, sys.last_traceback = type(error), error, trace
        sys.excepthook(type(error), error.with_traceback(trace), trace)
        if isinstance(error, KeyboardInterrupt):
            sys.excepthook = lambda *_: None  # it is reported; Python exits by SIGINT
            raise
        return 1
    return 0


def _report_of(arguments: Sequence[str]) -> tuple[Sequence[str], str | None]:
    """The arguments without `--report FILE`, and the file."""
    option, _, file = arguments[0].partition("=") if arguments else ("", "", "")
    if option != "--report":
        return arguments, None
    if file:
        return arguments[1:], file
    return arguments[2:], arguments[1] if len(arguments) > 1 else None


def _begin(report: str) -> bool:
    """Begin the report of the run; whether it can be written."""
    from .reporting import session

    try:
        session.begin_run(report)
    except (OSError, InstallationError) as error:
        print(f"{sys.executable}: --report {report}: {error}", file=sys.stderr)
        return False
    return True


def _run_file(path: str, module: ModuleType) -> None:
    try:
        with io.open_code(path) as file:
            source = file.read()
    except OSError as error:
        reason = f"[Errno {error.errno}] {error.strerror}"
        print(f"{sys.executable}: can't open file {path!r}: {reason}", file=sys.stderr)
        raise SystemExit(2) from None
    module.__dict__.update(__file__=path, __loader__=SourceFileLoader("__main__", path))
    exec(compile(source, path, "exec"), module.__dict__)


def _below_this_file(trace: TracebackType | None) -> TracebackType | None:
    """A traceback without the frames of this file."""
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    return trace
