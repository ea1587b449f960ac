"""Tests of rules run ahead, so that the calls of several are one program.

A rule's program takes 30 ms to compile and no time to run; one of ten calls takes a third of that a
call. Before the first case of a parametrized test, all of its cases are run to see what they call;
their rules are then computed together, and each case, when its turn comes, finds its results by the
call's arguments, down to the bytes. What was not seen, or fails together, is computed alone; so is
what takes long together: XLA's time grows faster than the programs of some rules.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from xla_dynamo.backend.lowering import registry

Call = tuple[Any, tuple[Any, ...], dict[str, Any]]
UNKNOWN = object()
_MOST = 10  # calls of a program
_LONG = 0.03  # seconds of a call in it that takes no less alone

_seen: list[Call] | None = None  # while tests run ahead
_results: dict[Hashable, Any] = {}


class _Enough(BaseException):
    """Ends a test that needs a result, where it only runs ahead."""


def is_seen(call: Call) -> bool:
    """Note a call, if tests run ahead; else False."""
    if _seen is None:
        return False
    if _is_elsewhere():
        raise _Enough
    _seen.append(pytree.tree_map_only(torch.Tensor, torch.Tensor.clone, call))
    return True


def stop() -> None:
    """End the test, if it only runs ahead."""
    if _seen is not None:
        raise _Enough


def run(
    tests: Iterable[Callable[[], object]], compute: Callable[[Sequence[Call]], list[Any]]
) -> None:
    """Run the tests ahead, and compute what they call."""
    global _seen
    _results.clear()
    _seen = []
    try:
        for test in tests:
            torch.manual_seed(0)
            try:
                test()
            except (Exception, _Enough):
                continue
        calls = _seen
    finally:
        _seen = None
    for start in range(0, len(calls), _MOST):
        group = calls[start : start + _MOST]
        begin = time.process_time()
        try:
            results = compute(group)
        except Exception:
            continue
        _results.update(zip(map(_key, group), results, strict=True))
        if time.process_time() - begin > _LONG * len(group):
            return


def taken(call: Call) -> Any:
    """The result of a call that was computed ahead, or `UNKNOWN`."""
    return UNKNOWN if not _results or _is_elsewhere() else _results.get(_key(call), UNKNOWN)


def _is_elsewhere() -> bool:
    """Whether rules are traced for another target than that of the program of several calls."""
    return (registry.platform(), registry.numerics()) != ("cpu", "eager")


def _key(call: Call) -> Hashable:
    leaves, spec = pytree.tree_flatten(call)
    return spec, tuple(map(_leaf_key, leaves))


def _leaf_key(leaf: Any) -> Hashable:
    if not isinstance(leaf, torch.Tensor):
        return type(leaf), repr(leaf)
    dense = leaf.detach().resolve_conj().resolve_neg().contiguous()
    data = dense.view(-1).view(torch.uint8).numpy().tobytes() if dense.numel() else b""
    return leaf.dtype, tuple(leaf.shape), data
