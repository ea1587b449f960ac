"""What tells captures apart in PyTorch's cache of AOTAutograd, beside PyTorch's own key.

PyTorch's: Dynamo's graph as code, the arguments' types, autocast, grad mode, saved-tensor hooks,
AOTAutograd's configuration. Ours: what executable/known names, which joint passes, decompositions
and lowering read; PyTorch's version and switches that traces read; of arguments, what PyTorch's key
leaves out.

No key tells these apart, and nothing is kept: sizes that are symbols; tensors that Dynamo's graph
holds; arguments that share memory, for which AOTAutograd adds guards; tensor subclasses; ops of the
user's own and functions of other packages; higher-order ops but checkpoints. Not told apart: what a
program does to other packages, such as decompositions and kernels that it registers for PyTorch's
ops.

Private API met here, seen on torch 2.13: Inductor's configuration, torch._ops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch._inductor import config as inductor_config
from torch.fx import GraphModule, Node
from torch.fx.node import map_aggregate

from xla_dynamo.backend.graph.text import is_of_every_process
from xla_dynamo.bookkeeping import optional

# What traces read, and PyTorch's key leaves out.
_SWITCHES: tuple[Callable[[], Any], ...] = (
    torch.backends.cuda.flash_sdp_enabled,
    torch.backends.cuda.mem_efficient_sdp_enabled,
    torch.backends.cuda.math_sdp_enabled,
    torch.backends.cuda.cudnn_sdp_enabled,
    lambda: (torch.backends.cudnn.enabled, torch.backends.mkldnn.enabled),
    torch.get_float32_matmul_precision,
    torch.get_default_device,
    torch.get_default_dtype,
    lambda: (torch.__version__, torch.version.git_version),
    torch.is_deterministic_algorithms_warn_only_enabled,
    torch.is_inference_mode_enabled,
)
# Roots of modules whose functions have the meaning that PyTorch's version gives them.
_ROOTS = frozenset({"torch", "_operator", "math", "builtins"})
_CHECKPOINT = "tag_activation_checkpoint"
# Arguments whose text in the graph's code says all; and what decides for the partitioner.
_PLAIN = (
    *(int, float, complex, str, type(None), type(...), Node),
    *(torch.dtype, torch.device, torch.layout, torch.memory_format),
)
_MARKS = ("custom", "recompute", "is_wrapped")


@optional(None)
def of(module: GraphModule, arguments: Sequence[Any], key: str) -> str | None:
    """Our part of a capture's key; None where no key tells it apart from others.

    key: of all else that decides what becomes of its graph.
    """
    if not (all(map(_is_known, nodes(module))) and _are_plain(arguments)):
        return None
    kinds = [(type(a).__name__, a.is_leaf, a._is_view()) for a in arguments]
    places = [(a.storage_offset(), a.untyped_storage().nbytes()) for a in arguments]
    settings = inductor_config.save_config_portable(ignore_private_configs=False)
    own = (key, [switch() for switch in _SWITCHES], kinds, places)
    return repr((*own, torch.compiler.config.cache_key_tag, sorted(settings.items())))


def nodes(module: GraphModule) -> Iterator[Node]:
    """Those of the graph and of the bodies in it."""
    for each in module.modules():
        if isinstance(each, GraphModule):
            yield from each.graph.nodes


def _is_known(node: Node) -> bool:
    """Whether PyTorch's key says all of a node of Dynamo's graph."""
    target = node.target
    if node.op == "get_attr":
        held = getattr(node.graph.owning_module, str(target), None)
        return isinstance(held, GraphModule)
    if any(map(node.meta.get, _MARKS)) or not _all_plain((node.args, node.kwargs)):
        return False
    if node.op != "call_function":
        return node.op != "call_module"
    if isinstance(target, torch._ops.HigherOrderOperator):
        return target.name() == _CHECKPOINT
    if isinstance(target, torch._ops.OpOverloadPacket):
        target = getattr(target, target.overloads()[0])
    if isinstance(target, torch._ops.OpOverload):
        return is_of_every_process(target)
    root = (getattr(target, "__module__", None) or "torch").partition(".")[0]
    return root in _ROOTS


def _all_plain(arguments: Any) -> bool:
    found: list[bool] = []
    map_aggregate(arguments, lambda each: found.append(isinstance(each, _PLAIN)))
    return all(found)


def _are_plain(arguments: Sequence[Any]) -> bool:
    """Whether arguments are ordinary tensors, none of which has memory of another one."""
    plain = (torch.Tensor, torch.nn.Parameter)
    if not all(type(a) in plain and a.layout == torch.strided for a in arguments):
        return False
    return len({a.untyped_storage()._cdata for a in arguments}) == len(arguments)
