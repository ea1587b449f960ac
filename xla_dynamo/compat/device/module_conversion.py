"""`module.to("xla")` keeps the module's Parameter objects, as it does on every other device.

PyTorch converts a parameter by `param.data = converted` where both have one type of TensorImpl, and
else makes a new Parameter: an optimizer made before would train the old one, and tied weights would
come apart. Here the object stays and gets the converted tensor's contents, as
`torch.utils.swap_tensors` does it; unlike there, a parameter keeps its attributes, and may have
weak references (torch.compile's guards are such).

Private API of torch, seen on 2.9 to 2.15: Module._apply.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from xla_dynamo.compat.execution import auto_sharding
from xla_dynamo.compat.values.torch_private import swap_contents

Apply = Callable[..., nn.Module]


def keeping_parameters(original: Apply) -> Apply:
    """In the place of `nn.Module._apply`, which `.to()`, `.float()` and their like call.

    A graph that was recorded before cannot run backward after it: that is an error.
    """

    def apply(self: nn.Module, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> nn.Module:
        if recurse:
            for child in self.children():
                child._apply(fn)
        params = [param for param in self._parameters.values() if param is not None]
        if not _is_of_xla(fn, params):
            return original(self, fn, recurse=False)
        with auto_sharding.uploading("parameter"):
            for param in params:
                _convert(param, fn)
        with auto_sharding.uploading("buffer"):
            for name, buffer in self._buffers.items():
                if buffer is not None:
                    self._buffers[name] = fn(buffer)
        return self

    return apply


def _is_of_xla(fn: Callable[[Tensor], Tensor], params: Sequence[Tensor]) -> bool:
    """Whether parameters are on an xla device, or go there, which one number can tell."""
    if any(param.device.type == "xla" for param in params):
        return True
    if not params or params[0].device.type not in ("cpu", "meta"):
        return False
    with torch.no_grad():
        probe = torch.empty((), dtype=params[0].dtype, device=params[0].device)
        return fn(probe).device.type == "xla"


def _convert(param: Any, fn: Callable[[Tensor], Tensor]) -> None:
    gradient = param.grad
    with torch.no_grad():
        converted = fn(param)
        new_gradient: Any = None if gradient is None else fn(gradient)
    if converted is param:
        return
    # The gradient refers to the tensor, and would have a device or dtype of its own meanwhile.
    param.grad = None
    new = nn.Parameter(converted.detach(), param.requires_grad)
    if param.requires_grad:
        torch.autograd.graph.get_gradient_edge(param).node.register_prehook(_refuse)
    swap_contents(param, new)
    if gradient is not None:
        param.grad = new_gradient.requires_grad_(gradient.requires_grad)


def _refuse(gradients: Any) -> None:
    """Called where the gradient of a graph of before would be lost."""
    raise RuntimeError(
        "backward() of a loss that was computed before its module was moved or converted, from or "
        "to an xla device: call it before .to(), .float() and their like."
    )
