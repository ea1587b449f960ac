"""What AOTAutograd's cache keeps of a graph: not a program, but the graph that one is made of.

After a hit AOTAutograd has its own description of the call, and this. The graph is lowered as it
was where it came from, with the names and the user's lines of the process that hits.

Private API met here, seen on torch 2.13: torch._inductor.output_code.OutputCode, the class of what
the cache keeps, with post_compile and prepare_for_serialization; SerializableAOTDispatchCompiler;
BypassAOTAutogradCache, which leaves an entry out without a warning; torch._guards.
"""

from __future__ import annotations

import contextlib
import hashlib
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from torch._functorch._aot_autograd.autograd_cache import BypassAOTAutogradCache
from torch._functorch._aot_autograd.schemas import SerializableAOTDispatchCompiler
from torch._guards import TracingContext, tracing
from torch._inductor.output_code import OutputCode
from torch.fx import GraphModule

from xla_dynamo.backend.graph import stored
from xla_dynamo.backend.graph.plain import NotPlain

Run = Callable[[list[Any]], Sequence[Any]]


@dataclass(frozen=True)
class Surroundings:
    """What is known of a capture beside its graphs.

    lower: makes of a graph, its kind and what is told of it what runs.
    lines: the stack traces of the nodes of Dynamo's graph.
    """

    lower: Callable[[GraphModule, str, Mapping[str, Any]], Run]
    lines: Sequence[str | None]


surroundings: ContextVar[Surroundings] = ContextVar("surroundings")


class Entry(OutputCode):
    """What runs, and its graph for another process. Backward's is lowered when it is first called.

    kind: "forward", "backward" or "inference". told: plain values for `lower`.
    """

    _boxed_call = True

    def __init__(self, graph: GraphModule, kind: str, told: Mapping[str, Any]) -> None:
        super().__init__()
        around = surroundings.get()
        self._kind, self._told = kind, told
        self._data: bytes | None = None
        with contextlib.suppress(NotPlain):
            self._data = zlib.compress(stored.dumps(graph, around.lines).encode(), 1)
            self._digest = hashlib.sha256(self._data).digest()
        context = TracingContext.try_get()
        if context is not None and context.fw_metadata is not None:
            # Nothing takes over what forward saved: backward may run twice.
            context.fw_metadata.bw_donated_idxs = []
        self._lower(graph, around)

    def __call__(self, inputs: Any) -> Any:
        return self._run(inputs)

    def _lower(self, graph: GraphModule, around: Surroundings) -> None:
        if self._kind != "backward":
            self._run = around.lower(graph, self._kind, self._told)
            return
        context = TracingContext.try_get()

        def first(inputs: list[Any]) -> Sequence[Any]:
            with tracing(context):
                self._run = around.lower(graph, self._kind, self._told)
            return self._run(inputs)

        self._run = first

    def prepare_for_serialization(self) -> None:
        """Leave out, of a copy, what belongs to this process."""
        if self._data is None:
            raise BypassAOTAutogradCache("another process could not make the graph again")
        del self._run

    def post_compile(self, example_inputs: Any, constants: Any, graph_kwargs: Any) -> None:
        """After a hit: make what runs. What is raised here is a miss."""
        around, context = surroundings.get(), TracingContext.get()
        assert self._data is not None
        assert context.fake_mode is not None
        if hashlib.sha256(self._data).digest() != self._digest:
            raise ValueError("the entry is damaged")
        text = zlib.decompress(self._data).decode()
        self._lower(stored.loads(text, context.fake_mode, around.lines), around)

    def set_triton_bundle(self, triton_bundle: Any) -> None:
        """There are no kernels of Triton."""


def serializable(compiler: Callable[..., Entry]) -> Any:
    """A compiler whose results AOTAutograd keeps."""
    return SerializableAOTDispatchCompiler(Entry, compiler)
