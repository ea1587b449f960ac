"""Contexts serve for many programs, one for each thread, until they hold much."""

from __future__ import annotations

import threading

import pytest
import torch

from tests.backend.graphs import named, traced
from xla_dynamo.backend import jax_adapter
from xla_dynamo.backend.lowering import contexts, importer, linker
from xla_dynamo.backend.lowering.lower import lower_graph
from xla_dynamo.backend.lowering.registry import Target

pytestmark = pytest.mark.spine
X = torch.ones(2, 3)
CPU = Target("cpu")


def test_one_is_made_for_a_thread() -> None:
    made = contexts.OfThread(object)
    others: list[object] = []
    thread = threading.Thread(target=lambda: others.extend([made.get(), made.get()]))
    thread.start()
    thread.join()
    assert made.get() is made.get()
    assert others[0] is others[1]
    assert others[0] is not made.get()


def test_after_many_bytes_or_a_failure_another_is_made() -> None:
    made = contexts.OfThread(object, most_bytes=100)
    first = made.get()
    made.count(100)
    assert made.get() is first
    made.count(1)
    second = made.get()
    assert second is not first
    made.count(100)
    assert made.get() is second
    made.drop()
    assert made.get() is not second


def test_programs_share_the_contexts_of_both_sides() -> None:
    one = importer.import_graph(traced(lambda x: x + 1, X).graph, {})
    other = importer.import_graph(traced(lambda x: x * 2, X).graph, {})
    assert one.module.context is other.module.context
    # The first is lowered after the second has come.
    assert importer.to_stablehlo(other, linker.stablehlo_version())
    assert importer.to_stablehlo(one, linker.stablehlo_version())
    modules = [lower_graph(traced(lambda x: x.exp(), X).graph, CPU).module for _ in range(2)]
    shared = modules[0].context is modules[1].context
    assert shared == jax_adapter.SHARES_CONTEXTS


def test_after_a_refusal_programs_are_lowered_in_a_new_context() -> None:
    first = importer.import_graph(traced(lambda x: x + 1, X).graph, {})
    refused = importer.import_graph(traced(lambda x: torch.linalg.qr(x)[0], X).graph, {})
    with pytest.raises(importer.ImportRefused, match="linalg_qr"):
        importer.to_stablehlo(refused, linker.stablehlo_version())
    graph = traced(lambda x: x.flip(0) + 1, X).graph
    after = importer.import_graph(graph, {named(graph, "flip"): "reverse"})
    assert after.module.context is not first.module.context
    assert importer.to_stablehlo(after, linker.stablehlo_version())
