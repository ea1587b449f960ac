"""A program with collectives, of which each process of a job launches its part."""

from __future__ import annotations

import hashlib
import textwrap
from collections.abc import Callable, Sequence
from typing import Any

from torch.fx import Graph
from torch.utils import _pytree as pytree

from xla_dynamo.backend.graph import fx
from xla_dynamo.backend.ops.collectives import COLLECTIVES
from xla_dynamo.backend.runtime import gloo_output, job, pjrt
from xla_dynamo.config import config

Run = Callable[..., Sequence[Any]]


class JointProgram:
    """Arrays of this process's replica in, and out; the other processes run the same collectives.

    lines: the collectives of the program, in order, as text that is equal in all processes.
    compile: called with the devices of all replicas; gives what runs on stacks, an `Executable`.

    Raises:
        ReplicaError: another process is at another program, or does not come.
    """

    def __init__(
        self, joint: job.Job, lines: Sequence[str], compile: Callable[[tuple[Any, ...]], Run]
    ) -> None:
        self._job = joint
        self._devices = joint.devices()
        shown = "; ".join(lines)
        digest = hashlib.sha256(shown.encode()).hexdigest()[:8]
        self._name = f"{len(lines)} collectives ({textwrap.shorten(shown, 200)}, {digest})"
        # Before the compile: who differs hears of it at once. It counts as the first launch.
        joint.announce(self._name, known=False)
        if config().cache_dir is not None:
            joint.wait_for_first()
        self.run = compile(self._devices)
        joint.compiled()
        self._launched = False

    @property
    def aliases(self) -> int:
        """See `pjrt.Executable`."""
        return getattr(self.run, "aliases", 0)

    def __call__(self, *arrays: Any) -> list[Any]:
        """Launch; returns before the device is done.

        Raises:
            ReplicaError: a collective failed.
        """
        stacks = [pjrt.stack([array], self._devices) for array in arrays]
        try:
            results = self._again(stacks) if self._launched else self._first(stacks)
        except (ValueError, RuntimeError) as error:  # XLA's own, which name no rank
            self._job.explain(error)
        return [pjrt.parts(stack)[0] for stack in results]

    def _again(self, stacks: list[Any]) -> Sequence[Any]:
        self._job.announce(self._name, known=True)
        return self.run(*stacks)

    def _first(self, stacks: list[Any]) -> Sequence[Any]:
        self._launched = True
        with gloo_output.withheld():
            results = self.run(*stacks)
            pjrt.wait(results)
            return results


def collectives_of(graph: Graph) -> list[str]:
    """The collectives of a graph, for `JointProgram`."""
    found = [node for node in fx.calls(graph) if node.target in COLLECTIVES]
    return [line_of(node.target, node.args, node.meta["val"]) for node in found]


def line_of(op: Any, args: Any, results: Any) -> str:
    """A collective as text, by all but the names of what it takes."""
    own = [leaf for leaf in pytree.tree_leaves(args) if isinstance(leaf, (int, str))]
    values = pytree.tree_leaves(results)
    shapes = [f"{str(value.dtype)[6:]}{list(value.shape)}" for value in values]
    return f"{op} {own} of {', '.join(shapes)}"
