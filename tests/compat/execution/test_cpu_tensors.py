"""Tensors of the device and of the CPU in one op: an error, or by a setting what torch_xla does."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from xla_dynamo.config import config

XLA = torch.device("xla:0")
HOST = torch.tensor([3.0, 5.0])
BOOLS = torch.tensor([True, False])

COMPUTED: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "**": operator.pow,
    "fmod": torch.fmod,
    "&": lambda x, y: (x > 2) & (y > 4),
    "add_": lambda x, y: x.clone().add_(y),
    "mul_": lambda x, y: x.clone().mul_(y),
}
REFUSED: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "<": operator.lt,
    "where": lambda x, y: torch.where(BOOLS, x, x),
    "cat": lambda x, y: torch.cat([x, y]),
    "mm": lambda x, y: x[None] @ y[:, None],
    "mse_loss": F.mse_loss,
    "gather": lambda x, y: x.gather(0, torch.tensor([0])),
}


@pytest.fixture
def as_torch_xla(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("XLA_DYNAMO_CPU_TENSORS", "torch_xla")
    config.cache_clear()
    yield
    monkeypatch.undo()
    config.cache_clear()


@pytest.mark.parametrize("name", COMPUTED | REFUSED)
def test_it_is_an_error_that_names_the_setting_where_that_helps(name: str) -> None:
    x = torch.tensor([2.0, 4.0], device=XLA)
    with pytest.raises(RuntimeError, match="Input tensor is not an XLA tensor: torch") as told:
        (COMPUTED | REFUSED)[name](x, HOST)
    assert "test_cpu_tensors.py" in str(told.value)
    assert "Move it with .to('xla:0')" in str(told.value)
    assert ("XLA_DYNAMO_CPU_TENSORS=torch_xla" in str(told.value)) == (name in COMPUTED)


@pytest.mark.usefixtures("as_torch_xla")
@pytest.mark.parametrize("name", COMPUTED)
def test_the_setting_uploads(name: str) -> None:
    x = torch.tensor([2.0, 4.0])
    got = COMPUTED[name](x.to(XLA), HOST)
    assert got.device == XLA
    torch.testing.assert_close(got.cpu(), COMPUTED[name](x, HOST))
    if not name.endswith("_"):
        torch.testing.assert_close(COMPUTED[name](x, HOST.to(XLA)).cpu(), COMPUTED[name](x, HOST))


@pytest.mark.usefixtures("as_torch_xla")
@pytest.mark.parametrize("name", REFUSED)
def test_the_setting_refuses_what_torch_xla_does(name: str) -> None:
    with pytest.raises(RuntimeError, match="Input tensor is not an XLA tensor"):
        REFUSED[name](torch.tensor([2.0, 4.0], device=XLA), HOST)


@pytest.mark.usefixtures("as_torch_xla")
@pytest.mark.parametrize("training", [True, False])
def test_statistics_of_the_cpu_are_used_and_updated(training: bool) -> None:
    x = torch.arange(6.0).reshape(3, 2)
    seen = []
    for device in ("cpu", "xla"):
        mean, var = torch.zeros(2), torch.ones(2)
        y = F.batch_norm(x.to(device), mean, var, training=training)
        seen.append((y.cpu(), mean, var))
    torch.testing.assert_close(seen[1], seen[0])


@pytest.mark.usefixtures("as_torch_xla")
def test_gradients_flow_to_the_tensor_of_the_device() -> None:
    x = torch.tensor([2.0, 4.0], device=XLA, requires_grad=True)
    (x * HOST).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == HOST.tolist()
