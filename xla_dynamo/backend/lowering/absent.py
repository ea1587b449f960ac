"""What a platform's compiler lacks, and would refuse without the name of the op that needs it.

Dtypes are seen in an op's tensors. Computations, which several ops may need, are seen in what their
rules are lowered to.
"""

from __future__ import annotations

import re

import torch

# libtpu ends the process (0.0.42.1: "Unsupported CVT").
DTYPES: dict[str, frozenset[torch.dtype]] = {"tpu": frozenset({torch.complex128})}

# By platform: in the text of a body, and why it is refused.
COMPUTATIONS: dict[str, tuple[tuple[re.Pattern[str], str], ...]] = {
    "tpu": (
        (
            re.compile(r"custom_call @LuDecomposition\(.*: \(tensor<(?:\d+x)*f64>\)"),
            "XLA's compiler for TPUs has LU decompositions of float32 and complex64 alone.",
        ),
    )
}


def dtype(of: torch.dtype, platform: str) -> str | None:
    """Why a tensor of this dtype cannot be on a platform, if so."""
    if of not in DTYPES.get(platform, ()):
        return None
    return f"XLA's compiler for {platform.upper()}s has no {of}."


def computation(body: str, platform: str) -> str | None:
    """Why a platform cannot compile a body, if that is known."""
    found = (reason for text, reason in COMPUTATIONS.get(platform, ()) if text.search(body))
    return next(found, None)
