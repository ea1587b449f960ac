"""Run one rule outside the compiler, torch tensors in and out, and compare it with eager.

`check` takes the arguments of one call; `check_samples` those of PyTorch's OpInfo database. Tests
may run ahead (`ahead.py`), for the calls of several to be one program.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

import xla_dynamo.backend.lowering.rules  # noqa: F401
from tests import codegen
from xla_dynamo.backend.jax_adapter import apart
from xla_dynamo.backend.lowering import dtypes
from xla_dynamo.backend.lowering.registry import RULES, Unsupported, rule_of

from . import ahead
from .ahead import Call


def to_jax(tensor: torch.Tensor) -> jax.Array:
    tensor = tensor.detach().resolve_conj().resolve_neg().contiguous()
    if tensor.dtype == torch.bfloat16:
        array = tensor.view(torch.int16).numpy().view(dtypes.to_numpy(torch.bfloat16))
    else:
        array = tensor.numpy()
    return jax.device_put(array)  # jnp.asarray compiles a copy


def to_torch(array: jax.Array) -> torch.Tensor:
    host = np.array(array)
    if host.dtype == dtypes.to_numpy(torch.bfloat16):
        return torch.from_numpy(host.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(host)


def run(op: Any, *args: Any, **kwargs: Any) -> Any:
    """What the rule of `op` computes for these torch arguments, with the rule's own dtypes.

    Raises:
        Unsupported: the rule refuses them.
    """
    call: Call = (op, args, kwargs)
    if ahead.is_seen(call):
        ahead.stop()
    result = ahead.taken(call)
    if result is ahead.UNKNOWN:
        (result,) = run_all([call])
    if isinstance(result, Unsupported):
        raise result
    return result


def run_all(calls: Sequence[Call]) -> list[Any]:
    """What the rules compute for several calls, in one program; or how they refuse one."""
    flat = [pytree.tree_flatten(call[1:]) for call in calls]
    refused: dict[int, Unsupported] = {}

    def traced(tensors: list[list[jax.Array]]) -> dict[int, Any]:
        results = {}
        for number, ((op, *_), (leaves, spec), given) in enumerate(
            zip(calls, flat, tensors, strict=True)
        ):
            arrays = iter(given)
            filled = [next(arrays) if _is_tensor(leaf) else leaf for leaf in leaves]
            args, kwargs = pytree.tree_unflatten(filled, spec)
            try:
                rule = rule_of(op)
                assert rule is not None, f"{op} has no rule"
                result = rule.function(*args, **kwargs)
            except Unsupported as error:
                refused[number] = error
                continue
            results[number] = tuple(result) if isinstance(result, (tuple, list)) else result
        return results

    with apart():
        tensors = [[to_jax(leaf) for leaf in leaves if _is_tensor(leaf)] for leaves, _ in flat]
        # Sums of products are rounded once only with optimizations: that is seen in 16 bits.
        narrow = any(array.dtype.itemsize == 2 for arrays in tensors for array in arrays)
        jitted = jax.jit(traced, compiler_options=codegen.optimized() if narrow else None)
        results = jax.tree.map(to_torch, jitted(tensors))
    return [refused.get(number, results.get(number)) for number in range(len(calls))]


def _is_tensor(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor)


def _listed(result: Any) -> list[Any]:
    return list(result) if isinstance(result, (tuple, list)) else [result]


def check(op: Any, *args: Any, **kwargs: Any) -> None:
    """Assert that the rule of `op` gives what eager gives: shapes, and values at default bounds."""
    check_within({}, op, *args, **kwargs)


def check_within(bounds: Mapping[torch.dtype, float], op: Any, *args: Any, **kwargs: Any) -> None:
    """Like `check`, with a bound of the absolute and relative error for results of some dtypes."""
    if not ahead.is_seen((op, args, kwargs)):
        _compare(op, run(op, *args, **kwargs), op(*args, **kwargs), bounds)


def _compare(op: Any, actual: Any, expected: Any, bounds: Mapping[torch.dtype, float]) -> None:
    for want, got in zip(_listed(expected), _listed(actual), strict=True):
        if want is None:
            continue
        assert tuple(got.shape) == tuple(want.shape), (op, tuple(got.shape), tuple(want.shape))
        bound = bounds.get(want.dtype)
        torch.testing.assert_close(
            got.to(want.dtype), want.contiguous(), rtol=bound, atol=bound, equal_nan=True
        )


def check_rounding(op: Any, *args: Any, **kwargs: Any) -> None:
    """Assert that the rule of `op` is about as near to the float64 result as eager is.

    For 16-bit dtypes, where two right answers may round differently.
    """
    if ahead.is_seen((op, args, kwargs)):
        return
    truths = _listed(op(*_to_double(args), **_to_double(kwargs)))
    wants, gots = _listed(op(*args, **kwargs)), _listed(run(op, *args, **kwargs))
    for truth, want, got in zip(truths, wants, gots, strict=True):
        if got is None:
            continue
        assert got.shape == want.shape
        got = got.to(want.dtype)
        if not want.dtype.is_floating_point or not want.numel():
            torch.testing.assert_close(got, want)
            continue
        rounding = 4 * max(torch.finfo(want.dtype).eps, 1e-6) * truth.abs().max()
        bound = 2 * (want.double() - truth).abs().max() + rounding
        error = (got.double() - truth).abs().max()
        assert error <= bound, (op, want.dtype, error, bound)


def _to_double(args: Any) -> Any:
    return pytree.tree_map_only(
        torch.Tensor, lambda t: t.double() if t.dtype.is_floating_point else t, args
    )


class _Recorder(TorchDispatchMode):
    """Keeps the calls of ops that have rules, with copies of their arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Call] = []

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if op in RULES and not RULES[op].random:
            clone = lambda leaf: leaf.clone() if isinstance(leaf, torch.Tensor) else leaf  # noqa: E731
            self.calls.append((op, *pytree.tree_map(clone, (tuple(args), kwargs or {}))))
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

    Every aten op that eager runs for a sample, and that has a rule, is checked with the arguments
    with which it ran: an OpInfo reaches the rule of its functional op and of those that it is
    composed of. All are one program. Of its samples every `every`-th is taken, at most `limit`.
    `only` narrows the check to some ops. A call that a rule refuses does not count.
    """
    from tests.operators.cases import operators  # the database takes seconds to import

    info = operators()[f"{name}.{variant}" if variant else name]
    calls: list[Call] = []
    for sample in list(info.sample_inputs("cpu", dtype))[::every][:limit]:
        with torch.no_grad(), _Recorder() as recorder:
            info(sample.input, *sample.args, **sample.kwargs)
        calls += [call for call in recorder.calls if not only or call[0] in only]
    checked = 0
    for (op, args, kwargs), result in zip(calls, run_all(calls), strict=True):
        if not isinstance(result, Unsupported):
            _compare(op, result, op(*args, **kwargs), {})
            checked += 1
    return checked
