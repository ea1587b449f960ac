"""What is in FX graphs and their nodes; `edit` changes them."""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import Any, TypeGuard, cast

import torch
from torch.fx import Graph, Node
from torch.utils import _pytree as pytree

aten = torch.ops.aten
_NO_MODULE = torch.nn.Module()
_PERMUTATIONS = (aten.permute.default, aten.transpose.int, aten.t.default)


def placeholders(graph: Graph) -> list[Node]:
    """The arguments of `graph`, in order."""
    return [node for node in graph.nodes if node.op == "placeholder"]


def shape_env(graph: Graph) -> Any | None:
    """What PyTorch knows of the symbols in the sizes of the arguments; None if there are none."""
    for node in placeholders(graph):
        value = node.meta.get("val")
        for size in (value, *getattr(value, "shape", ())):
            if isinstance(size, torch.SymInt):
                return size.node.shape_env
    return None


def results(graph: Graph) -> list[Any]:
    """What `graph` returns, as a flat list of nodes and constants."""
    return list(cast("tuple[Any, ...]", graph.output_node().args[0]))


def calls(graph: Graph) -> list[Node]:
    """The nodes of `graph` that compute something."""
    return [node for node in graph.nodes if node.op == "call_function"]


def copy(graph: Graph) -> Graph:
    """A copy of `graph`; nodes keep names and metadata."""
    new = Graph()
    new.output(new.graph_copy(graph, {}))
    return new


def arguments(node: Node) -> dict[str, Any]:
    """The arguments of an op by name, with the defaults of its schema; `self` is "input"."""
    found = node.normalized_arguments(_NO_MODULE, normalize_to_only_use_kwargs=True)
    assert found is not None, f"{node.target} has no schema that takes {node.args}"
    return found.kwargs


def is_view(node: Node) -> bool:
    """Whether `node` is a view of its first argument, according to the op's schema."""
    return gives_views(node.target) and isinstance(node.meta["val"], torch.Tensor)


def gives_views(target: Any) -> bool:
    """Whether the results of an op are views of its first argument."""
    schema = target._schema.arguments if hasattr(target, "_schema") else ()
    alias = schema[0].alias_info if schema else None
    return alias is not None and not alias.is_write


def transpose_of(node: Any) -> Node | None:
    """The matrix that `node` is the transpose of; None for another node."""
    is_swap = node.target is aten.permute.default and list(node.args[1]) == [1, 0]
    return node.args[0] if is_swap or node.target is aten.t.default else None


def permutation(node: Any) -> list[int] | None:
    """The dimensions of its operand that a permutation has for its own; None for another node."""
    if node.target not in _PERMUTATIONS:
        return None
    dims = list(range(node.meta["val"].dim()))
    if node.target is aten.permute.default:
        return [dim % len(dims) for dim in node.args[1]]
    if node.target is aten.t.default:
        return dims[::-1]
    if dims:
        first, second = node.args[1:]
        dims[first], dims[second] = dims[second], dims[first]
    return dims


def bases(node: Node, through: Container[Any] = ()) -> Iterator[Node]:
    """`node`, the tensor that it is a view of, what that is a view of in turn, and so on.

    The ops in `through` count as views.
    """
    yield node
    while node.op == "call_function" and (node.target in through or is_view(node)):
        source = node.args[0] if node.args else None
        if not isinstance(source, Node):
            return
        yield (node := source)


def tensors(value: Any) -> list[torch.Tensor]:
    """The tensors in a value of node.meta["val"], which may be a tuple, or in several."""
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def is_symbolic(value: Any) -> bool:
    """Whether a value of node.meta["val"] is a SymInt, SymFloat or SymBool."""
    return isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool))


def known_size(size: Any) -> int | None:
    """A size as a number, where it is known to be one."""
    return size.node.maybe_as_int() if is_symbolic(size) else size


def is_inexact(value: Any) -> bool:
    """Whether `value` is a tensor of floats or of complex numbers."""
    return isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex())


def is_strided(value: Any) -> TypeGuard[torch.Tensor]:
    """Whether `value` is a tensor with strides and one storage: neither sparse nor nested."""
    is_tensor = isinstance(value, torch.Tensor)
    return is_tensor and value.layout is torch.strided and not value.is_nested
