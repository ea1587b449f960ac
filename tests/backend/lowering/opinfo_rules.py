"""Checks rules against eager on the samples of PyTorch's own OpInfo database.

Every aten op that eager runs for a sample, and that has a rule, is checked with the arguments with
which it ran: an OpInfo reaches the rule of its functional op and of those it is composed of.
"""

from __future__ import annotations

from typing import Any

import torch
from rule_harness import check
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

import xla_dynamo.backend.lowering.rules  # noqa: F401
from xla_dynamo.backend.lowering.registry import RULES, Unsupported

OPINFOS = {(info.name, info.variant_test_name): info for info in op_db}


class _Recorder(TorchDispatchMode):
    """Keeps the calls of ops that have rules, with copies of their arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, Any, Any]] = []

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if op in RULES and not RULES[op].random:
            clone = lambda leaf: leaf.clone() if isinstance(leaf, torch.Tensor) else leaf  # noqa: E731
            self.calls.append((op, *pytree.tree_map(clone, (args, kwargs or {}))))
        return op(*args, **(kwargs or {}))


def check_samples(
    name: str,
    dtype: torch.dtype,
    *,
    variant: str = "",
    only: tuple[Any, ...] = (),
    every: int = 1,
    limit: int = 12,
) -> int:
    """Check rules on samples of an OpInfo; returns how many calls were checked.

    Of its samples every `every`-th is taken, at most `limit`. `only` narrows the check to some
    ops. A call that a rule refuses does not count.
    """
    checked = 0
    for sample in list(OPINFOS[name, variant].sample_inputs("cpu", dtype))[::every][:limit]:
        with torch.no_grad(), _Recorder() as recorder:
            OPINFOS[name, variant](sample.input, *sample.args, **sample.kwargs)
        for op, args, kwargs in recorder.calls:
            if not only or op in only:
                try:
                    check(op, *args, **kwargs)
                except Unsupported:
                    continue
                checked += 1
    return checked
