"""`python -m xla_dynamo run script.py args...` runs a script with torch_xla's names.

The script has the sys.argv, sys.path, __main__, exit code and tracebacks that plain Python gives
it. The names resolve in it and, through XLA_DYNAMO_COMPAT, in the processes that it starts.
"""

from __future__ import annotations

import builtins
import importlib.util
import io
import os
import pkgutil
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, ModuleType, TracebackType
from typing import Any

USAGE = "usage: python -m xla_dynamo run (SCRIPT | -m MODULE) [ARGUMENTS...]"


def main(arguments: Sequence[str]) -> int:
    """Run a script or, after "-m", a module; the exit code of what ran to its end.

    Raises:
        SystemExit, KeyboardInterrupt: as the script raises them.
    """
    if not arguments or arguments[0] in ("-h", "--help") or arguments == ["-m"]:
        print(USAGE, file=sys.stdout if "-h" in arguments[:1] else sys.stderr)
        return 0 if arguments and arguments[0] in ("-h", "--help") else 2
    os.environ["XLA_DYNAMO_COMPAT"] = "1"
    import xla_dynamo.compat  # noqa: F401

    try:
        if arguments[0] == "-m":
            code, module = _module(arguments[1])
            sys.argv = [module.__file__ or "-m", *arguments[2:]]
        else:
            code, module = _script(arguments[0])
            sys.argv = list(arguments)
    except _CannotRun as error:
        print(f"{sys.executable}: {error}", file=sys.stderr)
        return error.exit_code
    except SyntaxError as error:
        sys.excepthook(type(error), error.with_traceback(None), None)
        return 1
    return _execute(code, module)


class _CannotRun(Exception):
    """There is nothing to run, for Python's reason and with its exit code."""

    def __init__(self, reason: str, exit_code: int) -> None:
        super().__init__(reason)
        self.exit_code = exit_code


def _script(path: str) -> tuple[CodeType, ModuleType]:
    """The code of a file; of a folder or an archive, that of its __main__.py."""
    if pkgutil.get_importer(path) is not None:
        sys.path[0] = path
        spec = PathFinder.find_spec("__main__", [path])
        return _of_spec(spec, f"can't find '__main__' module in {path!r}")
    sys.path[0] = os.path.dirname(os.path.realpath(path))
    full = os.path.abspath(path)
    try:
        with io.open_code(full) as file:
            code = compile(file.read(), full, "exec")
    except OSError as error:
        raise _CannotRun(
            f"can't open file {full!r}: [Errno {error.errno}] {error.strerror}", 2
        ) from None
    return code, _main_module(__file__=full, __loader__=SourceFileLoader("__main__", full))


def _module(name: str) -> tuple[CodeType, ModuleType]:
    """The code of a module, or of a package's __main__."""
    try:
        spec = importlib.util.find_spec(name)
    except ImportError as error:
        raise _CannotRun(
            f"Error while finding module specification for {name!r} "
            f"({type(error).__name__}: {error})",
            1,
        ) from None
    if spec is not None and spec.submodule_search_locations is not None:
        return _module(f"{name}.__main__")
    return _of_spec(spec, f"No module named {name}")


def _of_spec(spec: ModuleSpec | None, missing: str) -> tuple[CodeType, ModuleType]:
    loader: Any = spec.loader if spec else None
    code = loader.get_code(spec.name) if spec and hasattr(loader, "get_code") else None
    if spec is None or code is None:
        raise _CannotRun(missing, 1)
    return code, _main_module(
        __file__=spec.origin,
        __loader__=loader,
        __spec__=spec,
        __package__=spec.parent,
        __cached__=spec.cached,
    )


def _main_module(**attributes: Any) -> ModuleType:
    module = ModuleType("__main__")
    plain: dict[str, Any] = {"__builtins__": builtins, "__annotations__": {}, "__cached__": None}
    module.__dict__.update(plain | attributes)
    return module


def _execute(code: CodeType, module: ModuleType) -> int:
    """Run code as __main__; an exception is reported as Python does, without our frames."""
    sys.modules["__main__"] = module
    try:
        exec(code, module.__dict__)
    except SystemExit:
        raise
    except BaseException as error:
        trace = _after(error.__traceback__)
        sys.last_type, sys.last_value, sys.last_traceback = type(error), error, trace
        sys.excepthook(type(error), error.with_traceback(trace), trace)
        if isinstance(error, KeyboardInterrupt):
            sys.excepthook = lambda *_: None  # it is reported; Python exits by SIGINT
            raise
        return 1
    return 0


def _after(trace: TracebackType | None) -> TracebackType | None:
    """The part of a traceback below this file."""
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    return trace
