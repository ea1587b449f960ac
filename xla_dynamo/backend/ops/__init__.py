"""Custom ops: what the passes put into graphs where ATen has no op for it.

Importing this registers all of them with PyTorch, under `torch.ops.xla_dynamo`. Their bodies run
where an op falls back to eager; the rules of lowering/rules lower them.
"""

from __future__ import annotations

from . import attention as attention
from . import barriers as barriers
from . import capped_attention as capped_attention
from . import collectives as collectives
from . import dropout_attention as dropout_attention
from . import fused as fused
from . import jax_calls as jax_calls
from . import optimizer_updates as optimizer_updates
from . import packed as packed
from . import padded as padded
from . import paged_attention as paged_attention
from . import recurrent as recurrent
from . import sharding as sharding
from . import stores as stores
from . import tpu_calls as tpu_calls
