"""Make constants and PRNG keys arguments after the graph's own; `context.lifted` lists them."""

from __future__ import annotations

import torch
from torch.fx import Graph, GraphModule, Node

from xla_dynamo.backend.graph import edit, rng_keys
from xla_dynamo.backend.passes.contract import Context


def lift_constants(graph: Graph, context: Context) -> bool:
    """Make the tensor attributes of the graph's module arguments."""
    module = graph.owning_module
    lifted: dict[str, Node] = {}
    for node in graph.find_nodes(op="get_attr"):
        assert isinstance(module, GraphModule)
        value = edit.attribute(module, node)
        if not isinstance(value, torch.Tensor):
            continue
        name = str(node.target)
        if name not in lifted:
            lifted[name] = edit.append_placeholder(graph, f"constant_{len(lifted)}", node.meta)
            meta = lifted[name].meta
            if "val" not in meta:
                meta["val"] = rng_keys.fake_mode(graph).from_tensor(value)
            context.lifted.constants.append(value)
        edit.substitute(node, lifted[name])
    return bool(lifted)


def lift_rng_keys(graph: Graph, context: Context) -> bool:
    """Make the PRNG keys that the graph draws arguments."""
    keys = graph.find_nodes(op="call_function", target=rng_keys.new_key)
    for node in keys:
        edit.substitute(node, edit.append_placeholder(graph, "prng_key", node.meta))
    context.lifted.keys += len(keys)
    return bool(keys)
