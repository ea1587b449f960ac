"""A kernel that is compiled for Mosaic -> the custom call that JAX itself would write."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
from jax import Array

from xla_dynamo.backend.lowering import dtypes
from xla_dynamo.backend.ops import tpu_calls as ops

from .. import tpu_calls

_API_VERSION = 1  # the one whose configuration is a text


@tpu_calls.tpu_custom_call.on("tpu")
def tpu_custom_call(operands: Sequence[Array], payload: str, results: str) -> list[Array]:
    shapes = [
        jax.ShapeDtypeStruct(shape, dtypes.to_numpy(dtype)) for shape, dtype in ops.of_text(results)
    ]
    call: Any = jax.ffi.ffi_call(
        "tpu_custom_call",
        shapes if len(shapes) > 1 else shapes[0],  # Mosaic takes no tuple of one
        custom_call_api_version=_API_VERSION,
        legacy_backend_config=payload,
    )
    made = call(*operands)
    return list(made) if len(shapes) > 1 else [made]
