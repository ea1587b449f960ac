"""A compiled graph with collectives of replicas in threads: one launch over all their devices.

Each thread has a graph of its own, which Dynamo captured there. They meet at each call, and
whoever comes last to the first one compiles his graph for all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from xla_dynamo.lazily import lazily

if TYPE_CHECKING:
    from xla_dynamo.backend.executable import joint
    from xla_dynamo.backend.runtime import replica_arrays
else:
    joint = lazily("xla_dynamo.backend.executable.joint", globals())
    replica_arrays = lazily("xla_dynamo.backend.runtime.replica_arrays", globals())


_KIND = "a compiled graph with "


def advice(places: Iterable[str]) -> str:
    """What replicas at different places are told, if they are all in compiled graphs."""
    if not all(place.startswith(_KIND) for place in places):
        return ""
    return (
        ". Compiled graphs of replicas in threads have to be equal: the same ops on tensors of the "
        "same shapes (drop_last=True for the loader), and no number that differs between "
        "replicas, which can be given as a tensor. Processes (xmp.spawn) need not be."
    )


class GangGraph:
    """Arrays of one replica in, and out; those of the others come in their threads.

    meet: see `Gang.meet`, for this replica. on: the devices of all.
    name: equal for all replicas whose graphs go together.
    aliases: how many results take over the memory of an argument.
    compile: gives what runs it on stacks.
    """

    def __init__(
        self,
        meet: Callable[..., Any],
        on: tuple[Any, ...],
        name: str,
        aliases: int,
        compile: Callable[[], joint.Run],
    ) -> None:
        self._meet, self._on, self._what = meet, on, _KIND + name
        self._compile: Callable[[], joint.Run] | None = compile
        self._run: joint.Run | None = None
        self.aliases = aliases

    def __call__(self, *arrays: Any) -> Sequence[Any]:
        """Launch; returns before the device is done.

        Raises:
            ReplicaError: the others do not come, or are elsewhere.
        """
        return self._meet(self._what, (self, arrays), self._launch)

    def _launch(self, given: Sequence[tuple[GangGraph, Sequence[Any]]]) -> list[list[Any]]:
        run = next((graph._run for graph, _ in given if graph._run is not None), None)
        if run is None:
            assert self._compile is not None
            run = self._compile()
        for graph, _ in given:
            graph._run, graph._compile = run, None  # what compiles holds a graph
        return replica_arrays.run_together(run, [arrays for _, arrays in given], self._on)
