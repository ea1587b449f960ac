"""Mark what forward must save for backward, whatever the partitioner would choose."""

from __future__ import annotations

import torch
from torch.fx import Graph, Node
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils.checkpoint import CheckpointPolicy

from xla_dynamo.backend.graph import fx
from xla_dynamo.backend.passes.contract import Context


def save_mutated_inputs(joint: Graph, context: Context) -> bool:
    """Save a copy of an argument that the call mutates, never the argument itself.

    Autograd refuses a saved tensor into which AOTAutograd writes after the graph has run. It counts
    writes by storage: other views of it are refused, too.
    """
    if context.forward_outputs is None:
        return False
    placeholders = fx.placeholders(joint)
    described = joint.output_node().meta.get("desc") or ()
    changed = [getattr(output, "mutated_input", None) for output in described]
    storages = {
        _storage(argument)
        for argument in placeholders
        if argument.meta.get("desc") is not None and argument.meta["desc"] in changed
    }
    if not storages:
        return False
    for argument in [node for node in placeholders if _storage(node) in storages]:
        with joint.inserting_after(placeholders[-1]):
            copy = joint.call_function(torch.ops.aten.clone.default, (argument,))
        copy.meta = {**argument.meta, "recompute": CheckpointPolicy.MUST_SAVE}
        argument.replace_all_uses_with(copy, lambda user, copy=copy: user is not copy)
    return True


def _storage(argument: Node) -> StorageWeakRef | None:
    value = argument.meta["val"]
    return StorageWeakRef(value.untyped_storage()) if fx.is_strided(value) else None


def save_compared(joint: Graph, context: Context) -> bool:
    """Save, as eager does, a tensor in which backward looks for a result, such as its maximum.

    If backward recomputed the tensor, its last digits might differ from the result's, and the
    gradient of amax would go to no element.
    """
    if context.forward_outputs is None:
        return False
    late: set[Node] = set()  # nodes that depend on incoming gradients
    compared: list[Node] = []
    for node in joint.nodes:
        is_gradient = node.op == "placeholder" and node.name.startswith("tangents")
        if is_gradient or not late.isdisjoint(node.all_input_nodes):
            late.add(node)
        elif node.target is torch.ops.aten.eq.Tensor:
            operands = node.all_input_nodes
            compared += [x for x in operands if x.meta["val"].is_floating_point()]
    # What is not in forward itself is computed from tensors that are: those are saved.
    forward = {r for r in fx.results(joint)[: context.forward_outputs] if isinstance(r, Node)}
    wanted = set(compared)
    for node in reversed(joint.nodes):
        if node in forward:
            forward.update(node.all_input_nodes)
        if node in wanted and (node not in forward or fx.gives_views(node.target)):
            wanted.update(node.all_input_nodes)  # views are made again of what is saved
        elif node in wanted and node.op != "placeholder":
            node.meta["recompute"] = CheckpointPolicy.MUST_SAVE
    return bool(compared)
