"""Compile a model's training step for a TPU, on a machine that has none, and tell its costs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import Graph, Node

from xla_dynamo.backend import options, pipeline
from xla_dynamo.backend.capture import aot
from xla_dynamo.backend.decompositions.table import traced_decompositions
from xla_dynamo.backend.executable import trial
from xla_dynamo.backend.executable.compile import lower
from xla_dynamo.backend.graph import edit, fx
from xla_dynamo.backend.lowering import unsupported
from xla_dynamo.backend.lowering.lower import Lowered
from xla_dynamo.backend.passes.contract import Context, Stage, WayIn, target_of
from xla_dynamo.backend.runtime import pjrt, topology
from xla_dynamo.errors import CompileError, XlaDynamoError

aten = torch.ops.aten

Inputs = Sequence[Tensor] | Mapping[str, Tensor]


def analyze_training_step(
    model: nn.Module,
    inputs: Inputs,
    *,
    topology_name: str = "v5e:2x2",
    matmul_precision: str | None = None,
    numerics: str | None = None,
    trial_compile: str | None = None,
) -> topology.Analysis:
    """Compile forward, backward and SGD with momentum of `model(*inputs)` for one TPU core.

    `inputs` are positional arguments, or keyword arguments by name. `model` returns a scalar loss,
    or what holds one as "loss" or as its first entry, as models of transformers do. It is captured
    by Dynamo, as torch.compile captures it. Old parameters, buffers and momenta give their memory
    to the new ones. `matmul_precision` ("highest", "high", "medium") defaults to
    torch.get_float32_matmul_precision(), which is "highest" unless set: libtpu then takes some 10
    seconds for each convolution, of JAX's programs too; at "medium" less than one. `numerics`
    ("eager" or "xla") defaults to XLA_DYNAMO_NUMERICS. `trial_compile` ("unproved", "always",
    "never") says what is compiled in another process first, as libtpu ends the process on some
    programs; it defaults to XLA_DYNAMO_TRIAL_COMPILE.

    Raises:
        CompileError: the step is not one program (it reads values, say), or the TPU compiler
            refused it (out of memory, say), or ends its process on it.
        DeviceUnavailable: libtpu is missing or does not know the topology.
        UnsupportedOp: an op has no lowering.
    """
    topology.topology_device(topology_name)
    chosen = _options(
        matmul_precision=matmul_precision, numerics=numerics, trial_compile=trial_compile
    )
    lowered, graph = _lowered(model, inputs, chosen)
    name = f"the training step of {type(model).__name__}"
    trial.survive(lowered, graph, topology_name, chosen, {}, name)
    return topology.compile(lowered.module, topology_name)[0]


def lower_training_step(
    model: nn.Module,
    inputs: Inputs,
    *,
    matmul_precision: str | None = None,
    numerics: str | None = None,
) -> Lowered:
    """The step that `analyze_training_step` compiles, as StableHLO for TPUs: see `.stablehlo`.

    Arguments are those of `analyze_training_step`. It needs no libtpu.

    Raises:
        CompileError: the step is not one program.
        UnsupportedOp: an op has no lowering.
    """
    chosen = _options(matmul_precision=matmul_precision, numerics=numerics)
    return _lowered(model, inputs, chosen)[0]


def _options(**given: str | None) -> options.Options:
    return options.parse({k: v for k, v in given.items() if v is not None}, None)


def _lowered(model: nn.Module, inputs: Inputs, chosen: options.Options) -> tuple[Lowered, Graph]:
    """The step as StableHLO, and the graph that it was lowered of."""
    pjrt.device("cpu")
    context = Context("training step", WayIn.TPU_COST, target_of(chosen, "tpu"))
    step, aliases = trace(model, inputs, context)
    return lower(step, context, aliases=aliases), step


def trace(
    model: nn.Module,
    inputs: Inputs,
    context: Context,
    *,
    learning_rate: float = 0.1,
    momentum: float = 0.9,
) -> tuple[Graph, dict[int, int]]:
    """One step of `model(*inputs)`, up to its lowering: a graph that returns loss and new states.

    Its arguments are parameters, buffers, a momentum for each parameter, and the inputs; parameters
    that share a tensor are one. The dictionary maps positions of arguments to those of the results
    that replace them.

    Raises:
        CompileError: the step cannot be traced as one program.
        UnsupportedOp: an op cannot be lowered.
    """
    names_of_inputs = tuple(inputs) if isinstance(inputs, Mapping) else None
    inputs = tuple(inputs.values()) if isinstance(inputs, Mapping) else tuple(inputs)
    with _errors_of(model):
        captured = aot.capture_module(_Loss(model, names_of_inputs), inputs)
    pipeline.run(Stage.DYNAMO, captured, context)
    parameters, buffers = dict(captured.named_parameters()), dict(captured.named_buffers())
    names, many, states = [*parameters, *buffers], len(parameters), len(parameters) + len(buffers)

    def step(*arguments: Tensor) -> list[Tensor | None]:
        old, velocities = arguments[:many], arguments[states : states + many]
        with torch.enable_grad():
            leaves = [parameter.detach().requires_grad_() for parameter in old]
            new_buffers = [buffer.clone() for buffer in arguments[many:states]]
            tensors = dict(zip(names, [*leaves, *new_buffers], strict=True))
            loss = torch.func.functional_call(captured, tensors, arguments[states + many :])
            _require_scalar(loss)
        gradients = torch.autograd.grad(loss, leaves, allow_unused=True)
        pairs = zip(velocities, gradients, strict=True)
        moved = [None if g is None else v * momentum + g for v, g in pairs]
        pairs = zip(old, moved, strict=True)
        new = [None if v is None else p - v * learning_rate for p, v in pairs]
        return [loss.detach(), *new, *new_buffers, *moved]

    own = [*parameters.values(), *buffers.values()]
    momenta = [torch.empty_like(parameter) for parameter in parameters.values()]
    with _errors_of(model):
        exported = aot.export(step, [*own, *momenta, *inputs], traced_decompositions())
    pipeline.run(Stage.JOINT, exported, context)
    aliases = _return_what_changes(exported.graph)
    pipeline.run(Stage.ATEN, exported, context)
    pipeline.run(Stage.STATIC, exported.graph, context)
    unsupported.refuse(context.lifted.unsupported)
    return exported.graph, aliases


class _Loss(nn.Module):
    """The loss of a model, whose arguments have the names, if any."""

    def __init__(self, model: nn.Module, names: Sequence[str] | None) -> None:
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *inputs: Tensor) -> Any:
        if self.names is None:
            result = self.model(*inputs)
        else:
            result = self.model(**dict(zip(self.names, inputs, strict=True)))
        if isinstance(result, Mapping):
            return result["loss"]
        return result[0] if isinstance(result, tuple) else result


def _require_scalar(loss: Any) -> None:
    if not isinstance(loss, Tensor) or loss.numel() != 1 or not loss.requires_grad:
        what = f"a tensor of shape {list(loss.shape)}" if isinstance(loss, Tensor) else repr(loss)
        if isinstance(loss, Tensor) and not loss.requires_grad:
            what += " without a gradient"
        raise CompileError(f"A training step needs a loss of one element; the model gives {what}.")


@contextmanager
def _errors_of(model: nn.Module) -> Iterator[None]:
    """What PyTorch raises within becomes an error of ours."""
    try:
        yield
    except XlaDynamoError:
        raise
    except Exception as error:
        reason = " ".join(str(error).partition("\n\n")[0].split())
        raise CompileError(
            f"The training step of {type(model).__name__} cannot be traced as one program: "
            f"{type(error).__name__}: {reason}"
        ) from error


def _return_what_changes(graph: Graph) -> dict[int, int]:
    """Drop from the new states those that are the old ones; the positions of the others."""
    loss, *states = fx.results(graph)
    kept: dict[int, Node] = {}
    for at, (old, new) in enumerate(zip(fx.placeholders(graph), states, strict=False)):
        if new is not None and (new.target, new.args) != (aten.clone.default, (old,)):
            kept[at] = new
    graph.output_node().args = ((loss, *kept.values()),)
    edit.drop_unused(graph)
    return {at: position for position, at in enumerate(kept, start=1)}
