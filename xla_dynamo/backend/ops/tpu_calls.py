"""A kernel that is compiled for Mosaic already, as an op; lowering/rules/tpu/tpu_calls.py calls it.

Its results are a text, "float32[8,128];int32[]": an op's arguments know no list of shapes.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from xla_dynamo.errors import NotAvailable

from .registration import op

REASON = "Its payload is a kernel for a TPU's compiler, and nothing else can run it."
REMEDY = (
    "Run it on a TPU (PJRT_DEVICE=TPU); or give the kernel itself to make_kernel_from_pallas or "
    "xla_dynamo.jax_function, with interpret=True in its pallas_call: that runs anywhere."
)


def as_text(shapes: Sequence[Sequence[int]], dtypes: Sequence[torch.dtype]) -> str:
    """The results of these shapes and dtypes."""
    pairs = zip(shapes, dtypes, strict=True)
    return ";".join(
        f"{str(dtype).removeprefix('torch.')}[{','.join(str(int(n)) for n in shape)}]"
        for shape, dtype in pairs
    )


def of_text(results: str) -> list[tuple[tuple[int, ...], torch.dtype]]:
    """The inverse of `as_text`."""
    found = []
    for result in results.split(";"):
        dtype, _, sizes = result.removesuffix("]").partition("[")
        shape = tuple(int(n) for n in sizes.split(",") if n)
        found.append((shape, getattr(torch, dtype)))
    return found


def _fake(operands: Sequence[Tensor], payload: str, results: str) -> list[Tensor]:
    return [operands[0].new_empty(shape, dtype=dtype) for shape, dtype in of_text(results)]


@op(fake=_fake)
def tpu_custom_call(operands: Sequence[Tensor], payload: str, results: str) -> list[Tensor]:
    """The results of the kernel `payload`, as `trace_pallas` of torch_xla gives it."""
    raise NotAvailable(f"xla_dynamo.tpu_custom_call: {REASON} {REMEDY}")
