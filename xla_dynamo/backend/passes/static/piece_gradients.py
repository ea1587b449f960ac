"""Join the gradients of the pieces of a tensor, which autograd adds up among zeros, on the CPU.

`q, k, v = x[0], x[1], x[2]`, as in nn.MultiheadAttention, or `x[..., :n], x[..., n:]`: each piece's
gradient is written into zeros of the size of x, and those are added. XLA:CPU writes and reads them
all; where the pieces are the whole of x, their gradients side by side are the sum, but for the sign
of a zero. A training step of a ViT 192 wide, 16 images, takes 0.95 of the time (two cores of a
Cascade Lake, jaxlib 0.10.2).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import SymInt
from torch.fx import Graph, Node

from xla_dynamo.backend.graph import edit, fx
from xla_dynamo.backend.passes.contract import Context

aten = torch.ops.aten
_SELECT, _SLICE = aten.select_backward.default, aten.slice_backward.default


@dataclass(frozen=True)
class _Piece:
    """The gradient of x[..., start:end] along `dim`, of an x of `sizes`."""

    node: Node
    sizes: tuple[int, ...]
    dim: int
    start: int
    end: int


def join_piece_gradients(graph: Graph, context: Context) -> bool:
    """Rewrite `graph` in place."""
    if context.target.platform != "cpu":
        return False
    sums = [node for node in reversed(fx.calls(graph)) if _is_sum(node)]
    done: set[Node] = set()
    changed = False
    for node in sums:
        if node in done:
            continue
        terms, inner = _terms(node)
        pieces = _whole([_piece(term) for term in terms])
        if pieces is None:
            continue
        done |= inner
        _join(graph, node, pieces)
        changed = True
    if changed:
        edit.drop_unused(graph)
    return changed


def _join(graph: Graph, node: Node, pieces: list[_Piece]) -> None:
    dim = pieces[0].dim
    with graph.inserting_before(node):
        parts = []
        for piece in pieces:
            part: Any = piece.node.args[0]
            if piece.node.target is _SELECT:
                part = edit.call(graph, aten.unsqueeze.default, part, dim, like=piece.node)
            parts.append(part)
        joined = edit.call(graph, aten.cat.default, parts, dim, like=node)
    edit.substitute_made(node, joined)


def _is_sum(node: Node) -> bool:
    return node.target is aten.add.Tensor and not node.kwargs


def _terms(node: Node) -> tuple[list[Any], set[Node]]:
    """What a tree of sums adds up, and its sums: those that nothing else reads."""
    terms: list[Any] = []
    sums = {node}
    for operand in node.args[:2]:
        if isinstance(operand, Node) and _is_sum(operand) and len(operand.users) == 1:
            more, inner = _terms(operand)
            terms += more
            sums |= inner
        else:
            terms.append(operand)
    return terms, sums


def _piece(term: Any) -> _Piece | None:
    if not isinstance(term, Node) or term.target not in (_SELECT, _SLICE) or len(term.users) != 1:
        return None
    args: Any = term.args
    _, sizes, dim, *where = args
    if any(isinstance(each, SymInt | Node) for each in (*sizes, *where)):
        return None
    dim %= len(sizes)
    size = sizes[dim]
    if term.target is _SELECT:
        start = where[0] % size
        return _Piece(term, tuple(sizes), dim, start, start + 1)
    start, end, step = where
    start, end, _ = slice(start, end).indices(size)
    return _Piece(term, tuple(sizes), dim, start, end) if step == 1 else None


def _whole(pieces: list[_Piece | None]) -> list[_Piece] | None:
    """The pieces in their order, if they are all of one tensor, each element once."""
    found = [piece for piece in pieces if piece is not None]
    if len(found) < len(pieces) or len({(piece.sizes, piece.dim) for piece in found}) != 1:
        return None
    found.sort(key=lambda piece: piece.start)
    ends = [0, *(piece.end for piece in found)]
    starts = [*(piece.start for piece in found), found[0].sizes[found[0].dim]]
    return found if ends == starts else None
