"""torch_xla.utils.checkpoint: recompute a function's activations in the backward pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch.utils.checkpoint


def checkpoint(
    function: Callable[..., Any], *args: Any, use_reentrant: bool = True, **kwargs: Any
) -> Any:
    """`function(*args)`, whose intermediate results are computed again for its backward.

    Args:
        use_reentrant, kwargs: of torch.utils.checkpoint.checkpoint.
    """
    return torch.utils.checkpoint.checkpoint(function, *args, use_reentrant=use_reentrant, **kwargs)
