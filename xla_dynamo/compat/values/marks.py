"""Which tensors are marked with a sharding: by the tensor that the user holds."""

from __future__ import annotations

from typing import Any

from torch.utils.weak import WeakTensorKeyDictionary

# tensor -> torch_xla's OpSharding, whose `sharding` is ours.
marks: Any = WeakTensorKeyDictionary()
