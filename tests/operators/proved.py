"""The ops that libtpu is known to compile: `python -m tests.operators.proved`.

The cases that the record calls right behind the door for TPUs are lowered again, the same samples,
without libtpu, which has compiled these programs, and so are the networks of benchmarks/tpu.py.
Then libtpu compiles steps with the kernels of attention, and those of the models of tests/models
that have other ops (`--models`: these alone, added to the table). Ops and dtypes are written to the
table of `lowering.proved`. A quarter of an hour.
"""

from __future__ import annotations

import collections
import contextlib
import gc
import json
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch.fx import Graph
from torch.nn import functional as F

from benchmarks import torch_networks
from benchmarks import tpu as tpu_costs
from tests import codegen, quick_torch
from tests.models.training import build
from tests.models.zoo import ZOO
from xla_dynamo.backend.executable import compile as compiling
from xla_dynamo.backend.lowering import proved
from xla_dynamo.backend.lowering.lower import Lowered
from xla_dynamo.backend.lowering.nodes import is_op
from xla_dynamo.backend.runtime import topology
from xla_dynamo.backend.tpu_cost import lower_training_step
from xla_dynamo.errors import XlaDynamoError

from . import record, values
from .cases import DIRECTIONS, DTYPES, Case, cases, operators, recorded_samples, samples
from .tpu_door import TOPOLOGY, tpu

Table = Mapping[str, set[str]]


def main() -> None:
    os.environ["XLA_DYNAMO_CACHE_DIR"] = "0"
    codegen.make_quick()
    quick_torch.make_quick()
    warnings.simplefilter("ignore")
    found: Table = collections.defaultdict(set)
    if "--models" in sys.argv:
        load(found)
    else:
        of_cases(found)
    of_networks(found)
    of_kernels(found)
    of_models(found)
    save(found)


def of_cases(found: Table) -> None:
    chosen = right_cases()
    with lowered_only(found):
        for number, case in enumerate(chosen):
            lower(case)
            torch.compiler.reset()
            if number % 50 == 0:
                gc.collect()
                print(f"{number} of {len(chosen)} cases, {len(found)} ops", file=sys.stderr)


def of_networks(found: Table) -> None:
    for name in torch_networks.NETWORKS:
        for dtype in ("bfloat16", "autocast"):
            model, batch = tpu_costs.build(tpu_costs.PROBLEMS[name](), dtype)
            mixed = tpu_costs.Mixed(model) if dtype == "autocast" else model
            add(found, lowered_step(mixed, batch)[1])


class Attention(nn.Module):
    """One form of attention that is a kernel, of heads that a layer makes."""

    def __init__(self, form: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.layer, self.form = nn.Linear(32, 2 * 128), form

    def forward(self, x: Tensor) -> Tensor:
        heads = self.layer(x).unflatten(-1, (2, 128)).transpose(1, 2)
        return self.form(heads).float().square().mean()


def _dropped(x: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(x, x, x, dropout_p=0.1, is_causal=True)


def _capped(x: Tensor) -> Tensor:
    mask = torch.ones(x.shape[2], x.shape[2], dtype=torch.bool, device=x.device).tril()
    return torch.ops.xla_dynamo.capped_attention(x, x, x, mask[None, None], 0.1, 30.0)[0]


def _paged(x: Tensor) -> Tensor:
    """Each position is a sequence, and has all pages."""
    q, pages = x[0].transpose(0, 1).detach(), x[0].unflatten(1, (-1, 16)).detach()
    table = torch.arange(pages.shape[1], dtype=torch.int32).expand(q.shape[0], -1)
    lengths = torch.full((q.shape[0],), x.shape[2], dtype=torch.int32)
    paged = torch.ops.xla_dynamo.paged_attention(q, pages, pages, lengths, table, 8, None, None)
    return paged + x.mean()


def of_kernels(found: Table) -> None:
    for form in (_dropped, _capped, _paged):
        for dtype in (torch.float32, torch.bfloat16):
            batch = [torch.randn(1, 512, 32, dtype=dtype)]
            lowered, graph = lowered_step(Attention(form).to(dtype), batch)
            if "@tpu_custom_call" not in lowered.stablehlo:
                raise AssertionError(f"{form.__name__} of {dtype} is no kernel")
            topology.compile(lowered.module, TOPOLOGY)
            add(found, graph)


def of_models(found: Table) -> None:
    for name, model in ZOO.items():
        try:
            lowered, graph = lowered_step(*build(model, torch.float32, model.dropout))
            if all(proved.dtypes(n) <= found[proved.name(n)] for n in filter(is_op, graph.nodes)):
                continue
            topology.compile(lowered.module, TOPOLOGY)
        except XlaDynamoError as error:
            print(f"{name}: {error}", file=sys.stderr)
            continue
        add(found, graph)
        print(f"{name} is compiled, {len(found)} ops", file=sys.stderr)


def lowered_step(model: nn.Module, batch: Sequence[Tensor]) -> tuple[Lowered, Graph]:
    """A training step, and its graph."""
    graphs: list[Graph] = []
    lower_graph = compiling.lower_graph

    def keep(graph: Graph, *args: Any, **kwargs: Any) -> Lowered:
        graphs.append(graph)
        return lower_graph(graph, *args, **kwargs)

    with mock.patch.object(compiling, "lower_graph", keep):
        lowered = lower_training_step(model, batch, matmul_precision="medium")
    return lowered, graphs[-1]


def add(found: Table, graph: Graph) -> None:
    for node in filter(is_op, graph.nodes):
        found[proved.name(node)].update(proved.dtypes(node))


def right_cases() -> list[Case]:
    rows = record.load()
    return [
        case
        for case in cases(DTYPES, DIRECTIONS)
        if case.op in rows and rows[case.op].outcome(f"tpu {case.direction}", case.dtype) == "right"
    ]


@contextlib.contextmanager
def lowered_only(found: Table) -> Iterator[None]:
    """What is compiled behind the door within is put down, and libtpu is not asked."""
    lower_graph = compiling.lower_graph

    def lowered(graph: Graph, *args: Any, **kwargs: Any) -> Any:
        done = lower_graph(graph, *args, **kwargs)
        add(found, graph)
        return done

    with (
        mock.patch.object(topology, "compile"),
        mock.patch.object(compiling, "lower_graph", lowered),
    ):
        yield


def lower(case: Case) -> None:
    """Run the samples of a case, as the sweep does: together, or each alone if that fails."""
    op, chosen = operators()[case.op].op, samples(case, recorded_samples(case, "tpu"))
    groups = [chosen, *([sample] for sample in chosen)]
    _all_or_each(getattr(values, case.direction), op, groups)


def _all_or_each(run: Any, op: Any, groups: Sequence[Sequence[Any]]) -> None:
    whole, *each = groups
    try:
        run(tpu(values.caller(op)), whole)
    except Exception:
        for alone in each:
            with contextlib.suppress(Exception):  # eager refuses some samples, which do not count
                run(tpu(values.caller(op)), alone)


def load(found: Table) -> None:
    for op, of in json.loads(proved.FILES["tpu"].read_text()).items():
        found[op].update(of.split())


def save(found: Table) -> None:
    kept = {op: " ".join(sorted(dtypes)) for op, dtypes in sorted(found.items()) if dtypes}
    lines = (f"{json.dumps(op)}: {json.dumps(of)}" for op, of in kept.items())
    proved.FILES["tpu"].write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
