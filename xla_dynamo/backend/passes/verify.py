"""What must hold of a graph after each pass and each stage; checked where XLA_DYNAMO_STRICT is set.

After a pass: the graph lints; every node it made has a value and, where one of its operands has
one, a user's line. After the static stage, nothing symbolic is left.
"""

from __future__ import annotations

from collections.abc import Collection

from torch.fx import Graph, Node
from torch.utils import _pytree as pytree

from xla_dynamo.backend.graph.fx import is_strided, is_symbolic
from xla_dynamo.config import config
from xla_dynamo.errors import XlaDynamoError

from .contract import Stage


class BrokenGraph(XlaDynamoError):
    """A pass left a graph that breaks the contract of its stage: a bug of xla_dynamo."""


def snapshot(graph: Graph) -> Collection[Node]:
    """The nodes that are there before a pass; none where nothing is verified."""
    return frozenset(graph.nodes) if config().strict else frozenset()


def after_pass(graph: Graph, stage: Stage, name: str, before: Collection[Node]) -> Collection[Node]:
    """Verify what a pass has changed; the snapshot for the next one.

    Raises:
        BrokenGraph: which node breaks which rule, and after which pass.
    """
    if not config().strict:
        return before
    try:
        graph.lint()
    except (RuntimeError, ValueError, AssertionError) as error:
        raise BrokenGraph(f"{name} left a graph that does not lint: {error}") from error
    for node in graph.nodes:
        if node in before or node.op in ("output", "get_attr"):
            continue
        if stage is not Stage.DYNAMO and "val" not in node.meta:
            raise BrokenGraph(f"{name} made {node.format_node()} without a value.")
        lines = [operand.meta.get("stack_trace") for operand in node.all_input_nodes]
        if any(lines) and "stack_trace" not in node.meta and node.op == "call_function":
            raise BrokenGraph(f"{name} made {node.format_node()} without the user's line.")
    return frozenset(graph.nodes)


def after_stage(graph: Graph, stage: Stage) -> None:
    """Verify that a static graph has no symbolic size.

    Raises:
        BrokenGraph.
    """
    if not config().strict or stage not in (Stage.STATIC, Stage.LOWERING):
        return
    for node in graph.nodes:
        for leaf in pytree.tree_leaves(node.meta.get("val")):
            sizes = (*leaf.shape, *leaf.stride()) if is_strided(leaf) else (leaf,)
            if any(map(is_symbolic, sizes)):
                raise BrokenGraph(
                    f"{node.format_node()} is symbolic after the {stage.value} stage."
                )
