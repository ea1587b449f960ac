"""Forks processes that run Python programs: each finds torch, jax and torch_mlir imported.

Importing takes seconds, a fork milliseconds. `tests.programs` starts this file as a script, one for
each of pytest's processes, and writes requests to its stdin: a line of JSON each. The answers are
the process's id, at once, and its exit code as subprocess counts it.

A fork takes over what importing leaves behind, and nothing may be left that a process of its own
would not have: no thread, no jax backend, nothing of `xla_dynamo.compat`.
"""

from __future__ import annotations

import builtins
import faulthandler
import gc
import importlib
import json
import os
import runpy
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

# Those that take long of what `import xla_dynamo.compat` loads.
_MODULES = (
    "numpy",
    "torch",
    "torch._dynamo.backends.common",
    "torch._functorch.aot_autograd",
    "torch._inductor.decomposition",
    "jax",
    "jax.extend",
    "torch_mlir.ir",
    "torch_mlir.fx",
)
# What `python -m` itself calls, in the namespace of sys.modules["__main__"].
_run_as_main: Any = runpy._run_module_as_main  # type: ignore[attr-defined]


def serve() -> None:
    """Answer requests until stdin ends; in each fork, run the program that was asked for."""
    del sys.path[0]  # this file's folder
    given = dict(os.environ)
    for name in _MODULES:
        importlib.import_module(name)
    ours = [name for name in sys.modules if name.startswith("xla_dynamo")]
    threads = Path("/proc/self/task")
    assert not ours, ours
    assert not threads.exists() or len(list(threads.iterdir())) == 1, "importing left threads"
    added = {name: value for name, value in os.environ.items() if name not in given}
    gc.collect()
    gc.freeze()  # a collection in a fork would copy every page
    while line := sys.stdin.readline():
        child = os.fork()
        if child == 0:
            _run(json.loads(line), added)
            return
        print(child, flush=True)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _run(request: dict[str, Any], added: dict[str, str]) -> None:
    """Become the process that was asked for.

    Raises:
        SystemExit: the program's, or the one that an error in it ends with.
    """
    os.setsid()
    output = os.open(request["output"], os.O_WRONLY | os.O_APPEND)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    faulthandler.enable()  # a signal that kills the process says where it was
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(added | request["environment"])

    import numpy as np

    np.random.seed()  # Python's own generator is seeded by the fork
    try:
        importlib.import_module("_xla_dynamo_autoload").autoload()  # the end of `import torch`
        _execute(request["arguments"])
    except Exception as error:
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
            trace = trace.tb_next
        sys.excepthook(type(error), error.with_traceback(trace), trace)
        raise SystemExit(1) from None


def _execute(arguments: list[str]) -> None:
    """What `python *arguments` does."""
    module = sys.modules["__main__"] = ModuleType("__main__")
    module.__dict__.update(__builtins__=builtins, __annotations__={})
    if arguments[0] == "-m":
        sys.argv = ["-m", *arguments[2:]]
        sys.path.insert(0, os.getcwd())
        _run_as_main(arguments[1])
    elif arguments[0] == "-c":
        sys.argv = ["-c", *arguments[2:]]
        sys.path.insert(0, "")
        exec(compile(arguments[1], "<string>", "exec", dont_inherit=True), module.__dict__)
    else:
        sys.argv = arguments
        path = Path(arguments[0]).absolute()
        sys.path.insert(0, str(path.resolve().parent))
        module.__dict__.update(__file__=str(path), __cached__=None)
        exec(compile(path.read_bytes(), path, "exec", dont_inherit=True), module.__dict__)


if __name__ == "__main__":
    serve()
