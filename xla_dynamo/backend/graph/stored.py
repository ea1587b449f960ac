"""A functional graph of ATen ops with numbers for sizes, as text, and back, for another process.

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
    """The text of a graph: a line of JSON for tensors and constants, and one for each node.

    lines: the stack traces of the nodes of Dynamo's graph.

    Raises:
        NotPlain: symbolic sizes, functions of this process, tensors of unusual kinds.
    """
    number = {node: position for position, node in enumerate(module.graph.nodes)}
    position = {line: i for i, line in reversed([*enumerate(lines)]) if line}
    tensors = _Tensors()
    nodes = [
        {
            "op": node.op,
            "name": node.name,
            "target": _target(node),
            "args": to_json((node.args, node.kwargs), number),
            "line": position.get(node.stack_trace, node.stack_trace),
            **_details(node, tensors),
        }
        for node in module.graph.nodes
    ]
    held = module.graph.find_nodes(op="get_attr")
    constants = {str(n.target): _constant(getattr(module, str(n.target), None)) for n in held}
    head = {"memory": tensors.sizes, "kinds": tensors.kinds, "constants": constants}
    return "\n".join(map(json.dumps, [head, *nodes]))


def loads(text: str, mode: FakeTensorMode, lines: Sequence[str | None]) -> GraphModule:
    """The graph; its values are fake tensors of `mode`."""
    head, *rest = text.splitlines()
    graph, nodes = Graph(), []
    with no_modes():
        told = json.loads(head)
        root = {name: _constant_again(*each) for name, each in told["constants"].items()}
        tensor = _maker(told, mode)
        for line in rest:  # one by one: all at once, they are so many objects that Python collects
            each = json.loads(line)
            args, kwargs = of_json(each["args"], nodes)
            target = _target_again(each["op"], each["target"])
            node = graph.create_node(each["op"], target, args, kwargs, each["name"])
            assert node.name == each["name"]
            nodes.append(node)
            if each["line"] is not None:
                known = isinstance(each["line"], int)
                node.stack_trace = lines[each["line"]] if known else each["line"]
            if "value" in each:
                node.meta["val"] = _value_again(each["value"], tensor)
            node.meta.update({key: {"": each[key]} for key in _STACKS if key in each})
            if "argument" in each:
                node.meta["argument"] = True
    return GraphModule(root, graph)


class _Tensors:
    """What is known of a graph's tensors: the sizes of their memory, and their kinds as JSON."""

    def __init__(self) -> None:
        self.sizes: list[Any] = []
        self.kinds: list[Any] = []
        self._memory: dict[int, int] = {}
        self._kinds: dict[str, int] = {}

    def numbers(self, of: torch.Tensor) -> list[int]:
        """The numbers of its memory and its kind."""
        usual = type(of) is FakeTensor and of.layout == torch.strided
        if not usual or of.is_neg() or of.is_conj():
            raise NotPlain(f"a tensor of an unusual kind: {type(of).__name__}")
        storage = of.untyped_storage()
        memory = self._memory.setdefault(storage._cdata, len(self.sizes))
        if memory == len(self.sizes):
            self.sizes.append(to_json(storage.nbytes()))
        place = tuple(of.shape), of.stride(), of.storage_offset()
        told = to_json((of.dtype, of.device, of.requires_grad, *place))
        kind = self._kinds.setdefault(repr(told), len(self.kinds))
        if kind == len(self.kinds):
            self.kinds.append(told)
        return [memory, kind]


def _maker(told: Mapping[str, Any], mode: FakeTensorMode) -> Callable[[int, int], torch.Tensor]:
    """What makes a tensor again of the numbers of its memory and its kind."""
    made = [torch.empty(size, dtype=torch.uint8, device="meta") for size in told["memory"]]
    memory = [each.untyped_storage() for each in made]
    kinds = of_json(told["kinds"])

    def tensor(where: int, number: int) -> torch.Tensor:
        dtype, device, has_gradient, size, stride, offset = kinds[number]
        of = torch.empty(0, dtype=dtype, device="meta")
        of.set_(memory[where], offset, size, stride)
        fake = FakeTensor(mode, of, device)
        return fake.requires_grad_() if has_gradient else fake

    return tensor


def _details(node: Node, tensors: _Tensors) -> dict[str, Any]:
    """The metadata of a node that it has, as JSON."""
    found: dict[str, Any] = {}
    if "val" in node.meta:
        found["value"] = _value(node.meta["val"], tensors)
    for key in _STACKS:
        if node.meta.get(key):
            found[key] = _innermost(node.meta[key])
    if node.meta.get("argument"):
        found["argument"] = True
    return found


def _value(of: Any, tensors: _Tensors) -> Any:
    if isinstance(of, (tuple, list)):
        kind = "list" if isinstance(of, list) else "tuple"
        return {kind: [_value(each, tensors) for each in of]}
    return tensors.numbers(of) if isinstance(of, torch.Tensor) else to_json(of)


def _value_again(told: Any, tensor: Callable[[int, int], torch.Tensor]) -> Any:
    if isinstance(told, list):
        return tensor(*told)
    for kind, of in (("tuple", tuple), ("list", list)):
        if isinstance(told, dict) and kind in told:
            return of(_value_again(each, tensor) for each in told[kind])
    return of_json(told)


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
