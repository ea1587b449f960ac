"""A barrier that fails for another reason than an op's: nothing is lost, and it is tried again."""

from __future__ import annotations

import pytest
import torch
import torch_xla.core.xla_model as xm
from torch import Tensor

from xla_dynamo.backend.runtime import pjrt
from xla_dynamo.compat import execute

from .failing import Odd, X, even, failed
from .lockstep import XLA, assert_same

pytestmark = pytest.mark.filterwarnings("ignore::xla_dynamo.FallbackWarning")


def test_errors_that_are_no_ops_leave_all_pending(monkeypatch: pytest.MonkeyPatch) -> None:
    x = X.to(XLA)
    y = x.atan().cosh()
    with monkeypatch.context() as patch:
        patch.setattr(pjrt, "compile", _refuse)
        patch.setenv("XLA_DYNAMO_CACHE_DIR", "0")
        for _ in range(2):
            with pytest.raises(OSError, match="no disk"):
                xm.mark_step()
    assert_same([y, x], [X.atan().cosh(), X])


def _refuse(*arguments: object) -> None:
    raise OSError("no disk")


@torch.library.custom_op("failed_windows::scarce", mutates_args=())
def scarce(x: Tensor) -> Tensor:
    if _memory.pop():
        raise MemoryError
    return x + 1


scarce.register_fake(torch.empty_like)
_memory: list[bool] = []


def test_an_op_without_memory_is_tried_again() -> None:
    x = X.to(XLA)
    y = scarce(x)
    _memory[:] = [False, True]
    with pytest.raises(MemoryError):
        xm.mark_step()
    assert_same([y, x * 2], [X + 1, X * 2])


@torch.library.custom_op("failed_windows::interrupted", mutates_args=())
def interrupted(x: Tensor) -> Tensor:
    if _memory.pop():
        raise KeyboardInterrupt
    return x + 1


interrupted.register_fake(torch.empty_like)


def test_an_interrupted_op_is_tried_again() -> None:
    x = X.to(XLA)
    y = interrupted(x)
    _memory[:] = [False, True]
    with pytest.raises(KeyboardInterrupt):
        xm.mark_step()
    assert_same([y, x * 2], [X + 1, X * 2])


def test_an_interrupt_while_the_rest_is_computed_loses_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x = X.to(XLA)
    bad, other = even(x), x * 5
    attempt = execute._attempt

    def interrupt(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(execute, "_attempt", interrupt)
    with pytest.raises(KeyboardInterrupt):
        xm.mark_step()
    monkeypatch.setattr(execute, "_attempt", attempt)
    with pytest.raises(Odd):
        xm.mark_step()
    assert_same(other, X * 5)
    assert failed(bad)
