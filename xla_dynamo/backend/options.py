"""torch.compile's `options=` and `mode=`, validated, as one frozen dataclass."""

from __future__ import annotations

import dataclasses
import difflib
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import torch

from xla_dynamo.config import config
from xla_dynamo.errors import OptionError

from . import buckets
from .buckets import Buckets

_LEGAL: Mapping[str, tuple[Any, ...]] = {
    "fallback": ("cpu", "error"),
    "matmul_precision": ("highest", "high", "medium"),
    "convolution_precision": ("", "highest", "high", "medium"),
    "numerics": ("eager", "xla"),
    "cpu_kernels": ("torch", "xla"),
    "attention": ("auto", "kernel", "xla"),
    "random_bits": ("threefry", "rbg"),
    "trial_compile": ("unproved", "always", "never"),
    "deterministic": (True, False),
    "disk_cache": (True, False),
}
# XLA launches a graph as one executable and autotunes anyway, so modes change nothing.
_MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")


@dataclass(frozen=True)
class Options:
    """What `torch.compile(model, backend="xla", options={...})` takes.

    Attributes:
        platform: PJRT platform to run on; default: see `xla_dynamo.config.Config.platform`.
        fallback: "cpu" runs an op that cannot be lowered in eager PyTorch on the CPU, counted and
            reported once; "error" raises `UnsupportedOp` instead.
        matmul_precision: "highest", "high" or "medium" for float32 products; default:
            torch.get_float32_matmul_precision() at compile time.
        convolution_precision: the same for float32 convolutions; default: matmul_precision where
            that is given; else on NVIDIA's GPUs what PyTorch does there, "medium" (TF32) unless
            torch.backends.cudnn.conv.fp32_precision is another, and elsewhere as for products.
        numerics: "eager" keeps XLA from rewriting floats as if they were real numbers; "xla" lets
            it, as JAX does: faster in places, other last digits, signs of zeros and overflows.
            Wrong results of XLA's compilers are mended in both. Default: XLA_DYNAMO_NUMERICS, or
            "eager".
        cpu_kernels: "torch" lets programs on the CPU call PyTorch's own kernels where those are
            faster; "xla" makes programs of XLA alone. Default: XLA_DYNAMO_CPU_KERNELS, or "torch".
        attention: on TPU and CUDA, "kernel" computes scaled_dot_product_attention by a kernel where
            there is one (on TPU not with dropout, float64 or float16; on CUDA in 16 bits, without
            dropout), "xla" by XLA's products; "auto" takes the kernel from 512 queries and keys on,
            on CUDA from 128. Default: XLA_DYNAMO_ATTENTION, or "auto".
        random_bits: "threefry" gives the same numbers on every device; "rbg" takes the device's own
            generator, as reproducible on one kind of device: on a TPU, dropout takes half the time.
            Default: XLA_DYNAMO_RANDOM_BITS, or "threefry".
        trial_compile: on TPUs, whose compiler ends the process on some programs, what is first
            compiled in another process, for as long as it takes: "unproved", programs with ops or
            dtypes that are not known to compile, "always" or "never". A program that would end the
            process is then a refused one. Default: XLA_DYNAMO_TRIAL_COMPILE, or "unproved".
        deterministic: bitwise the same from run to run, also where the device has faster
            nondeterministic kernels; default: torch.are_deterministic_algorithms_enabled().
        disk_cache: whether compiled executables are kept on disk.
        bucket: the sizes that programs are compiled for where sizes change, the others are padded
            to: "powers_of_two", "half_steps", an int, a list of sizes, or a function of a size;
            None compiles for each size. Default: XLA_DYNAMO_BUCKET, or None.
        max_executables: executables kept per graph; the least recently used is dropped.
        compiler_options: XLA's own options by name, such as {"xla_cpu_enable_fast_math": True}.
    """

    platform: str | None = None
    fallback: str = "cpu"
    matmul_precision: str = ""
    convolution_precision: str = ""
    numerics: str = "eager"
    cpu_kernels: str = "torch"
    attention: str = "auto"
    random_bits: str = "threefry"
    trial_compile: str = "unproved"
    deterministic: bool = False
    disk_cache: bool = True
    bucket: Buckets | None = None
    max_executables: int = 64
    compiler_options: Mapping[str, Any] = field(default_factory=dict)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "compiler_options": dict(self.compiler_options)}

    def xla_overrides(self, platform: str) -> dict[str, Any]:
        """The options for XLA's compiler on `platform`."""
        overrides = dict(self.compiler_options)
        if self.deterministic and platform in ("cuda", "gpu", "rocm"):
            overrides.setdefault("xla_gpu_deterministic_ops", True)
        return overrides


def parse(options: Mapping[str, Any] | None, mode: str | None) -> Options:
    """Validate what torch.compile was given and fill in PyTorch's own global settings.

    Raises:
        OptionError: unknown key or mode, or an illegal value; the text lists the legal ones.
    """
    if mode is not None and mode not in _MODES:
        raise OptionError(f"mode={mode!r} is unknown to backend 'xla'; legal: {', '.join(_MODES)}.")
    given = dict(options or {})
    names = [f.name for f in dataclasses.fields(Options)]
    for name in given:
        if name not in names:
            close = difflib.get_close_matches(name, names, 1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            raise OptionError(
                f"options[{name!r}] is unknown to backend 'xla'.{hint} Legal: {', '.join(names)}."
            )
    if "matmul_precision" in given:
        given.setdefault("convolution_precision", given["matmul_precision"])
    given.setdefault("matmul_precision", matmul_precision())
    given.setdefault("numerics", config().numerics)
    given.setdefault("cpu_kernels", config().cpu_kernels)
    given.setdefault("attention", config().attention)
    given.setdefault("random_bits", config().random_bits)
    given.setdefault("trial_compile", config().trial_compile)
    given.setdefault("deterministic", torch.are_deterministic_algorithms_enabled())
    given.setdefault("max_executables", config().max_executables)
    given["bucket"] = buckets.parse(given.get("bucket", config().bucket))
    given["compiler_options"] = MappingProxyType(dict(given.get("compiler_options", {})))
    parsed = Options(**given)
    for name, legal in _LEGAL.items():
        value = getattr(parsed, name)
        if value not in legal:
            legal_text = ", ".join(map(repr, legal))
            raise OptionError(f"options[{name!r}]={value!r} is not legal; legal: {legal_text}.")
    if not isinstance(parsed.max_executables, int) or parsed.max_executables < 1:
        raise OptionError(f"options['max_executables']={parsed.max_executables!r} is not >= 1.")
    return parsed


def matmul_precision() -> str:
    """torch.get_float32_matmul_precision(), which in torch 2.9 warns that it is old."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return torch.get_float32_matmul_precision()


def convolution_precision(options: Options, platform: str) -> str:
    """Of float32 convolutions on a platform: "highest", "high" or "medium"."""
    if options.convolution_precision:
        return options.convolution_precision
    return _of_cudnn() if platform == "cuda" else options.matmul_precision


def _of_cudnn() -> str:
    """PyTorch's setting for convolutions on NVIDIA's GPUs; "none" is that of the next."""
    backends: Any = torch.backends
    for setting in (backends.cudnn.conv, backends.cudnn, backends):
        if setting.fp32_precision != "none":
            return "medium" if setting.fp32_precision == "tf32" else "highest"
    return "highest"
