"""A module around a module: the names of parameters, attributes and items are the inner one's."""

from __future__ import annotations

from typing import Any

import torch

_INNER = "_fsdp_wrapped_module"


class Wrapper(torch.nn.Module):
    """Its state_dict has the names of the module's own.

    Raises:
        RuntimeError: the module is wrapped already, or cannot be called.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        if isinstance(module, Wrapper):
            raise RuntimeError(
                "Cannot wrap a module that is already wrapped with FSDP. For nested FSDP, first "
                "wrap the inner child modules before wrapping the outer parent module."
            )
        if isinstance(module, (torch.nn.ModuleList, torch.nn.ModuleDict)):
            raise RuntimeError(
                f"The module wrapped by FSDP must define a `forward` method, and {type(module)} "
                "does not: wrap its items."
            )
        super().__init__()
        setattr(self, _INNER, module)
        self._register_state_dict_hook(_unprefix)
        self.register_load_state_dict_pre_hook(_prefix)

    @property
    def module(self) -> torch.nn.Module:
        """The wrapped module."""
        return self._modules[_INNER]  # type: ignore[return-value]

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self._modules[_INNER], name)

    def __getitem__(self, key: int) -> torch.nn.Module:
        return self.module[key]  # type: ignore[index]


def original_name(name: str) -> str:
    """A parameter's name in the module before it, or parts of it, were wrapped."""
    return ".".join(part for part in name.split(".") if part != _INNER)


def _unprefix(module: Any, state: dict[str, Any], prefix: str, metadata: Any) -> None:
    inner = f"{prefix}{_INNER}."
    for name in [name for name in state if name.startswith(inner)]:
        state[prefix + name.removeprefix(inner)] = state.pop(name)


def _prefix(module: Any, state: dict[str, Any], prefix: str, *_: Any) -> None:
    inner = f"{prefix}{_INNER}."
    for name in [n for n in state if n.startswith(prefix) and not n.startswith(inner)]:
        state[inner + name.removeprefix(prefix)] = state.pop(name)
