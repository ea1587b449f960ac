"""Helpers of fully sharded models."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop

from ..spmd.xla_sharding import apply_xla_patch_to_nn_linear as apply_xla_patch_to_nn_linear


def checkpoint_module(module: torch.nn.Module) -> torch.nn.Module:
    """The module itself, recomputing its forward in backward instead of keeping activations."""
    forward = module.forward

    @functools.wraps(forward)
    def run(*args: Any, **kwargs: Any) -> Any:
        now = _parameters(module)  # of another dtype, where FSDP computes in one
        with set_checkpoint_early_stop(False):  # the whole forward, step closures included
            return checkpoint(
                forward,
                *args,
                use_reentrant=False,
                context_fn=lambda: (contextlib.nullcontext(), _with_parameters(module, now)),
                **kwargs,
            )

    module.forward = run
    return module


def _parameters(module: torch.nn.Module) -> list[tuple[dict[str, Any], str, Any]]:
    """Every parameter of a module: where it is kept, its name there, and itself."""
    return [
        (child._parameters, name, value)
        for child in module.modules()
        for name, value in child._parameters.items()
    ]


@contextlib.contextmanager
def _with_parameters(
    module: torch.nn.Module, parameters: list[tuple[dict[str, Any], str, Any]]
) -> Iterator[None]:
    """A block in which a module has these parameters."""
    before = _parameters(module)
    for kept, name, value in parameters:
        kept[name] = value
    try:
        yield
    finally:
        for kept, name, value in before:
            kept[name] = value
