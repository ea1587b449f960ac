"""The user's own JAX finds its configuration and devices as they were, after any call of ours."""

from __future__ import annotations

import pytest

from .programs import python

_BEGIN = """
import os
import jax
from jax._src import xla_bridge
import torch

config, environment = dict(jax.config.values), dict(os.environ)
x = torch.randn(4, 5, requires_grad=True)

def compiled(**options):
    torch.compiler.reset()
    function = lambda x: torch.erf(x).cumsum(0).sort(0).values.sum()
    torch.compile(function, backend="xla", **options)(x).backward()

"""
_END = """
assert dict(jax.config.values) == config
# torch_xla sets the second, too; PyTorch's Inductor the first.
new = {name for name in os.environ if os.environ[name] != environment.get(name)}
assert new <= {"TORCHINDUCTOR_CACHE_DIR", "PJRT_DEVICE"}, new
print("initialised", xla_bridge.backends_are_initialized())
assert jax.numpy.arange(2.0).dtype == jax.numpy.float32
print(jax.numpy.arange(2.0).devices())
"""
_CALLS = {
    "a training step is compiled": "compiled()",
    "a training step is recorded": """
import torch_xla.core.xla_model as xm
layer = torch.nn.Linear(5, 5).to(xm.xla_device())
layer(x.to(xm.xla_device())).sum().backward()
xm.mark_step()
print(torch.rand(3, device=xm.xla_device()), layer.weight.grad.cpu())
""",
    "a program is refused": """
try:
    torch.compile(lambda x: x.nonzero(), backend="xla", options={"fallback": "error"})(x)
except torch._dynamo.exc.TorchDynamoException:
    pass
""",
}


@pytest.mark.parametrize("call", _CALLS.values(), ids=_CALLS)
def test_calls_leave_no_trace(call: str) -> None:
    assert "initialised False" in python(_BEGIN + call + _END, fresh=True)


def test_asking_for_a_device_that_is_not_there_has_no_consequences() -> None:
    call = """
try:
    compiled(options={"platform": "tpu"})
except torch._dynamo.exc.BackendCompilerFailed as error:
    assert "PJRT platform 'tpu' cannot be initialised" in str(error)
else:
    raise AssertionError("there is a TPU")
compiled()
"""
    assert "initialised True" in python(_BEGIN + call + _END, fresh=True)
