"""What PyTorch does at each compile for its own logs and for devices that are absent, left out.

It is a sixth of a small compile's time, and says nothing of this project. Private names of PyTorch,
seen in 2.9 to 2.13; one that is missing costs time only.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._decomp import decompositions_for_rng
from torch._dynamo import guards, utils
from torch.fx import _symbolic_trace

try:
    from torch._functorch._aot_autograd import graph_capture
except ImportError:
    graph_capture = None


def make_quick() -> None:
    """For this process."""
    torch._dynamo.config.run_gc_after_compile = False  # 4 ms of each
    # It times each graph's guards, for a log, after flushing the caches: a tenth of a compile.
    guards.profile_guard_manager = lambda *_: 0.0  # pyright: ignore
    # Without such devices, each remembers every seed for later, with the caller's stack: 1 ms.
    for absent in (torch.cuda, torch.xpu, torch.mtia):
        if not absent.is_available():
            absent.manual_seed_all = lambda seed: None
    _share_states_of_cuda()
    # All of Inductor's and Dynamo's settings as JSON, for a log of each compile.
    for name in ("scrubbed_inductor", "get_dynamo", "compiler"):
        setattr(utils, f"_{name}_config_for_logging", lambda *_: None)
    _leave_modules_alone()


def _share_states_of_cuda() -> None:
    """One empty tensor for CUDA's six generators, instead of twelve fake ones in each graph."""
    empty = torch.tensor(())

    def reset(self: Any) -> None:
        self.seed = self.base_offset = empty
        self.relative_offset = 0
        self.offset_advanced_at_least_once = False

    decompositions_for_rng.PhiloxState.reset = reset


def _leave_modules_alone() -> None:
    """AOTAutograd traces functions: to patch nn.Module for it takes 1 ms, for its subclasses."""
    if graph_capture is None or not hasattr(graph_capture, "_create_graph"):
        return
    inside: list[None] = []
    create, patch = graph_capture._create_graph, _symbolic_trace._Patcher.patch_method

    def create_graph(*args: Any, **kwargs: Any) -> Any:
        inside.append(None)
        try:
            return create(*args, **kwargs)
        finally:
            inside.pop()

    def patch_method(self: Any, cls: type, *args: Any, **kwargs: Any) -> None:
        if not (inside and cls is torch.nn.Module):
            patch(self, cls, *args, **kwargs)

    graph_capture._create_graph = create_graph
    _symbolic_trace._Patcher.patch_method = patch_method
