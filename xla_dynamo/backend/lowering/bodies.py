"""One FX node -> the StableHLO body of its JAX rule, lowered once per distinct signature.

A body is a StableHLO module whose `main` takes the node's tensor operands and returns its defined
outputs, in the shapes and dtypes that PyTorch's shape inference gave the node. Two nodes with the
same op, operand shapes and static arguments share one body, across graphs and threads. Random ops,
each of which folds an index of its own into the graph's key, share it but for this number: a model
has a dropout after each layer, and JAX traces one of each shape.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import jax
import torch
from jax.extend.mlir import passmanager
from torch.fx import Node
from torch.fx.node import map_arg

from xla_dynamo.backend import jax_adapter, metrics
from xla_dynamo.bounded import Bounded
from xla_dynamo.config import config

from . import absent, contexts, dtypes, operands
from .nodes import arguments, is_drawn, op_of, output_values, tensor_operands
from .registry import Refusal, Target, Unsupported, lowering_for, rule_of
from .rule_functions import as_function, operand_types

# The one location in a body's text: the linker puts the user's line of each call in its place.
UNKNOWN_LOCATION = "#loc = loc(unknown)"

# jax_default_matmul_precision: what XLA makes of a float32 product on hardware with cheaper units.
_JAX_PRECISION = {"highest": "highest", "high": "high", "medium": "default"}


@dataclass(frozen=True, eq=False)
class Body:
    """A lowered rule: the text of a module with `main`, its locations all `UNKNOWN_LOCATION`."""

    name: str
    text: str


# The start of a body whose first operand is an index, and what stands for the number's attribute.
_INDEXED = re.compile(r"(func\.func public @main\()%arg0: tensor<ui32> loc\(unknown\)(?:, )?(.*\n)")
_INDEX = "dense<INDEX>"

_bodies: Bounded[Hashable, Body | Refusal] = Bounded(4096)
_NO_KERNEL = "MLIR translation rule for primitive"  # JAX's message, of eig on a TPU for one
_INTERPRETED = "Only interpret mode is supported on CPU"  # JAX's, of a kernel in Pallas
_OTHER_DTYPE = "Convert the tensor to another dtype before this op."
_lock = threading.Lock()


def body_of(node: Node, target: Target) -> Body | Refusal:
    """The body of the rule for `node`, or why there is none."""
    if not has_rule(node):
        return Refusal("xla_dynamo does not know how to express this op in XLA.", kind="no rule")
    key = _signature(node, target)
    found = _bodies.get(key)
    if found is None:
        with _lock:
            found = _bodies.get(key)
            if found is None:
                found = _lower(node, target)
                _bodies[key] = found
    if is_drawn(node) and isinstance(found, Body):
        return replace(found, text=found.text.replace(_INDEX, f"dense<{node.args[1]}>", 1))
    return found


def has_rule(node: Node) -> bool:
    """Whether a JAX rule lowers this op, if not all its arguments."""
    rule = rule_of(op_of(node))
    return rule is not None and rule.random == (is_drawn(node))


def _signature(node: Node, target: Target) -> Hashable:
    leaves, spec = arguments(node)
    static = tuple(leaf_signature(leaf) for leaf in leaves)
    outputs = tuple(_value_signature(value) for value in output_values(node))
    return target, node.target, torch.get_default_dtype(), spec, static, outputs


def leaf_signature(leaf: Any) -> Hashable:
    """A key for one argument: shape and dtype of a tensor's node, or the value with its type."""
    if isinstance(leaf, Node):
        return _value_signature(leaf.meta["val"])
    # 1 == 1.0 == True, yet they promote differently; and -0.0 == 0.0.
    return type(leaf), repr(leaf)


def _value_signature(value: Any) -> Hashable:
    return (tuple(value.shape), value.dtype) if isinstance(value, torch.Tensor) else repr(value)


def _lower(node: Node, target: Target) -> Body | Refusal:
    """The body, or why there is none: an exception would keep frames, and their tensors, alive."""
    values = output_values(node)
    outputs = tuple(i for i, value in enumerate(values) if isinstance(value, torch.Tensor))
    tensors = [*(operand.meta["val"] for operand in tensor_operands(node)), *values]
    for value in tensors:
        if not isinstance(value, torch.Tensor):
            continue
        if not dtypes.is_supported(value.dtype):
            return Refusal(f"XLA has no dtype {value.dtype}.", _OTHER_DTYPE)
        if (lacks := absent.dtype(value.dtype, target.platform)) is not None:
            return Refusal(lacks, _OTHER_DTYPE)
    try:
        precision = _JAX_PRECISION[target.matmul_precision]
        products = jax.default_matmul_precision(precision)
        narrow = _is_narrow(node, tensors, target)
        apart = jax_adapter.apart(wide=not narrow, platform=target.platform)
        with lowering_for(target), apart, products:
            function = as_function(node, [values[i] for i in outputs], outputs, target)
            traced = jax.jit(function, keep_unused=True).trace(*operand_types(node))
            with _into_context():
                lowered = traced.lower(lowering_platforms=(target.platform,))
            module: Any = lowered.compiler_ir("stablehlo")
    except Unsupported as error:
        return Refusal(error.reason, error.remedy)
    except Exception as error:
        if isinstance(error, NotImplementedError) and _NO_KERNEL in str(error):
            return Refusal(f"XLA does not have this computation on the platform {target.platform}.")
        if isinstance(error, ValueError) and _INTERPRETED in str(error):
            return Refusal(
                "It calls a kernel in Pallas, which a CPU runs in Pallas's interpreter only.",
                "Pass interpret=True to pallas_call, or run it on a TPU.",
            )
        return _refusal_of_failure(node, error)
    with module.context:
        passmanager.PassManager.parse("builtin.module(strip-debuginfo)").run(module.operation)
    text = module.operation.get_asm(enable_debug_info=True)
    _contexts.count(len(text))
    if (lacks := absent.computation(text, target.platform)) is not None:
        return Refusal(lacks, _OTHER_DTYPE)
    if is_drawn(node):
        text = _with_constant_index(text)
    return Body(_symbol(node), text)


def _with_constant_index(text: str) -> str:
    """A body whose index is no operand any more, but a constant to be filled in."""
    constant = f"    %arg0 = stablehlo.constant {_INDEX} : tensor<ui32> loc(#loc)\n"
    made, count = _INDEXED.subn(rf"\1\2{constant}", text)
    assert count == 1, "MLIR prints @main in another way"
    return made


_contexts = contexts.OfThread(jax_adapter.new_context)


@contextmanager
def _into_context() -> Iterator[None]:
    """Lower to a context that has served before, where jaxlib allows it."""
    if not jax_adapter.SHARES_CONTEXTS:
        yield
        return
    with _contexts.dropped_on_error(), jax_adapter.lowering_into(_contexts.get()):
        yield


def _is_narrow(node: Node, tensors: Sequence[Any], target: Target) -> bool:
    rule = rule_of(op_of(node))
    if rule is None or rule.narrow_on != target.platform:
        return False
    dtypes_of = {value.dtype for value in tensors if isinstance(value, torch.Tensor)}
    return all(dtype.itemsize < 8 or dtype == torch.complex64 for dtype in dtypes_of)


def _refusal_of_failure(node: Node, error: Exception) -> Refusal:
    """Why a rule failed: eager refuses these arguments too, or the rule has a bug.

    Raises:
        Exception: it is a bug, and config().strict asks for it.
    """
    args, kwargs = map_arg((node.args, node.kwargs), lambda operand: operand.meta["val"])
    if is_drawn(node):
        args = args[3:]  # the op, its index and its key come first
    theirs = operands.error_of_zeros(op_of(node), args, kwargs)
    if theirs is not None:
        return operands.refused_by_eager(theirs)
    if config().strict:
        raise error
    metrics.compile_log.warning("The rule that lowers %s failed.", op_of(node), exc_info=error)
    failure = " ".join(f"{type(error).__name__}: {error}".split())
    return Refusal(f"The rule that lowers it failed with {failure.rstrip('.')}.", kind="bug")


def _symbol(node: Node) -> str:
    return str(op_of(node)).replace("::", ".").replace(".default", "")
