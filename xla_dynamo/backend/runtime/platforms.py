"""Which PJRT platform programs run on where none is named; without a need for jax."""

from __future__ import annotations

import importlib.util
import os
import re
import sys

from xla_dynamo.config import config

from . import tpu_chips


def default_platform() -> str:
    """The platform that programs run on: the configured one, else an accelerator, else "cpu"."""
    chosen = config().platform or _of_jax()
    if chosen:
        return chosen.split(",")[0]
    if tpu_chips.here().count:
        return "tpu"
    return "cuda" if os.path.exists("/dev/nvidia0") and _has_cuda_plugin() else "cpu"


_DEVICES = re.compile(r"--xla_force_host_platform_device_count=(\d+)")


def cpu_devices_of_each(default: str = "1") -> int:
    """How many devices of XLA:CPU each of several processes has: XLA's own flag says so.

    default: what does without the flag.
    """
    told = _DEVICES.findall(os.environ.get("XLA_FLAGS", ""))
    return max(int(told[-1] if told else default), 1)


def _of_jax() -> str | None:
    """The platforms that the user has told JAX to use, if any: "tpu,cpu"."""
    config_of_jax = getattr(sys.modules.get("jax"), "config", None)
    return getattr(config_of_jax, "jax_platforms", None) or os.environ.get("JAX_PLATFORMS")


def _has_cuda_plugin() -> bool:
    return any(importlib.util.find_spec(f"jax_cuda{n}_plugin") for n in (12, 13))
