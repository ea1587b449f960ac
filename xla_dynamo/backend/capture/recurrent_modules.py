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

_backends: set[Any] = set()


def allow(backend: Callable[..., Any]) -> None:
    """Let Dynamo trace recurrent modules for `backend`, a function given to torch.compile."""
    owner: Any = builder.VariableBuilder
    if not _backends and hasattr(owner, "wrap_module"):
        owner.wrap_module = _allowing(owner.wrap_module)
    _backends.add(backend)


def _allowing(original: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    @functools.wraps(original)
    def wrap_module(self: Any, value: Any) -> Any:
        if isinstance(value, torch.nn.RNNBase) and _backend_of(self) in _backends:
            with config.patch(allow_rnn=True):
                return original(self, value)
        return original(self, value)

    return wrap_module


def _backend_of(variable_builder: Any) -> Any:
    """What the frame that Dynamo traces is compiled for."""
    given = eval_frame.innermost_backend(variable_builder.tx.output.compiler_fn)
    return getattr(given, "compiler_fn", given)  # torch.compile wraps it, with its options
