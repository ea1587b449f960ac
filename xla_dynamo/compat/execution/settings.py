"""Settings that a script makes for the process: compiler options, flags, whether to launch."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from xla_dynamo.backend import options as backend_options
from xla_dynamo.backend.runtime.platforms import default_platform

_options: dict[str, Any] = {}
_flags: dict[str, Any] = {"graph_name": "", "ir_debug": False}
# Why no program may be launched now, if none may: the text of the error.
launch_refusal: str | None = None


def options() -> Mapping[str, Any]:
    """Options for every program compiled from now on, as torch.compile takes them."""
    return _options


def set_option(name: str, value: Any) -> bool:
    """Remember an option of `xla_dynamo.backend.options.Options`, None: its default; if it is new.

    What is pending, and what is compiled, is another module's business: see sync.set_option.

    Raises:
        OptionError: an unknown name, or an illegal value.
    """
    before = dict(_options)
    if value is None:
        _options.pop(name, None)
    else:
        backend_options.parse({name: value}, None)
        _options[name] = value
    return _options != before


def matmul_precision() -> str:
    """Of float32 products: what the script or PyTorch has set; else on a TPU its own, the lowest.

    That is what torch_xla gives. PyTorch's "highest" is its default: nothing tells that it was set.
    """
    chosen = _options.get("matmul_precision")
    if chosen is not None:
        return chosen
    of_torch = backend_options.matmul_precision()
    return "medium" if of_torch == "highest" and default_platform() == "tpu" else of_torch


def flag(name: str) -> Any:
    """A setting that is only remembered."""
    return _flags[name]


def set_flag(name: str, value: Any) -> None:
    """Remember a setting."""
    _flags[name] = value


def launches_allowed() -> bool:
    """Whether a barrier may launch a program."""
    return launch_refusal is None


def allow_launches(allowed: bool) -> None:
    """Let barriers launch, or raise instead."""
    global launch_refusal
    message = "Unexpected execution happens inside the compiled function, exiting"
    launch_refusal = None if allowed else message


@contextlib.contextmanager
def no_launches(active: bool = True) -> Iterator[None]:
    """A block in which a launch is an error."""
    before = launches_allowed()
    allow_launches(before and not active)
    try:
        yield
    finally:
        allow_launches(before)
