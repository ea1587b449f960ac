"""PyTorch's cache of AOTAutograd: a second process neither traces nor differentiates a capture.

PyTorch's key: Dynamo's graph as code, the arguments' types, autocast, grad mode, saved-tensor
hooks, AOTAutograd's configuration. Ours, in place of its part for Inductor: what executable/known
names, which joint passes, decompositions and lowering read; PyTorch's version and switches that
traces read; of arguments, what PyTorch's key leaves out.

No key tells these apart, and nothing is kept: sizes that are symbols; tensors that Dynamo's graph
holds; arguments that share memory, for which AOTAutograd adds guards; tensor subclasses; ops of the
user's own and functions of other packages; higher-order ops but checkpoints. Not told apart: what a
program does to other packages, such as decompositions and kernels that it registers for PyTorch's
ops.

Private API met here, seen on torch 2.13: AOTAutogradCache, its configuration,
SerializableAOTDispatchCompiler, compiled autograd's state, torch._dynamo.config.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import torch
from torch._dynamo import compiled_autograd
from torch._dynamo import config as dynamo_config
from torch._functorch import config as functorch_config
from torch._functorch._aot_autograd import autograd_cache
from torch._guards import TracingContext
from torch._inductor import config as inductor_config
from torch.fx import GraphModule, Node
from torch.fx.node import map_aggregate

from xla_dynamo.backend.graph.text import is_of_every_process
from xla_dynamo.backend.runtime.cache import is_own
from xla_dynamo.bookkeeping import optional

Lower = Callable[[GraphModule, str, Mapping[str, Any]], Any]

# Private classes are subclassed here: no version is taken on trust.
_SEEN = (("2", "13"),)
_own: ContextVar[str | None] = ContextVar("our part of the key", default=None)
# Makes the part of a key that is Inductor's: imports it, and reads all of PyTorch's sources.
_DETAILS = getattr(autograd_cache, "AOTAutogradCacheDetails", None)
_OF_INDUCTOR = "_init_fx_graph_hash_details"
_SETTINGS = {
    "bundled_autograd_cache": True,  # entries hold what the compiler returned
    "enable_remote_autograd_cache": False,
    "force_non_lazy_backward_lowering": True,  # an entry is complete when forward is compiled
}
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


@contextlib.contextmanager
def used(
    module: GraphModule, arguments: Sequence[Any], key: str | None, lower: Lower
) -> Iterator[tuple[Lower, Callable[[Any], Any]]]:
    """Let AOTAutograd look into its cache, and keep there what it makes, if it may.

    key: of all that decides what becomes of a graph; None if nothing is to be kept. lower: makes of
    a graph, its kind and what is told of it what runs. Yields how to lower, and what makes of a
    compiler one whose results are kept.
    """
    tag = None if key is None else _tag(module, arguments, key)
    if tag is None:
        yield lower, lambda compiler: compiler
        return
    from .aot_entry import Entry, Surroundings, serializable, surroundings

    _take_part()
    lines = [node.stack_trace for node in _nodes(module)]
    around, own = surroundings.set(Surroundings(lower, lines)), _own.set(tag)
    try:
        with functorch_config.patch(_SETTINGS):
            yield Entry, serializable
    finally:
        surroundings.reset(around)
        _own.reset(own)


@functools.cache
def _take_part() -> None:
    """Put our part into the keys of our captures, where those of others have Inductor's."""
    usual = getattr(_DETAILS, _OF_INDUCTOR)

    def details(self: Any, graph: GraphModule, inputs: Sequence[Any], config: Any) -> None:
        own = _own.get()
        if own is None:
            usual(self, graph, inputs, config)
        else:
            self.gm, self.example_inputs, self.own = graph, list(inputs), own

    setattr(_DETAILS, _OF_INDUCTOR, details)


@optional(None)
def _tag(module: GraphModule, arguments: Sequence[Any], key: str) -> str | None:
    """Our part of the key; None where the cache is not used."""
    if not (_is_on() and all(map(_is_known, _nodes(module))) and _are_plain(arguments)):
        return None
    kinds = [(type(a).__name__, a.is_leaf, a._is_view()) for a in arguments]
    places = [(a.storage_offset(), a.untyped_storage().nbytes()) for a in arguments]
    settings = inductor_config.save_config_portable(ignore_private_configs=False)
    own = (key, [switch() for switch in _SWITCHES], kinds, places)
    return repr((*own, torch.compiler.config.cache_key_tag, sorted(settings.items())))


def _is_on() -> bool:
    """Whether there is such a cache, this capture may use it, and its folder can be trusted."""
    context = TracingContext.try_get()
    if not _is_there() or context is None or context.ddp_optimizer_ctx is not None:
        return False
    if dynamo_config.caching_precompile or dynamo_config.compiled_autograd:
        return False
    if compiled_autograd.compiled_autograd_enabled:  # it traces graphs of backward again
        return False
    return autograd_cache.should_use_local_autograd_cache() and _has_private_folder()


@functools.cache
def _is_there() -> bool:
    """Whether this is a PyTorch whose cache is known to keep what is not Inductor's."""
    if tuple(torch.__version__.split(".")[:2]) not in _SEEN:
        return False
    try:
        results = importlib.import_module("torch._functorch._aot_autograd.aot_autograd_result")
    except ImportError:
        return False
    names = hasattr(results, "BundledOutputCodeLoadable") and hasattr(_DETAILS, _OF_INDUCTOR)
    return names and _SETTINGS.keys() <= functorch_config.get_config_copy().keys()


def _has_private_folder() -> bool:
    """Whether nobody else can have put there what is unpickled; a folder is made so."""
    try:
        folder = Path(autograd_cache.AOTAutogradCache._get_tmp_dir())
        for each in (folder.parent, folder):
            each.mkdir(mode=0o700, parents=True, exist_ok=True)
            of = os.lstat(each)
            if not stat.S_ISDIR(of.st_mode) or not is_own(of):
                return False
    except OSError:  # it cannot be made, or is no folder
        return False
    return True


def _nodes(module: GraphModule) -> Iterator[Node]:
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
