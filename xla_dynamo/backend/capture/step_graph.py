"""Dynamo's graph of a loss, with backward and an optimizer's step behind it.

The node that does both is a Python function: AOTAutograd, which traces the graph next, traces what
it does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

from xla_dynamo.backend.graph import edit, fx
from xla_dynamo.errors import OptionError

# A step, in place: parameters and their gradients by number, and the other tensors that it takes.
Step = Callable[[Mapping[int, Tensor], Mapping[int, Tensor | None], Sequence[Tensor]], None]


def extended(
    module: GraphModule, held: Mapping[int, int], tensors: Sequence[Tensor], step: Step
) -> GraphModule:
    """A module that takes the arguments of `module`, then `tensors`; its results are detached.

    held: the positions of parameters among the arguments, by their numbers.

    Raises:
        OptionError: there is no loss among the results.
    """
    graph = fx.copy(module.graph)
    placeholders, results = fx.placeholders(graph), fx.results(graph)
    losses = [r for r in results if isinstance(r, Node) and _is_differentiated(r)]
    if len(losses) != 1 or not held:
        raise OptionError(
            "The function of a training step has to return its loss, one tensor of one element "
            "that depends on the optimizer's parameters, or a tuple that begins with it."
        )
    (loss,) = losses
    added = [
        edit.append_placeholder(graph, f"optimizer_{i}", {"example_value": x})
        for i, x in enumerate(tensors)
    ]
    parameters = [placeholders[position] for position in held.values()]
    with graph.inserting_before(graph.output_node()):
        both = graph.call_function(_backward_and(step, tuple(held)), (loss, parameters, added))
        # The user's line of all that is traced there: the loss's.
        both.meta["stack_trace"] = loss.meta.get("stack_trace")
        detached = graph.call_method("detach", (loss,))
        detached.meta.update(loss.meta)
    graph.output_node().args = (tuple(detached if r is loss else r for r in results),)
    return GraphModule(module, graph)


def _backward_and(step: Step, numbers: Sequence[int]) -> Callable[..., None]:
    def backward_and_step(
        loss: Tensor, parameters: Sequence[Tensor], tensors: Sequence[Tensor]
    ) -> None:
        found = torch.autograd.grad(loss, parameters, allow_unused=True)
        by_number = dict(zip(numbers, parameters, strict=True))
        step(by_number, dict(zip(numbers, found, strict=True)), tensors)

    return backward_and_step


def _is_differentiated(result: Node) -> bool:
    value = result.meta.get("example_value")
    return isinstance(value, Tensor) and value.requires_grad
