"""torch_xla's top level (2.x): devices, the barrier, steps; submodules by attribute."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

import xla_dynamo.compat
from xla_dynamo.compat.device import replica_process, step_barrier, torchrun
from xla_dynamo.compat.execution.sync import set_option as _set_option
from xla_dynamo.compat.recording import devices as xla_devices
from xla_dynamo.errors import NotAvailable

from ._step import compile as compile
from ._step import step as step
from .core import xla_model as _xla_model
from .stablehlo import save_as_stablehlo as save_as_stablehlo
from .stablehlo import save_torch_model_as_stablehlo as save_torch_model_as_stablehlo
from .version import __version__ as __version__

xla_dynamo.compat.install()

if torch.distributed.is_available():  # its backend "xla" is there without an import of its own
    from .distributed import xla_backend as _xla_backend  # noqa: F401


def device(index: int | None = None) -> torch.device:
    """Device `index`, which becomes the thread's default; without one, the default.

    Raises:
        IndexError: it does not exist.
    """
    return xla_devices.default() if index is None else xla_devices.set_default(index)


devices = xla_devices.devices
device_count = xla_devices.count
real_devices = _xla_model.xla_real_devices


def sync(wait: bool = False, reset_scope: bool = True) -> None:
    """End the step: launch what is pending, run step closures; with `wait`, until it is done."""
    step_barrier.mark_step(wait=wait)


manual_seed = _xla_model.set_rng_state


def set_custom_compile_options(options: Mapping[str, Any]) -> None:
    """Options of XLA's compiler for every program from now on; {} for none."""
    _set_option("compiler_options", dict(options) or None)


def launch(
    fn: Callable[..., Any],
    args: Sequence[Any] = (),
    start_method: str = "spawn",
    debug_single_process: bool = False,
) -> None:
    """Call fn(rank, *args) for each replica: see docs/distributed.md.

    They are those that torchrun has started, or a thread for each of their CPU devices; else, on a
    TPU, a process for each chip; else a thread for each of CPU_NUM_DEVICES. With
    `debug_single_process` it is called once, here.

    Raises:
        NotAvailable: several processes were started that do not know of each other.
        NotImplementedError: in SPMD mode.
    """
    from . import runtime
    from .distributed import xla_multiprocessing

    if runtime.is_spmd():
        raise NotImplementedError("launch function does not support SPMD at this time")
    gangs = None if debug_single_process else torchrun.begin_threads()
    if gangs is not None:
        replica_process.run_replicas(gangs, fn, *args)
        return
    started, size = int(os.environ.get("WORLD_SIZE") or 1), runtime.world_size()
    if started > 1 == size:
        raise NotAvailable(
            f"WORLD_SIZE is {started}, and this process is the only replica: each would train on "
            "its own. Start the processes by torchrun, which sets RANK, MASTER_ADDR and "
            "MASTER_PORT, too, and use no device before; or start one."
        )
    if size > 1:
        xla_multiprocessing.run_replica(fn, runtime.global_ordinal(), *args)
    elif debug_single_process or xla_devices.hardware() == "TPU":
        nprocs = 1 if debug_single_process else None
        xla_multiprocessing.spawn(fn, tuple(args), nprocs, start_method=start_method)
    else:
        xla_multiprocessing.spawn_threads(fn, tuple(args))
