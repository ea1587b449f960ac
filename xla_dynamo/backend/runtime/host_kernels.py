"""PyTorch's own CPU kernels, called by programs of XLA:CPU on their buffers, without a copy in.

A call is a custom call whose one attribute says which op with which arguments (`kernel_calls`):
programs that hold some can be kept on disk.
"""

from __future__ import annotations

import functools

import jax
import torch

from xla_dynamo.backend.graph import kernel_calls
from xla_dynamo.backend.graph.torch_private import kernels_only
from xla_dynamo.backend.ops import stores

from . import xla_ffi


def _work(call: bytes, arguments: list[torch.Tensor], results: list[torch.Tensor]) -> None:
    """What a custom call does. XLA may do it in the thread of the user's program."""
    try:
        with kernels_only():
            made = kernel_calls.decoded(call)(arguments)
            made = made if isinstance(made, (tuple, list)) else [made]
            for result, tensor in zip(results, (t for t in made if t is not None), strict=True):
                result.copy_(tensor)
    except Exception as error:
        shapes = ", ".join(str(tuple(tensor.shape)) for tensor in arguments)
        raise RuntimeError(
            f"PyTorch's kernel of {kernel_calls.op_name(call)} failed on tensors of the shapes "
            f"{shapes}: {error} {kernel_calls.REMEDY}"
        ) from error


def _store(call: bytes, arguments: list[torch.Tensor], results: list[torch.Tensor]) -> None:
    """See `ops.stores.store`."""
    first, count = kernel_calls.decoded_store(call)
    *given, addresses = arguments
    mark, *copies = results
    with kernels_only():
        for copy, other in zip(copies, given[count:], strict=True):
            stores.copy(other, copy.data_ptr())
        stores.write(given[:count], addresses.tolist()[first : first + count])
        mark.zero_()


@functools.cache
def register() -> None:
    """Tell XLA's CPU runtime of the kernels, once a process, before it loads a program."""
    for name, handler in _HANDLERS.items():
        jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(handler), platform="cpu")


_HANDLERS = {
    kernel_calls.TARGET: xla_ffi.handler(_work),
    kernel_calls.STORE: xla_ffi.handler(_store),
}
