"""PyTorch's cache of AOTAutograd: a second process neither traces nor differentiates a capture.

A key of PyTorch's has a part that is Inductor's, in whose place ours stands: see aot_key. Entries
are pickled, so the folder has to be this user's alone. What the user saves, by `aot_compile` and
`save_compiled_function`, goes the same way: it is an entry that needs no capture.

Private API met here, seen on torch 2.13: AOTAutogradCache, the details of its key, its
configuration, compiled autograd's state, torch._dynamo.config.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import stat
import threading
import uuid
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
from torch.fx import GraphModule

from xla_dynamo.backend.runtime.cache import is_own
from xla_dynamo.bookkeeping import optional
from xla_dynamo.errors import CompileError

from . import aot_key

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

_NOT_SAVED = (
    "This function cannot be saved. Not kept for another process are sizes that vary (pass "
    "dynamic=False), tensors that the graph holds, arguments that share memory, tensor subclasses, "
    "ops of your own, control flow, and captures under DDP or compiled autograd; nor anything on a "
    "PyTorch other than 2.13, or with TORCHINDUCTOR_AUTOGRAD_CACHE=0. Else compile it in each "
    "process, by torch.compile without aot_compile."
)


@contextlib.contextmanager
def used(
    module: GraphModule, arguments: Sequence[Any], key: str | None, lower: Lower
) -> Iterator[tuple[Lower, Callable[[Any], Any]]]:
    """Let AOTAutograd look into its cache, and keep there what it makes, if it may.

    key: of all that decides what becomes of a graph; None if nothing is to be kept. lower: makes of
    a graph, its kind and what is told of it what runs. Yields how to lower, and what makes of a
    compiler one whose results are kept.

    Raises:
        CompileError: the user saves what cannot be kept.
    """
    is_saved = getattr(functorch_config, "bypass_autograd_cache_key", False)
    if is_saved:  # nothing is looked up: what others made does not bring what lowers it
        key = uuid.uuid4().hex
    on = key is not None and _is_on() and (is_saved or _is_trusted())
    tag = aot_key.of(module, arguments, key) if key is not None and on else None
    if tag is None and is_saved:
        raise CompileError(_NOT_SAVED)
    if tag is None:
        yield lower, lambda compiler: compiler
        return
    from .aot_entry import Entry, Surroundings, serializable, surroundings

    lines = [] if is_saved else [node.stack_trace for node in aot_key.nodes(module)]
    around, own = surroundings.set(Surroundings(lower, lines, is_saved)), _own.set(tag)
    try:
        with _own_details, functorch_config.patch(_SETTINGS):
            yield Entry, serializable
    finally:
        surroundings.reset(around)
        _own.reset(own)


class _OwnDetails:
    """Within, our part is in the keys of our captures; those of others have Inductor's, as ever."""

    def __init__(self) -> None:
        self._lock, self._within = threading.Lock(), 0
        self._usual: Any = None

    def __enter__(self) -> None:
        with self._lock:
            if not self._within:
                self._usual = getattr(_DETAILS, _OF_INDUCTOR)
                setattr(_DETAILS, _OF_INDUCTOR, self._details())
            self._within += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._within -= 1
            if not self._within:
                setattr(_DETAILS, _OF_INDUCTOR, self._usual)

    def _details(self) -> Callable[..., None]:
        usual = self._usual

        def details(of: Any, graph: GraphModule, inputs: Sequence[Any], config: Any) -> None:
            own = _own.get()
            if own is None:
                usual(of, graph, inputs, config)
            else:
                of.gm, of.example_inputs, of.own = graph, list(inputs), own

        return details


_own_details = _OwnDetails()


@optional(False)
def _is_on() -> bool:
    """Whether there is such a cache, and it is for all of this capture."""
    context = TracingContext.try_get()
    if not _is_there() or context is None or context.ddp_optimizer_ctx is not None:
        return False
    if dynamo_config.compiled_autograd or compiled_autograd.compiled_autograd_enabled:
        return False  # it traces graphs of backward again
    return autograd_cache.should_use_local_autograd_cache()


@optional(False)
def _is_trusted() -> bool:
    """Whether what is found there is this user's, and as exact as our keys."""
    return not dynamo_config.caching_precompile and _has_private_folder()  # that leaves guards out


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
