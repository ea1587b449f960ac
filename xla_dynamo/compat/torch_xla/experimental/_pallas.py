"""Kernels written in Pallas, as torch_xla takes them: payloads for a TPU, and functions."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any

import jax
import torch
from jax.extend.mlir import ir

import xla_dynamo
from xla_dynamo.backend import jax_adapter
from xla_dynamo.backend.lowering import dtypes
from xla_dynamo.bounded import Bounded
from xla_dynamo.compat.recording import metrics

_TARGET = "tpu_custom_call"
_payloads: Bounded[Hashable, str] = Bounded(256)


def trace_pallas(
    kernel: Callable[..., Any],
    *args: Any,
    static_argnums: Any = None,
    static_argnames: Any = None,
    use_cache: bool = False,
    **kwargs: Any,
) -> tuple[str, list[torch.Tensor]]:
    """The kernel, compiled as far as a TPU's compiler takes it, and the tensors among `args`.

    `_XLAC._xla_tpu_custom_call` runs it, on a TPU. It is compiled here without one; products of
    float32 have the precision that jax.config says.

    Raises:
        ValueError: `kernel` calls no kernel in Pallas, or several.
    """
    tensors = [x for x in args if isinstance(x, torch.Tensor)]
    structs = [_struct(x) if isinstance(x, torch.Tensor) else x for x in args]
    names = (
        static_argnames
        if isinstance(static_argnames, (str, type(None)))
        else tuple(static_argnames)
    )
    precision = jax.config.jax_default_matmul_precision  # pyright: ignore
    how = repr(sorted(kwargs.items(), key=lambda item: item[0]))
    key = (kernel, precision, static_argnums, names, tuple(structs), how) if use_cache else None
    if key is not None and key in _payloads:
        metrics.count("trace_pallas_cache_hit", 1)
        return _payloads[key], tensors
    jitted = jax.jit(kernel, static_argnums=static_argnums, static_argnames=names)
    with jax_adapter.apart(wide=False, platform="tpu"):
        lowered = jitted.trace(*structs, **kwargs).lower(lowering_platforms=("tpu",))
        payload = _payload(lowered.compiler_ir("stablehlo"), kernel)
    if key is not None:
        _payloads[key] = payload
    return payload, tensors


def _struct(x: torch.Tensor) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(tuple(x.shape), dtypes.to_numpy(x.dtype))


def _payload(module: Any, kernel: Callable[..., Any]) -> str:
    found = [
        ir.StringAttr(each.attributes["backend_config"]).value
        for each in _operations(module.operation)
        if each.name == "stablehlo.custom_call"
        and ir.StringAttr(each.attributes["call_target_name"]).value == _TARGET
    ]
    if len(found) != 1:
        raise ValueError(
            f"trace_pallas: {getattr(kernel, '__name__', kernel)} calls {len(found)} kernels in "
            "Pallas, and a payload is one; make_kernel_from_pallas and xla_dynamo.jax_function "
            "take any function of JAX"
        )
    return found[0]


def _operations(operation: Any) -> Iterator[Any]:
    for region in operation.regions:
        for block in region:
            for each in block:
                yield each.operation
                yield from _operations(each.operation)


def make_kernel_from_pallas(
    kernel: Callable[..., Any], output_shape_dtype_fn: Callable[..., Sequence[Any]]
) -> Callable[..., Any]:
    """A Pallas kernel, or another function of JAX arrays, as a function of tensors.

    It is a part of the program, with `jax.vjp`'s gradient. What is no tensor is bound to it. Its
    results have to be those that output_shape_dtype_fn names: [(shape, dtype), ...].
    """
    made: Bounded[Hashable, Callable[..., Any]] = Bounded(64)

    def call(
        *args: Any, static_argnums: Any = None, static_argnames: Any = None, **kwargs: Any
    ) -> Any:
        tensors = [x for x in args if isinstance(x, torch.Tensor)]
        others = tuple(_TENSOR if isinstance(x, torch.Tensor) else x for x in args)
        key = others, tuple(sorted(kwargs.items(), key=lambda item: item[0]))
        function = made.get(key)
        if function is None:
            function = made[key] = xla_dynamo.jax_function(_Bound(kernel, others, kwargs))
        results = function(*tensors)
        listed = results if isinstance(results, tuple) else (results,)
        _check(kernel, listed, output_shape_dtype_fn(*args))
        return results

    return call


_TENSOR = object()


class _Bound:
    """A function of the arrays among the arguments of `kernel`."""

    def __init__(
        self, kernel: Callable[..., Any], others: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        self.kernel, self.others, self.kwargs = kernel, others, kwargs

    def __call__(self, *arrays: Any) -> Any:
        given = iter(arrays)
        filled = [next(given) if other is _TENSOR else other for other in self.others]
        return self.kernel(*filled, **self.kwargs)


def _check(kernel: Any, results: tuple[torch.Tensor, ...], expected: Sequence[Any]) -> None:
    got = [(tuple(x.shape), x.dtype) for x in results]
    want = [(tuple(shape), dtype) for shape, dtype in expected]
    if got != want:
        raise ValueError(
            f"make_kernel_from_pallas: {getattr(kernel, '__name__', kernel)} gives {got}, and its "
            f"output_shape_dtype_fn says {want}"
        )
