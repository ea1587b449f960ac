"""check knows every name of the namespace, and looks into it rather than into a list."""

from __future__ import annotations

import ast

import pytest

from tests.compat import names as listed
from xla_dynamo.check import names
from xla_dynamo.check.findings import State
from xla_dynamo.compat.namespace import finder, operators

NAMES = [f"{name.module}.{name.name}" for name in listed.read()]
MISSING = {
    "torch_xla.core.functions.nms",
    "torch_xla.core.xla_op_registry.register",
    "torch_xla.distributed.xla_dist.DistributedExecutor",
    "torch_xla.distributed.xla_dist.get_args_parser",
    "torch_xla.distributed.xla_dist.main",
    "torch_xla.distributed.xla_dist.resolve_and_execute",
    "torch_xla.experimental.plugins.register_plugin",
    "torch_xla.experimental.stablehlo_custom_call.stablehlo_custom_call",
    "torch_xla.tf_saved_model_integration.save_torch_module_as_tf_saved_model",
    "torch_xla._XLAC._run_cached_graph",
}


def test_every_name_is_known() -> None:
    assert [name for name in NAMES if not names.exists(name)] == []
    verdicts = {name: names.judge(name) for name in NAMES}
    assert {name for name, v in verdicts.items() if v.state is State.MISSING} == MISSING
    for verdict in verdicts.values():
        assert verdict.state is State.WORKS or (verdict.why.endswith(".") and verdict.remedy)


def test_every_module_and_op_is_known() -> None:
    every = [*finder._ALIASES, *(f"torch.ops.xla.{s.partition('(')[0]}" for s in operators.OPS)]
    assert [name for name in every if not names.exists(name)] == []


@pytest.mark.parametrize(
    ("name", "why", "remedy"),
    [
        ("torch_xla.core.xla_model.xla_devise", "has no xla_devise", "is xla_device meant?"),
        ("torch_xla.frobnicate.x", "torch_xla has no frobnicate", "report it"),
        ("torch_xla._XLAC._xla_no", "no stand-in", "report it"),
        ("torch_xla.core.xla_builder.Op", "It is not here.", "call_jax"),
        ("torch_xla.experimental.custom_kernel.my_kernel", "not here.", "call_jax"),
        ("torch.ops.xla.nope", "no op 'nope'", "report it"),
        ("torch_xla.core.functions.nms", "It is not here.", "torchvision"),
    ],
)
def test_what_is_missing_says_what_to_do(name: str, why: str, remedy: str) -> None:
    verdict = names.judge(name)
    assert verdict.state is State.MISSING
    assert why in verdict.why
    assert remedy in verdict.remedy


def test_attributes_of_classes_are_not_judged() -> None:
    assert names.judge("torch_xla.core.xla_model.RateTracker.rate").state is State.WORKS


def test_a_name_is_judged_wherever_it_is_found() -> None:
    """Modules that were renamed, and functions that packages repeat, are the same objects."""
    for module in ("torch_xla.distributed.spmd", "torch_xla.distributed.spmd.xla_sharding"):
        assert names.judge(f"{module}.enable_manual_sharding").state is State.DIFFERS
    call = ast.parse("f(fn, nprocs=8)", mode="eval").body
    assert isinstance(call, ast.Call)
    spawn = "torch_xla_py.xla_multiprocessing.spawn"
    assert names.judge(spawn, call).state is State.DIFFERS
    assert names.judge(spawn).state is State.WORKS
