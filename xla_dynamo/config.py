"""Environment variables -> one frozen dataclass, read once.

Every variable has a field, a default and a legal set; a wrong value is an error that says so.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from .errors import OptionError

# The spellings of torch_xla's PJRT_DEVICE and of JAX.
_PLATFORMS = {"cpu": "cpu", "tpu": "tpu", "cuda": "cuda", "gpu": "cuda", "rocm": "rocm"}


@dataclass(frozen=True)
class Config:
    """Process-wide settings.

    platform: PJRT platform to run on ("cpu", "tpu", "cuda" or a plug-in's name), or None to take
        an accelerator if this machine has one, else the CPU. XLA_DYNAMO_PLATFORM or PJRT_DEVICE.
    dump: folder that receives every stage of every compiled graph, or None. XLA_DYNAMO_DUMP.
    cache_dir: folder of compiled executables, or None for no disk cache. XLA_DYNAMO_CACHE_DIR
        ("0" turns it off).
    cache_bytes: bound on that folder's size in bytes; the oldest entries go first.
        XLA_DYNAMO_CACHE_BYTES.
    cache_trust: whose executables are run: "own", this user's and root's that nobody else may write
        to, or "folder", all in it, where users share one. XLA_DYNAMO_CACHE_TRUST.
    compile_notice: seconds after which a compile that is not done is shown on stderr; 0 for never.
        XLA_DYNAMO_COMPILE_NOTICE.
    max_executables: executables kept per graph before the least recently used is dropped.
        XLA_DYNAMO_MAX_EXECUTABLES.
    recompile_warning: number of executables of one graph at which a warning says what changes.
        XLA_DYNAMO_RECOMPILE_WARNING.
    strict: whether a bug in a lowering is an error, as in xla_dynamo's own tests; otherwise
        another way is taken, and a warning says so. XLA_DYNAMO_STRICT ("1" or "0").
    keep_memory: whether freed host memory stays with the process for the next step, rather than
        going back to the kernel. XLA_DYNAMO_KEEP_MEMORY ("1" or "0").
    bind_threads: whether XLA:CPU's threads stay on a core each, where there are up to four.
        XLA_DYNAMO_BIND_THREADS ("1" or "0").
    numerics: the default of options={"numerics": ...}, also for the lazy device: "eager" or "xla".
        XLA_DYNAMO_NUMERICS.
    cpu_kernels: the default of options={"cpu_kernels": ...}, also for the lazy device: "torch" or
        "xla". XLA_DYNAMO_CPU_KERNELS.
    attention: the default of options={"attention": ...}, also for the lazy device: "auto", "kernel"
        or "xla". XLA_DYNAMO_ATTENTION.
    random_bits: the default of options={"random_bits": ...}, also for the lazy device: "threefry"
        or "rbg". XLA_DYNAMO_RANDOM_BITS.
    trial_compile: the default of options={"trial_compile": ...}, also for the lazy device:
        "unproved", "always" or "never". XLA_DYNAMO_TRIAL_COMPILE.
    cpu_tensors: what an op of the lazy device does with a CPU tensor beside one of its own:
        "error", or "torch_xla" to upload it where torch_xla 2.9 does. XLA_DYNAMO_CPU_TENSORS.
    bucket: the default of options={"bucket": ...}, as text: "powers_of_two", "64", "32,128", or ""
        for exact sizes. XLA_DYNAMO_BUCKET.
    patience: seconds that a replica waits for the others, in a collective or a rendezvous, before
        that is an error. XLA_DYNAMO_PATIENCE.
    """

    platform: str | None
    dump: Path | None
    cache_dir: Path | None
    cache_bytes: int
    cache_trust: str
    compile_notice: int
    max_executables: int
    recompile_warning: int
    strict: bool
    keep_memory: bool
    bind_threads: bool
    numerics: str
    cpu_kernels: str
    attention: str
    random_bits: str
    trial_compile: str
    cpu_tensors: str
    patience: int
    bucket: str


def from_environment(environment: Mapping[str, str]) -> Config:
    """Read the settings from `environment`.

    Raises:
        OptionError: a number is not a positive integer, or a switch is neither "0" nor "1", or a
            choice is none of those it lists.
    """
    platform = environment.get("XLA_DYNAMO_PLATFORM") or environment.get("PJRT_DEVICE")
    dump = environment.get("XLA_DYNAMO_DUMP")
    cache_dir = environment.get("XLA_DYNAMO_CACHE_DIR") or platformdirs.user_cache_dir("xla_dynamo")
    return Config(
        platform=_PLATFORMS.get(platform.lower(), platform.lower()) if platform else None,
        dump=Path(dump) if dump else None,
        cache_dir=None if cache_dir == "0" else Path(cache_dir),
        cache_bytes=_positive(environment, "XLA_DYNAMO_CACHE_BYTES", 2**32),
        cache_trust=_choice(environment, "XLA_DYNAMO_CACHE_TRUST", "own", "folder"),
        compile_notice=_natural(environment, "XLA_DYNAMO_COMPILE_NOTICE", 2),
        max_executables=_positive(environment, "XLA_DYNAMO_MAX_EXECUTABLES", 64),
        recompile_warning=_positive(environment, "XLA_DYNAMO_RECOMPILE_WARNING", 8),
        strict=_switch(environment, "XLA_DYNAMO_STRICT", default="0"),
        keep_memory=_switch(environment, "XLA_DYNAMO_KEEP_MEMORY", default="1"),
        bind_threads=_switch(environment, "XLA_DYNAMO_BIND_THREADS", default="1"),
        numerics=_choice(environment, "XLA_DYNAMO_NUMERICS", "eager", "xla"),
        cpu_kernels=_choice(environment, "XLA_DYNAMO_CPU_KERNELS", "torch", "xla"),
        attention=_choice(environment, "XLA_DYNAMO_ATTENTION", "auto", "kernel", "xla"),
        random_bits=_choice(environment, "XLA_DYNAMO_RANDOM_BITS", "threefry", "rbg"),
        trial_compile=_choice(
            environment, "XLA_DYNAMO_TRIAL_COMPILE", "unproved", "always", "never"
        ),
        cpu_tensors=_choice(environment, "XLA_DYNAMO_CPU_TENSORS", "error", "torch_xla"),
        patience=_positive(environment, "XLA_DYNAMO_PATIENCE", 300),
        bucket=environment.get("XLA_DYNAMO_BUCKET", ""),
    )


@functools.cache
def config() -> Config:
    """The settings of this process, read from os.environ at the first call."""
    return from_environment(os.environ)


def _switch(environment: Mapping[str, str], name: str, default: str) -> bool:
    text = environment.get(name) or default
    if text not in ("0", "1"):
        raise OptionError(f"{name}={text!r} is neither 0 nor 1; unset it for {default}.")
    return text == "1"


def _choice(environment: Mapping[str, str], name: str, default: str, *others: str) -> str:
    text = environment.get(name) or default
    if text not in (default, *others):
        legal = " nor ".join(map(repr, (default, *others)))
        raise OptionError(f"{name}={text!r} is neither {legal}.")
    return text


def _natural(environment: Mapping[str, str], name: str, default: int) -> int:
    return 0 if environment.get(name) == "0" else _positive(environment, name, default)


def _positive(environment: Mapping[str, str], name: str, default: int) -> int:
    text = environment.get(name)
    if not text:
        return default
    if not text.isdecimal() or int(text) == 0:
        raise OptionError(f"{name}={text!r} is not a positive integer; unset it for {default}.")
    return int(text)
