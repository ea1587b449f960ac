"""Operators with one operand of another dtype: eager's numbers, or a refusal where eager refuses.

    python -m tests.operators.mixed [--ops add,addr] [--door lazy]

PyTorch's operator database has samples of one dtype; here one tensor after the other of a sample is
cast to another. Prints what disagrees with eager, then counts; exits with 1 if anything does that
KNOWN does not list. It takes half an hour of a core, so `make test` runs a few operators only.
"""

from __future__ import annotations

import argparse
import collections
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from .cases import operators
from .doors import DOORS, Door

# Dtypes of a sample -> the dtypes to which one of its tensors is cast.
CASTS = {
    torch.float32: (torch.float64, torch.bfloat16, torch.int64, torch.bool, torch.complex64),
    torch.int64: (torch.float32, torch.bool, torch.uint8),
    torch.bfloat16: (torch.float32, torch.int64),
}
_SAMPLES = 3
_RANDOM = ("rand", "normal", "bernoulli", "empty", "dropout", "multinomial", "uniform", "rrelu")
_RANDOM += ("exponential", "cauchy", "geometric")

COMPUTES = "eager raises, here is a result"
RAISES = "eager has a result, here is an error"
DTYPE = "another dtype"
DIFFERS = "other numbers"

_MIXED = "floats of several dtypes are computed on lazy tensors, as in torch_xla"
# How operators disagree, by the start of their names, and why they may.
KNOWN: dict[str, dict[tuple[str, ...], str]] = {
    DTYPE: {
        ("nn.functional.huber_loss", "nn.functional.soft_margin_loss", "ldexp"): (
            "PyTorch's shape inference promotes, eager's kernel does not"
        ),
        ("native_layer_norm", "native_group_norm", "native_batch_norm", "_native_batch_norm"): (
            "PyTorch's shape inference gives the saved statistics another dtype"
        ),
        ("_batch_norm_with_update",): "likewise",
        ("addr",): "PyTorch's shape inference forgets the bias where beta is 0",
    },
    COMPUTES: {
        ("addmm", "addbmm", "mm", "mv", "matmul", "__rmatmul__", "inner", "tensordot"): _MIXED,
        ("linalg.multi_dot", "index_add", "index_copy", "nn.functional.linear"): _MIXED,
        ("nn.functional.conv", "nn.functional.layer_norm", "nn.functional.group_norm"): _MIXED,
        ("native_layer_norm", "native_group_norm"): _MIXED,
        ("nn.functional.binary_cross_entropy_with_logits", "linspace"): "PyTorch takes it apart",
        ("nn.functional.multi_margin_loss", "nn.functional.multilabel_margin_loss"): "promoted",
    },
}


@dataclass(frozen=True)
class Call:
    """An operator, the leaves of its arguments, and which of them was cast to what."""

    op: str
    leaves: tuple[Any, ...]
    structure: Any
    cast: str

    def run(self, leaves: Any) -> Any:
        sample, args, kwargs = pytree.tree_unflatten(leaves, self.structure)
        return operators()[self.op](sample, *args, **kwargs)


def calls(op: str) -> Iterator[Call]:
    """Calls of an operator with one tensor of another dtype than the rest."""
    info = operators()[op]
    for base, others in CASTS.items():
        if base not in info.supported_dtypes("cpu"):
            continue
        for sample in list(info.sample_inputs("cpu", base))[:_SAMPLES]:
            leaves, structure = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
            leaves = [x.detach() if isinstance(x, torch.Tensor) else x for x in leaves]
            spots = [i for i, x in enumerate(leaves) if isinstance(x, torch.Tensor)]
            if len(spots) < 2:
                continue
            for i in [i for i in spots if leaves[i].dtype is base][:_SAMPLES]:
                for dtype in others:
                    cast = leaves[i].abs() if dtype is torch.uint8 else leaves[i]
                    new = (*leaves[:i], cast.to(dtype), *leaves[i + 1 :])
                    yield Call(op, new, structure, f"{base}, leaf {i} {dtype}")


def compare(call: Call, door: Door) -> tuple[str, str] | None:
    """How a call through a door disagrees with eager, and in words; None if it does not."""
    expected = _attempt(call.run, call.leaves)
    actual = _attempt(door(call.run), call.leaves)
    if isinstance(expected, Exception):
        return None if isinstance(actual, Exception) else (COMPUTES, _first_line(expected))
    if isinstance(actual, Exception):
        return RAISES, _first_line(actual)
    results = pytree.tree_leaves(expected)
    dtypes = [x.dtype for x in (*call.leaves, *results) if isinstance(x, torch.Tensor)]
    bound = 4e-2 if torch.bfloat16 in dtypes else 1e-4
    try:
        torch.testing.assert_close(actual, expected, rtol=bound, atol=bound, equal_nan=True)
    except AssertionError as error:
        text = str(error).replace("\n", " ")
        return (DTYPE if "'dtype' do not match" in text else DIFFERS), text
    return None


def _attempt(run: Any, leaves: tuple[Any, ...]) -> Any:
    given = [x.clone() if isinstance(x, torch.Tensor) else x for x in leaves]
    try:
        with torch.no_grad():
            return run(given)
    except Exception as error:
        return error.with_traceback(None)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0]


def is_known(op: str, kind: str) -> bool:
    return any(op.startswith(names) for names in KNOWN.get(kind, ()))


def main() -> int:
    options = _parse()
    warnings.simplefilter("ignore")
    counts: collections.Counter[str] = collections.Counter()
    names = options.ops or [n for n in sorted(operators()) if not any(r in n for r in _RANDOM)]
    for op in names:
        for call in calls(op):
            difference = compare(call, DOORS[options.door])
            known = difference is None or is_known(op, difference[0])
            counts["agrees" if difference is None else "known" if known else "disagrees"] += 1
            if difference is not None and not known:
                print(f"{op} ({call.cast}): {': '.join(difference)}", flush=True)
    print(dict(counts))
    return 1 if counts["disagrees"] else 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.operators.mixed", description=__doc__)
    parser.add_argument("--ops", type=lambda text: text.split(","))
    parser.add_argument("--door", choices=sorted(DOORS), default="lazy")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
