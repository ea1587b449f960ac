"""What AOTAutograd's cache keeps of a graph: not a program, but the graph that one is made of.

After a hit AOTAutograd has its own description of the call, and this. The graph is lowered as it
was where it came from, with the names and the user's lines of the process that hits. One that
`torch.compiler.load_compiled_function` loads has no capture around it: it brings its own.

Private API met here, seen on torch 2.13: torch._inductor.output_code.OutputCode, the class of what
the cache keeps, with post_compile and prepare_for_serialization; SerializableAOTDispatchCompiler;
BypassAOTAutogradCache, which leaves an entry out without a warning; torch._guards.
"""

from __future__ import annotations

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
    lines: the stack traces of the nodes of Dynamo's graph, where an entry is for a capture of it.
    is_saved: whether the user saves what is compiled: then it brings `lower`, which is pickled.
    """

    lower: Callable[[GraphModule, str, Mapping[str, Any]], Run]
    lines: Sequence[str | None] = ()
    is_saved: bool = False


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
        self._lowering = around.lower if around.is_saved else None
        self._data, self._refused = b"", ""
        try:
            self._data = zlib.compress(stored.dumps(graph, around.lines).encode(), 1)
        except NotPlain as error:
            self._refused = str(error)
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
        if self._refused:
            raise BypassAOTAutogradCache(
                f"xla_dynamo does not keep this graph for another process: {self._refused}"
            )
        del self._run

    def post_compile(self, example_inputs: Any, constants: Any, graph_kwargs: Any) -> None:
        """After a hit: make what runs. What is raised here is a miss, or stops a load."""
        around, context = self._around(), TracingContext.get()
        assert context.fake_mode is not None
        if hashlib.sha256(self._data).digest() != self._digest:
            raise ValueError("the entry is damaged")
        text = zlib.decompress(self._data).decode()
        self._lower(stored.loads(text, context.fake_mode, around.lines), around)

    def _around(self) -> Surroundings:
        return surroundings.get() if self._lowering is None else Surroundings(self._lowering)

    def set_triton_bundle(self, triton_bundle: Any) -> None:
        """There are no kernels of Triton."""


def serializable(compiler: Callable[..., Entry]) -> Any:
    """A compiler whose results AOTAutograd keeps."""
    return SerializableAOTDispatchCompiler(Entry, compiler)
