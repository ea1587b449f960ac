"""CPU tensors among the arguments of an op on the device: uploaded, or an error.

Eager PyTorch mixes devices for numbers (0-d tensors), and for indices and lengths. torch_xla 2.9
also computes arithmetic with CPU tensors, which copies them in each step, and which its own
documentation says it refuses: XLA_DYNAMO_CPU_TENSORS=torch_xla asks for that.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import _pytree as pytree

from xla_dynamo.compat.recording.trace import Trace
from xla_dynamo.compat.values import describe
from xla_dynamo.compat.values.op_table import Op
from xla_dynamo.compat.values.source_location import user_location
from xla_dynamo.compat.values.values import Leaf, leaf
from xla_dynamo.config import config

from . import sync

aten = torch.ops.aten

# Ops that take CPU tensors (indices, lengths) beside tensors of any device.
_FROM_HOST = frozenset(
    {
        aten._ctc_loss.Tensor,
        aten._ctc_loss_backward.Tensor,
        aten.index.Tensor,
        aten.index_put.default,
        aten._index_put_impl.default,
        aten._unsafe_index.Tensor,
        aten._unsafe_index_put.default,
    }
)
# Those that do in torch_xla 2.9 too, as it was seen running: + - * / **, fmod, & of bools, add_ and
# mul_, and batch_norm with statistics of the CPU. Others raise there.
_OF_TORCH_XLA = frozenset(
    {
        aten.add.Tensor,
        aten.sub.Tensor,
        aten.mul.Tensor,
        aten.div.Tensor,
        aten.pow.Tensor_Tensor,
        aten.fmod.Tensor,
        aten.bitwise_and.Tensor,
        aten._native_batch_norm_legit_functional.default,
    }
)


def admit(trace: Trace, op: Op, args: Any) -> Any:
    """`args` with CPU tensors uploaded, where eager PyTorch, or the setting, takes them.

    Raises:
        RuntimeError: the op mixes devices.
    """

    def on_device(argument: Any) -> Any:
        if type(argument) is Leaf or not isinstance(argument, torch.Tensor):
            return argument
        if argument.dim() == 0 or op.func in _FROM_HOST or _is_asked_for(op):
            return leaf(sync.upload(trace, argument))
        raise RuntimeError(_refusal(trace, op, argument))

    return pytree.tree_map(on_device, args)


def _is_asked_for(op: Op) -> bool:
    return op.func in _OF_TORCH_XLA and config().cpu_tensors == "torch_xla"


def _refusal(trace: Trace, op: Op, argument: torch.Tensor) -> str:
    remedy = f"Move it with .to('{trace.device}')"
    if op.func in _OF_TORCH_XLA:
        remedy += "; XLA_DYNAMO_CPU_TENSORS=torch_xla uploads it each time, as torch_xla 2.9 does"
    return (
        f"Input tensor is not an XLA tensor: {argument.type()} "
        f"(Expected all tensors to be on the same device: {op} got tensors on {trace.device} and "
        f"on {argument.device}, at {describe.where(user_location())}. {remedy})"
    )


def take_statistics(new: Leaf, old: torch.Tensor) -> None:
    """Running statistics that an op of the device computed, also for a tensor of the CPU."""
    if isinstance(old, Leaf):
        old.value = new.value
    else:
        old.copy_(sync.download(new.value))
