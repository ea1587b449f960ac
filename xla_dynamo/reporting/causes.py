"""Why a program was compiled -> one of a few causes, which the page colours and filters by.

The reasons are sentences of backend's and compat's reports of recompiles (docs/recompilation.md).
"""

from __future__ import annotations

import re

# cause: what it is called.
CAUSES = {
    "first": "first call",
    "sizes": "sizes or dtypes",
    "ops": "other ops or arguments",
    "barrier": "barrier moved",
    "live": "other tensors alive",
    "options": "options, gradients",
    "evicted": "made room before",
    "other": "other",
}
# The first that is found in a reason decides.
_WORDS = (
    ("first", r"^first (call|compile)"),
    ("evicted", r"made room|had been evicted"),
    ("barrier", r"^the barrier came"),
    ("live", r"^the set of live tensors|same ops as in a trace before"),
    ("options", r"options of the compiler|requires a gradient|split over the devices"),
    ("sizes", r"^input \d+ |dimension|\bbucket\b|changed from torch\."),
    ("ops", r"argument .* was | became |operands changed|\bwas .*, is |an input now"),
    ("sizes", r"changed from \d+ to \d+"),
    ("options", r"changed from|guards"),
)


def cause_of(reason: str) -> str:
    """The cause that a reason of a `CompileRecord` tells of."""
    return next((cause for cause, words in _WORDS if re.search(words, reason)), "other")
