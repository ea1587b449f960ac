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
from xla_dynamo.backend.runtime import gloo_output, job, notice_board, replica_arrays, transfers
from xla_dynamo.config import config

Run = Callable[..., Sequence[Any]]
Compile = Callable[[tuple[Any, ...]], Run]  # for the devices of all replicas


class Agreed:
    """A program that all processes of a job launch together, each its part.

    name: equal in all processes whose programs go together. compile: gives what runs it.

    Raises:
        ReplicaError: another process is at another program, or does not come.
    """

    def __init__(self, joint: job.Job, name: str, compile: Callable[[], Run]) -> None:
        self._job = joint
        self._name = name
        # Before the compile: who differs hears of it at once. It counts as the first launch.
        joint.announce(name, known=False)
        if config().cache_dir is not None:
            joint.wait_for_first()
        self.run = compile()
        joint.compiled()
        self._launched = False

    @property
    def aliases(self) -> int:
        """See `pjrt.Executable`."""
        return getattr(self.run, "aliases", 0)

    def __call__(self, *arrays: Any) -> Sequence[Any]:
        """Launch; returns before the devices are done.

        Raises:
            ReplicaError: a collective failed.
        """
        try:
            return self._again(arrays) if self._launched else self._first(arrays)
        except (ValueError, RuntimeError) as error:  # XLA's own, which name no rank
            self._job.explain(error)

    def _again(self, arrays: Sequence[Any]) -> Sequence[Any]:
        self._job.announce(self._name, known=True)
        return self.run(*arrays)

    def _first(self, arrays: Sequence[Any]) -> Sequence[Any]:
        self._launched = True
        with gloo_output.withheld():
            results = self.run(*arrays)
            transfers.wait(results)
            return results


class JointProgram(Agreed):
    """Arrays of this process's replica in, and out; the other processes run the same collectives.

    lines: the collectives of the program, in order, as text that is equal in all processes.
    whole: all of the program as text, for a job that needs that to be equal, too.
    compile: called with the devices of all replicas; gives what runs on stacks, an `Executable`.

    Raises:
        ReplicaError: another process is at another program, or does not come.
    """

    def __init__(
        self,
        joint: job.Job,
        lines: Sequence[str],
        compile: Compile,
        whole: str = "",
    ) -> None:
        self._devices = joint.devices()
        super().__init__(
            joint, name_of(lines, whole if joint.alike else ""), lambda: compile(self._devices)
        )

    def __call__(self, *arrays: Any) -> list[Any]:
        """Launch; returns before the device is done.

        Raises:
            ReplicaError: a collective failed.
        """
        return replica_arrays.run_together(self.on_stacks, [arrays], self._devices)[0]

    def on_stacks(self, *stacks: Any) -> Sequence[Any]:
        """The same for a process with several replicas: what it takes and gives is theirs."""
        return super().__call__(*stacks)


def name_of(lines: Sequence[str], whole: str = "") -> str:
    """A program for messages, by its collectives, in order, and by all of its text, if given."""
    shown = "; ".join(lines)
    count = f"{len(lines)} collective{'s' if len(lines) > 1 else ''}"
    name = f"{count} ({textwrap.shorten(shown, 200)}, {_digest(shown)})"
    return name + f"{notice_board.IN_PROGRAM}{_digest(whole)}" if whole else name


def together(text: str, compile: Callable[[], Run]) -> Run:
    """What `compile` gives for a partitioned program; in a job, all processes agree on it.

    text: the program, as it is in every process.

    Raises:
        ReplicaError: another process is at another program, or does not come.
    """
    joint = job.current()
    if joint is None:
        return compile()
    return Agreed(joint, f"a partitioned program ({len(text)}, {_digest(text)})", compile)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


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
