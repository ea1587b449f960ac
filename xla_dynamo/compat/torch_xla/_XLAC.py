"""torch_xla._XLAC, once a C++ extension: the functions of it that programs call.

Also importable as `_XLAC`. Devices are strings here: "xla:0", or "CPU:0" for the hardware.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch

from xla_dynamo.backend.ops import tpu_calls
from xla_dynamo.backend.runtime import transfers
from xla_dynamo.backend.runtime.platforms import default_platform
from xla_dynamo.compat.device import step_barrier
from xla_dynamo.compat.device.torch_xla_module import _initialized  # noqa: F401
from xla_dynamo.compat.execution import auto_sharding, settings, sync
from xla_dynamo.compat.recording import devices, metrics, pending, seeds
from xla_dynamo.compat.reporting import ir_text, metrics_report
from xla_dynamo.compat.values.values import value_of
from xla_dynamo.errors import NotAvailable

from . import _sharding
from ._absent import Absent
from .core import _collectives, xla_model
from .core._transfer import to_cpu, to_device
from .experimental import eager_mode, is_eager_mode
from .runtime import (
    get_num_cached_compilation_graph,
    global_runtime_device_attributes,
    process_count,
    process_index,
    runtime_device_attributes,
)
from .version import __torch_gitrev__, __version__

Tensors = Sequence[torch.Tensor]
# torch_xla's names of the precision of float32 products -> torch's.
_PRECISIONS = {"default": "medium", "high": "high", "highest": "highest"}


def __getattr__(name: str) -> Any:
    raise AttributeError(
        f"torch_xla._XLAC.{name}: torch_xla's C++ extension is not here, and this name of it has "
        "no stand-in; look in the public modules torch_xla.core.xla_model and torch_xla.runtime"
    )


# Devices.


_xla_get_devices = xla_model.xla_real_devices
_xla_get_all_devices = _xla_get_runtime_devices = _xla_get_all_runtime_devices = _xla_get_devices
_xla_num_devices = _xla_num_global_devices = _xla_num_runtime_devices = devices.count
_xla_get_device_ordinal = devices.index_of


def _xla_real_devices(of: Sequence[devices.Named] = ()) -> list[str]:
    return xla_model.xla_real_devices(of or None)


def _xla_get_default_device() -> str:
    return str(devices.default())


def _xla_get_default_device_ordinal() -> int:
    return devices.default().index


def _xla_set_default_device(device: devices.Named) -> str:
    """Set the thread's default device; gives the one before."""
    before = str(devices.default())
    devices.set_default(device)
    return before


def _xla_get_device_hw_type(tensor: torch.Tensor) -> str:
    return devices.hardware()


def _xla_get_platform_version() -> str:
    return devices.client_device().client.platform_version


_xla_device_kind = xla_model.xla_device_kind
_xla_get_device_attributes = runtime_device_attributes
_xla_get_all_device_attributes = global_runtime_device_attributes
_xla_memory_info = xla_model.get_memory_info


def _xla_set_replication_devices(of: Sequence[str]) -> None:
    """Nothing: replicas of one program are not set up here."""


def _xla_get_replication_devices() -> list[str]:
    return []


_xla_get_num_processes = process_count
_xla_get_replication_devices_count = _xla_get_process_index = process_index


def _ensure_xla_coordinator_initialized(
    global_rank: int, world_size: int, master_addr: str, master_port: str = ""
) -> None:
    """Nothing: one process has nobody to coordinate."""


def _init_computation_client() -> None:
    devices.client_device(0)


def _xla_runtime_is_initialized() -> bool:
    return pending.runtime_is_used()


def _prepare_to_exit() -> None:
    """Nothing: jaxlib ends with the process."""


_init_xla_lazy_backend = _prepare_to_exit


def _get_git_revs() -> dict[str, str]:
    return {"xla": __version__, "torch": str(__torch_gitrev__)}


def _get_xla_tensor_dimension_size(tensor: torch.Tensor, dim: int) -> torch.Tensor:
    return torch.tensor(tensor.shape[dim], dtype=torch.int32, device=tensor.device)


# The barrier, transfers. Arguments have torch_xla's names; `devices` are those of one replica.

_Named = devices.Named
_index_of = devices.index_of


def _xla_step_marker(
    device: _Named = "", devices: Sequence[str] = (), wait: bool = True, reset_scope: bool = True
) -> None:
    step_barrier.launch(_index_of(device or None), wait=wait)
    metrics.count("MarkStep")


def _xla_sync_multi(
    tensors: Tensors, devices: Sequence[str] = (), wait: bool = True, sync_xla_data: bool = True
) -> None:
    step_barrier.sync(tensors, wait=wait)


def _xla_sync_live_tensors(
    device: _Named = "", devices: Sequence[str] = (), wait: bool = True
) -> None:
    step_barrier.launch(_index_of(device or None), wait=wait)


_xla_wait_device_ops = step_barrier.wait_for


def _xla_warm_up_cache(tensors: Tensors, devices: Sequence[str] = ()) -> None:
    step_barrier.sync(tensors)


def _xla_get_cpu_tensors(tensors: Tensors) -> list[torch.Tensor]:
    return to_cpu(list(tensors))


def _xla_tensors_from_aten(
    tensors: Tensors, of: Sequence[str], shardings: Any = None
) -> list[torch.Tensor]:
    return [to_device(t, device)[0] for t, device in zip(tensors, of, strict=True)]


def _check_tensor_need_materialization(tensors: Tensors) -> list[bool]:
    return [t.device.type == "xla" and value_of(t).array is None for t in tensors]


_check_device_tensor_need_materialization = _check_tensor_need_materialization


def _xla_get_tensor_id(tensor: torch.Tensor) -> int:
    """Equal for tensors that share memory, as tied weights do."""
    return tensor.untyped_storage()._cdata


_xla_get_tensor_view_alias_id = _xla_get_tensor_id


def _unsafe_buffer_pointer(tensor: torch.Tensor) -> int:
    return transfers.pointer(sync.materialize(value_of(tensor)))


# Random state, counters, settings.


def _xla_set_rng_seed(seed: int, device: devices.Named = "") -> None:
    seeds.set_state(devices.index_of(device or None), seed)


def _xla_get_rng_seed(device: devices.Named = "") -> int:
    return seeds.get_state(devices.index_of(device or None))


_clear_xla_counters = metrics_report.clear_counters
_clear_xla_metrics = metrics_report.clear_metrics
_get_executed_fallback_ops = metrics_report.executed_fallback_ops
_short_xla_metrics_report = metrics_report.short_metrics_report
_xla_counter_names = metrics_report.counter_names
_xla_counter_value = metrics_report.counter_value
_xla_get_num_cached_compilation_graph = get_num_cached_compilation_graph
_xla_increment_counter = metrics.count
_xla_metric_data = metrics_report.metric_data
_xla_metric_names = metrics_report.metric_names
_xla_metrics_report = metrics_report.metrics_report


def _xla_set_mat_mul_precision(precision: str) -> None:
    """Float32 products in float32 ("highest"), or in three ("high") or one bfloat16 passes.

    Raises:
        KeyError: another word.
    """
    sync.set_option("matmul_precision", _PRECISIONS[precision])


def _xla_get_mat_mul_precision() -> str:
    """What _xla_set_mat_mul_precision set, or torch.set_float32_matmul_precision; or the TPU's."""
    named = {torch_name: name for name, torch_name in _PRECISIONS.items()}
    return named[settings.matmul_precision()]


def _xla_set_use_full_mat_mul_precision(use_full_mat_mul_precision: bool = True) -> None:
    _xla_set_mat_mul_precision("highest" if use_full_mat_mul_precision else "default")


def _set_custom_compile_options(options: dict[str, Any]) -> None:
    sync.set_option("compiler_options", dict(options) or None)


_set_ir_debug = functools.partial(settings.set_flag, "ir_debug")
_get_ir_debug = functools.partial(settings.flag, "ir_debug")
_set_use_eager_mode = eager_mode
_get_use_eager_mode = is_eager_mode
_set_allow_execution = settings.allow_launches
_get_allow_execution = settings.launches_allowed


_set_current_graph_name = functools.partial(settings.set_flag, "graph_name")
_get_current_graph_name = functools.partial(settings.flag, "graph_name")


# Text of pending programs.


_get_xla_tensors_text = ir_text.text
_get_xla_tensors_dot = ir_text.dot
_get_xla_tensors_hlo = ir_text.hlo
_get_xla_tensor_debug_info = ir_text.debug_info
_get_graph_hash = ir_text.graph_hash  # 16 bytes that are equal for equal programs


def _get_stablehlo(tensors: Tensors, device: str = "", of: Sequence[str] = (), **_: Any) -> str:
    return ir_text.stablehlo(tensors)


# Shardings.


OpSharding = _sharding.OpSharding
_xla_mark_sharding = _sharding.mark
_xla_annotate_custom_sharding = _sharding.annotate
_xla_clear_sharding = _sharding.clear
_get_xla_op_sharding = _sharding.sharding_of
_get_xla_sharding_spec = _sharding.spec_of
_get_xla_sharding_specs = _sharding.specs_of
_get_xla_sharding_type = _sharding.type_of
_spmd_full_to_shard_shape = _sharding.to_shard
_spmd_shard_to_full_shape = _sharding.to_full
_xla_get_auto_sharding = auto_sharding.is_on
_global_tensor_from_cpu_shards = _sharding.from_cpu_shards


def _mark_manual_sharding(t: torch.Tensor, sharding: OpSharding) -> torch.Tensor:
    return _sharding.mark_as_shard(t)


def _xla_spmd_all_reduce(reduce_type: str, value: torch.Tensor, scale: float, groups: Any) -> Any:
    return _collectives.all_reduce(reduce_type, value, scale, groups)


def _xla_spmd_reduce_scatter(
    reduce_type: str, value: torch.Tensor, scale: float, dim: int, count: int, groups: Any
) -> Any:
    return _collectives.reduce_scatter(reduce_type, value, scale, dim, count, groups)


def _get_local_shards(tensors: Tensors) -> list[list[tuple[torch.Tensor, str]]]:
    return [_sharding.local_shards(t) for t in tensors]


def _get_local_shard_replica_and_indices(tensors: Tensors) -> list[list[tuple[int, Any]]]:
    return [_sharding.replicas_and_indices(t) for t in tensors]


_load_local_shards = _sharding.load_local_shards


_run_cached_graph = Absent("_XLAC._run_cached_graph", "use torch.compile(model, backend='openxla')")


def _xla_tpu_custom_call(
    inputs: Tensors,
    payload: str,
    output_shapes: Sequence[Sequence[int]],
    output_dtypes: Sequence[torch.dtype],
) -> list[torch.Tensor]:
    """The results of the kernel that trace_pallas gave as `payload`, part of the program on a TPU.

    Raises:
        NotAvailable: on another device.
    """
    if not inputs:
        raise RuntimeError("tpu_custom_call(): expected at least 1 input tensor.")
    if len(output_shapes) != len(output_dtypes):
        raise RuntimeError(
            "tpu_custom_call(): expected the given output shapes "
            f"(size={len(output_shapes)}) to be of the same size as the given output dtypes "
            f"(size={len(output_dtypes)})."
        )
    if inputs[0].device.type == "xla" and default_platform() != "tpu":
        raise NotAvailable(f"tpu_custom_call: {tpu_calls.REASON} {tpu_calls.REMEDY}")
    results = tpu_calls.as_text(output_shapes, output_dtypes)
    return torch.ops.xla_dynamo.tpu_custom_call(list(inputs), payload, results)
