"""Dotted names -> whether they are there, by looking into the namespace that scripts get.

What is there is what `compat` serves; what is not available says so itself (compat's `Absent`, and
modules that raise NotAvailable). Only what is there and differs, or has no effect, is in `table`.
"""

from __future__ import annotations

import ast
import contextlib
import difflib
import functools
import importlib
import importlib.util
import re
import warnings
from types import ModuleType
from typing import Any

from xla_dynamo.errors import NotAvailable

from .findings import WORKS, State, Verdict
from .table import DIFFERENCES, Difference

_ROOTS = ("torch_xla", "torch_xla_py", "_XLAC", "torch._six")
_OPS = "torch.ops.xla."


def is_of_torch_xla(name: str) -> bool:
    """Whether a dotted name is one that torch_xla has, or had."""
    return any(f"{name}.".startswith(f"{root}.") for root in _ROOTS) or name.startswith(_OPS)


def exists(name: str) -> bool:
    """Whether a name is served, as it is or to say that it is not available."""
    return not isinstance(_look_up(name), AttributeError)


def judge(name: str, call: ast.Call | None = None) -> Verdict:
    """How a name of torch_xla does here, called with these arguments."""
    found = _look_up(name)
    if isinstance(found, NotAvailable):
        return _missing(*str(found).split(": ", 1))
    if isinstance(found, AttributeError):
        return _missing(_reason(found), _like(name))
    if hasattr(found, "why") and hasattr(found, "remedy"):
        return _missing(found.why, found.remedy)
    for row in _rows(name.rpartition(".")[2]):
        if _look_up(row.name) is found and row.when(call):
            return Verdict(row.state, row.why, row.remedy)
    return WORKS


def constant(name: str) -> str:
    """The text that a name of torch_xla stands for, such as a variable's of core.xla_env_vars."""
    value = _look_up(name) if is_of_torch_xla(name) else None
    return value if isinstance(value, str) else ""


def _missing(why: str, remedy: str = "") -> Verdict:
    # What is only named needs no repetition: the finding has its name.
    return Verdict(State.MISSING, f"{why}." if " " in why else "It is not here.", remedy)


def _reason(error: AttributeError) -> str:
    """Python's words for a name that a module lacks, or the module's own."""
    found = re.fullmatch(r"module '(\S+)' has no attribute '(\S+)'", str(error))
    return f"{found[1]} has no {found[2]}" if found else str(error)


@functools.cache
def _rows_by_name() -> dict[str, list[Difference]]:
    rows: dict[str, list[Difference]] = {}
    for row in DIFFERENCES:
        rows.setdefault(row.name.rpartition(".")[2], []).append(row)
    return rows


def _rows(last: str) -> list[Difference]:
    return _rows_by_name().get(last, [])


@functools.lru_cache(4096)
def _look_up(name: str) -> Any:
    """What a name is here; or the error that says that there is none."""
    if name.startswith(_OPS):
        return _op(name.removeprefix(_OPS).partition(".")[0])
    root = next(root for root in _ROOTS if f"{name}.".startswith(f"{root}."))
    found: Any = _module(root)
    for part in name[len(root) + 1 :].split(".") if name != root else []:
        inside = _module(f"{found.__name__}.{part}") if isinstance(found, ModuleType) else None
        if inside is None and not isinstance(found, ModuleType):
            return found  # an attribute of a class, or of what it makes
        try:
            found = inside or getattr(found, part)
        except (AttributeError, NotAvailable) as error:
            return error
    return found


def _module(name: str) -> ModuleType | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # such as that a real torch_xla is installed
        importlib.import_module("xla_dynamo.compat")
        with contextlib.suppress(ModuleNotFoundError):
            if importlib.util.find_spec(name) is not None:
                return importlib.import_module(name)
    return None


def _op(name: str) -> Any:
    operators = importlib.import_module("xla_dynamo.compat.namespace.operators")
    names = {schema.partition("(")[0] for schema in operators.OPS}
    return operators if name in names else AttributeError(f"torch.ops.xla has no op {name!r}")


def _like(name: str) -> str:
    """The remedy for a name that is not there."""
    module, _, last = name.rpartition(".")
    around = dir(_look_up(module)) if module and is_of_torch_xla(module) else []
    close = difflib.get_close_matches(last, around, 1, cutoff=0.8)
    if close:
        return f"is {close[0]} meant?"
    return "look for it in torch_xla.core.xla_model and torch_xla.runtime, or report it"
