"""Let Dynamo trace nn.LSTM, nn.GRU and nn.RNN for this backend, as with its switch `allow_rnn`.

Dynamo refuses these modules, whose unrolled loops other backends compile for minutes; here each
layer is one op. The switch is Dynamo's for all backends, so it is on only while Dynamo looks at
such a module on behalf of this backend. Private API of torch, seen on 2.9 to 2.15:
torch._dynamo.variables.builder.VariableBuilder.wrap_module, its `tx.output.compiler_fn`, and how
torch.compile wraps a backend.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch._dynamo import config, eval_frame
from torch._dynamo.variables import builder

from xla_dynamo.bookkeeping import optional

_backends: list[Any] = []


def allow(backend: Callable[..., Any]) -> Callable[[], None]:
    """Let Dynamo trace recurrent modules for `backend`, given to torch.compile.

    backend: a function, or a class's method, which stands for those of all its objects.

    Returns what takes it back; Dynamo is as it was once nobody is allowed any more.
    """
    owner: Any = builder.VariableBuilder
    if not hasattr(owner, "wrap_module"):
        return lambda: None
    if not _backends:
        owner.wrap_module = _allowing(owner.wrap_module)
    _backends.append(backend)

    def undo() -> None:
        _backends.remove(backend)
        if not _backends:
            owner.wrap_module = owner.wrap_module.__wrapped__

    return undo


allow_once = functools.cache(allow)


def _allowing(original: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    @functools.wraps(original)
    def wrap_module(self: Any, value: Any) -> Any:
        if isinstance(value, torch.nn.RNNBase) and _is_allowed(self):
            with config.patch(allow_rnn=True):
                return original(self, value)
        return original(self, value)

    return wrap_module


@optional(False)
def _is_allowed(variable_builder: Any) -> bool:
    """Whether the frame that Dynamo traces is compiled for an allowed backend."""
    given = eval_frame.innermost_backend(variable_builder.tx.output.compiler_fn)
    given = getattr(given, "compiler_fn", given)  # torch.compile wraps it, with its options
    given = getattr(given, "__func__", given)
    return any(given is backend for backend in _backends)
