"""Collectives of a partitioned program are among its devices: XLA tells them apart by channels.

What rules say of replicas is then of partitions: there is one replica.
"""

from __future__ import annotations

from typing import Any

from jax.extend.mlir import ir

# Whether a collective says, besides its channel, that its groups are of devices.
_COLLECTIVES = {
    "stablehlo.all_reduce": True,
    "stablehlo.all_gather": True,
    "stablehlo.reduce_scatter": True,
    "stablehlo.all_to_all": False,
    "stablehlo.collective_permute": False,
}


def functions(module: ir.Module) -> list[Any]:
    return [op for op in module.body.operations if op.operation.name == "func.func"]


def symbol(function: Any) -> str:
    return ir.StringAttr(function.operation.attributes["sym_name"]).value


def callee(op: Any) -> str:
    return ir.FlatSymbolRefAttr(op.attributes["callee"]).value if op.name == "func.call" else ""


def number_collectives(module: ir.Module, main: Any) -> None:
    """Have the collectives be among devices; each gets a channel of its own."""
    by_name = {symbol(function): function for function in functions(module)}
    called: set[str] = set()
    for call in list(main.regions[0].blocks[0].operations):
        name = callee(call.operation)
        if not name:
            continue
        if name in called and _holds_collectives(by_name[name]):
            copy = by_name[name].operation.clone()
            copy.attributes["sym_name"] = ir.StringAttr.get(f"{name}.{len(called)}")
            module.body.append(copy)
            new = symbol(copy)
            call.operation.attributes["callee"] = ir.FlatSymbolRefAttr.get(new)
            name = new
        called.add(name)
    channel = 0
    for function in functions(module):
        for op in list(function.regions[0].blocks[0].operations):
            if op.operation.name in _COLLECTIVES:
                channel += 1
                _set_channel(op.operation, channel)
            elif op.operation.name == "stablehlo.replica_id":
                number = ir.Operation.create(
                    "stablehlo.partition_id",
                    results=[op.operation.results[0].type],
                    loc=op.operation.location,
                    ip=ir.InsertionPoint(op.operation),
                )
                op.operation.results[0].replace_all_uses_with(number.results[0])
                op.operation.erase()


def _holds_collectives(function: Any) -> bool:
    return any(op.operation.name in _COLLECTIVES for op in function.regions[0].blocks[0].operations)


def _set_channel(op: Any, channel: int) -> None:
    handle = f"#stablehlo.channel_handle<handle = {channel}, type = 1>"
    op.attributes["channel_handle"] = ir.Attribute.parse(handle)
    if _COLLECTIVES[op.name]:
        op.attributes["use_global_device_ids"] = ir.UnitAttr.get()
