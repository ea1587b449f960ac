"""A functional graph of ATen ops with numbers for sizes, as JSON, and back, for another process.

What comes back is lowered as the graph itself would be: values share memory where they did, nodes
keep their names, and errors name the user's lines. Of metadata it keeps what is read after the
partitioner. A line is told by the position, in Dynamo's graph, of a node that has it: where the
user's file has changed since, it is the new one.
"""

from __future__ import annotations

import base64
import json
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from . import rng_keys
from .plain import NotPlain, of_json, to_json
from .torch_private import FakeTensor, FakeTensorMode, no_modes

_LARGEST_CONSTANT = 2**16  # bytes
_STACKS = ("nn_module_stack", "fwd_nn_module_stack")
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "getitem": operator.getitem,
    "random": rng_keys.call,
    "key": rng_keys.new_key,
}


def dumps(module: GraphModule, lines: Sequence[str | None]) -> str:
    """The JSON of a graph; lines: the stack traces of the nodes of Dynamo's graph.

    Raises:
        NotPlain: symbolic sizes, functions of this process, tensors of unusual kinds.
    """
    number = {node: position for position, node in enumerate(module.graph.nodes)}
    position = {line: i for i, line in reversed([*enumerate(lines)]) if line}
    memory: dict[int, int] = {}
    sizes: list[Any] = []

    def value(of: Any) -> Any:
        if isinstance(of, (tuple, list)):
            return [type(of).__name__ == "list", *map(value, of)]
        if not isinstance(of, torch.Tensor):
            return to_json(of)
        return _tensor(of, memory, sizes)

    nodes = [
        {
            "op": node.op,
            "name": node.name,
            "target": _target(node),
            "args": to_json((node.args, node.kwargs), number),
            "value": value(node.meta["val"]) if "val" in node.meta else {},
            "line": position.get(node.stack_trace, node.stack_trace),
            "modules": {key: _innermost(node.meta[key]) for key in _STACKS if node.meta.get(key)},
            "argument": node.meta.get("argument", False),
        }
        for node in module.graph.nodes
    ]
    targets = [node.target for node in module.graph.find_nodes(op="get_attr")]
    constants = {name: _constant(getattr(module, str(name), None)) for name in targets}
    return json.dumps({"nodes": nodes, "memory": sizes, "constants": constants})


def loads(text: str, mode: FakeTensorMode, lines: Sequence[str | None]) -> GraphModule:
    """The graph; its values are fake tensors of `mode`."""
    told = json.loads(text)
    with no_modes():
        root = {name: _constant_again(*each) for name, each in told["constants"].items()}
        memory = [
            torch.empty(size, dtype=torch.uint8, device="meta").untyped_storage()
            for size in told["memory"]
        ]

    def value(of: Any) -> Any:
        if isinstance(of, list):
            each = [value(one) for one in of[1:]]
            return each if of[0] else tuple(each)
        if isinstance(of, dict) and "memory" in of:
            return _tensor_again(of, memory, mode)
        return of_json(of)

    graph, nodes = Graph(), []
    with no_modes():
        for each in told["nodes"]:
            args, kwargs = of_json(each["args"], nodes)
            target = _target_again(each["op"], each["target"])
            node = graph.create_node(each["op"], target, args, kwargs, each["name"])
            assert node.name == each["name"]
            nodes.append(node)
            node.meta.update({key: {"": of} for key, of in each["modules"].items()})
            line = each["line"]
            if line is not None:
                node.stack_trace = lines[line] if isinstance(line, int) else line
            if each["value"] != {}:
                node.meta["val"] = value(each["value"])
            if each["argument"]:
                node.meta["argument"] = True
    return GraphModule(root, graph)


def _target(node: Node) -> Any:
    if node.op != "call_function":
        return str(node.target)
    for name, function in _FUNCTIONS.items():
        if node.target is function:
            return name
    return to_json(node.target)


def _target_again(op: str, told: Any) -> Any:
    if op != "call_function":
        return told
    return _FUNCTIONS[told] if isinstance(told, str) else of_json(told)


def _tensor(of: torch.Tensor, memory: dict[int, int], sizes: list[int]) -> Mapping[str, Any]:
    if type(of) is not FakeTensor or of.layout != torch.strided or of.is_neg() or of.is_conj():
        raise NotPlain(f"a tensor of an unusual kind: {type(of).__name__}")
    storage = of.untyped_storage()
    where = memory.setdefault(storage._cdata, len(sizes))
    if where == len(sizes):
        sizes.append(to_json(storage.nbytes()))
    place = (tuple(of.shape), of.stride(), of.storage_offset())
    return {
        "memory": where,
        "dtype": to_json(of.dtype),
        "device": str(of.device),
        "place": to_json(place),
        "grad": of.requires_grad,
    }


def _tensor_again(told: Mapping[str, Any], memory: Sequence[Any], mode: Any) -> torch.Tensor:
    size, stride, offset = of_json(told["place"])
    tensor = torch.empty(0, dtype=of_json(told["dtype"]), device="meta")
    tensor.set_(memory[told["memory"]], offset, size, stride)
    fake = FakeTensor(mode, tensor, torch.device(told["device"]))
    return fake.requires_grad_() if told["grad"] else fake


def _constant(of: Any) -> tuple[Any, ...]:
    plain = type(of) is torch.Tensor and of.layout == torch.strided and of.device.type == "cpu"
    if not plain or not of.is_contiguous() or of.nbytes > _LARGEST_CONSTANT or of.requires_grad:
        raise NotPlain("a constant that is large, or of an unusual kind")
    with no_modes():
        data = of.view(-1).view(torch.uint8).numpy().tobytes() if of.numel() else b""
    return to_json(of.dtype), tuple(of.shape), base64.b64encode(data).decode()


def _constant_again(dtype: Any, shape: Sequence[int], data: str) -> torch.Tensor:
    made = torch.empty(shape, dtype=of_json(dtype), device="cpu")
    if data:
        held = torch.frombuffer(bytearray(base64.b64decode(data)), dtype=torch.uint8)
        made.view(-1).view(torch.uint8).copy_(held)
    return made


def _innermost(stack: Mapping[str, Any]) -> tuple[str, str]:
    path, kind = list(stack.values())[-1]
    return path, str(getattr(kind, "__name__", kind))
