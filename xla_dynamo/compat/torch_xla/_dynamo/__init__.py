"""torch_xla._dynamo: backends of torch.compile."""

from __future__ import annotations
