"""Names of torch_xla that are here and differ, or have no effect: why, and what to do.

docs/legacy.md tells the same at length; tests/check/test_table.py holds the two together, and every
name to the namespace. Names that are not available say so where they are (compat's `Absent`).
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass

from .findings import State


@dataclass(frozen=True)
class Given:
    """Whether a call passes an argument, by name or position, and not as None, False or `but`."""

    keyword: str
    position: int | None = None
    above: int | None = None  # a literal number counts above this one only
    but: float | None = None

    def __call__(self, call: ast.Call | None) -> bool:
        value = None if call is None else self._value(call)
        if not isinstance(value, ast.Constant):
            return value is not None
        if self.above is not None and isinstance(value.value, int):
            return value.value > self.above
        return value.value not in (None, False, self.but)

    def _value(self, call: ast.Call) -> ast.expr | None:
        for keyword in call.keywords:
            if keyword.arg == self.keyword:
                return keyword.value
        positional = self.position is not None and self.position < len(call.args)
        return call.args[self.position or 0] if positional else None


def used(call: ast.Call | None) -> bool:
    """Whatever the arguments are."""
    return True


@dataclass(frozen=True)
class Difference:
    """A name as torch_xla's documentation has it; `when` it is called so, it differs."""

    name: str
    why: str
    remedy: str
    when: Callable[[ast.Call | None], bool] = used
    state: State = State.DIFFERS


def _no_effect(why: str, remedy: str, *names: str) -> list[Difference]:
    return [Difference(name, why, remedy, state=State.NO_EFFECT) for name in names]


_XM = "torch_xla.core.xla_model"
_XMP = "torch_xla.distributed.xla_multiprocessing"
_XS = "torch_xla.distributed.spmd"
_XR = "torch_xla.runtime"
_EXPERIMENTAL = "torch_xla.experimental"
_NONE = "nothing to change; the line may go"

_REPLICAS = [
    Difference(
        f"{_XMP}.spawn",
        "On CPUs it starts that many processes, a replica each; on TPUs as many as there are "
        "chips, and says so.",
        "leave nprocs out for all chips (CPU_NUM_DEVICES replicas on a CPU)",
        Given("nprocs", 2, above=1),
    ),
    *(
        Difference(
            f"{_XM}.{name}",
            "It is a message by way of the host, no part of the step's program.",
            "where all replicas send at once, xm.collective_permute is a part of it",
        )
        for name in ("send", "recv")
    ),
    Difference(
        f"{_XM}.xla_device",
        "A number beyond the devices of this host is folded onto those, with a warning.",
        "xm.xla_device(), without a number, is this replica's device",
        Given("n", 0),
    ),
    *(
        Difference(
            f"{module}.all_reduce",
            "scale counts with one replica, too, as documented; torch_xla left it out there.",
            "scale=1.0 / xr.world_size() is right with any number of replicas",
            Given("scale", 2, but=1.0),
        )
        for module in (_XM, "torch_xla.core.functions")
    ),
]

_SPMD = [
    Difference(
        f"{_XS}.enable_manual_sharding",
        "Gradients flow through the block; torch_xla drops them.",
        "torch.no_grad() around a block that needs none",
    ),
    Difference(
        f"{_XR}.use_spmd",
        "auto=True splits batches and large parameters by a fixed rule: nothing searches for the "
        "best split.",
        "mark the tensors (xs.mark_sharding) for another one",
        Given("auto", 0),
    ),
    *_no_effect(
        "Linear's own forward is right, and XLA orders the communication.",
        _NONE,
        f"{_XS}.xla_sharding.apply_xla_patch_to_nn_linear",
        f"{_XS}.apply_backward_optimization_barrier",
    ),
]

_ONE_OP_AFTER_THE_OTHER = [
    *(
        Difference(
            f"{_EXPERIMENTAL}.{name}",
            "The values are the same, and the loop is unrolled: a long one compiles long.",
            "nothing to change; for one loop of XLA, jax.lax.scan in xla_dynamo.jax_function",
        )
        for name in ("scan.scan", "scan_layers.scan_layers", "fori_loop.fori_loop")
    ),
    Difference(
        f"{_EXPERIMENTAL}.fori_loop.while_loop",
        "The host runs the loop: each test of the condition ends a program and waits for it.",
        "for a loop on the device, jax.lax.while_loop in xla_dynamo.jax_function",
    ),
    *(
        Difference(
            f"{_EXPERIMENTAL}.custom_kernel.{name}",
            "The values are the same, by ordinary ops: this TPU kernel is not here.",
            "for a kernel of your own, xla_dynamo.jax_function takes one in Pallas",
        )
        for name in (
            "multi_queries_paged_attention",
            "gmm",
            "tgmm",
            "quantized_matmul_int8",
        )
    ),
    Difference(
        "torch_xla.core.xla_builder.call_jax",
        "It runs when it is called, which ends the program before it; no gradient flows.",
        "xla_dynamo.jax_function is part of the step's program, and has gradients",
    ),
]

_FILES = [
    *(
        Difference(
            f"torch_xla.utils.gcsfs.{name}",
            "It reads and writes local files; a path that begins with gs:// is an error.",
            "take the package gcsfs or google-cloud-storage for gs://, or mount the bucket",
        )
        for name in ("open", "read", "write", "list")
    ),
    Difference(
        f"{_XR}.initialize_cache",
        "readonly has no effect: new programs are added to the folder, and a warning says so.",
        "copy the folder if it must stay as it is",
        Given("readonly", 1),
    ),
]

_HINTS = [
    *_no_effect(
        "A trace that repeats is found again by itself.",
        "nothing to change; the function is called as it is",
        f"{_EXPERIMENTAL}.assume_pure.assume_pure",
        f"{_EXPERIMENTAL}.assume_pure.assume_pure_torch",
        f"{_EXPERIMENTAL}.assume_pure.PureModule",
    ),
    *_no_effect(
        "Programs carry no marks around patterns.",
        _NONE,
        f"{_EXPERIMENTAL}.mark_pattern_utils.StableHLOCompositeBuilder",
    ),
    *_no_effect(
        "XLA decides what lies where, and updated tensors reuse their memory by themselves.",
        _NONE,
        f"{_EXPERIMENTAL}.stablehlo_custom_call.place_to_host",
        f"{_EXPERIMENTAL}.stablehlo_custom_call.place_to_device",
        "torch_xla.utils.buffer_donor_context.alias_with_buffer_donor_config",
    ),
    *_no_effect(
        "A step is one program; XLA reorders nothing across its ends.",
        _NONE,
        f"{_XM}.optimization_barrier_",
    ),
    *_no_effect(
        "JAX finds plug-ins by itself.",
        _NONE,
        f"{_EXPERIMENTAL}.plugins.use_dynamic_plugins",
        f"{_EXPERIMENTAL}.plugins.register_installed_plugins",
        f"{_EXPERIMENTAL}.custom_kernel.jax_import_guard",
    ),
    *_no_effect(
        "Processes and devices come together when the first device is used.",
        _NONE,
        "torch_xla._XLAC._xla_set_replication_devices",
        "torch_xla._XLAC._ensure_xla_coordinator_initialized",
        f"{_EXPERIMENTAL}.pjrt.initialize_multiprocess",
        f"{_EXPERIMENTAL}.pjrt.initialize_singleprocess",
        "torch_xla._internal.tpu.configure_topology",
    ),
]

DIFFERENCES = (*_REPLICAS, *_SPMD, *_ONE_OP_AFTER_THE_OTHER, *_FILES, *_HINTS)
