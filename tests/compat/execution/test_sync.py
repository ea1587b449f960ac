"""A barrier that fails for another reason than an op's: nothing is lost, and it is tried again."""

from __future__ import annotations

import pytest
import torch
import torch_xla.core.xla_model as xm
from torch import Tensor

from tests.compat.failing import Odd, X, even, failed
from tests.like_eager.lazy import XLA, assert_same
from xla_dynamo import OptionError
from xla_dynamo.backend.runtime import pjrt, transfers
from xla_dynamo.compat.execution import failed_values, sync

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


@torch.library.custom_op("failed_windows::once", mutates_args=())
def once(x: Tensor) -> Tensor:
    error = _errors.pop()
    if error is not None:
        raise error
    return x + 1


once.register_fake(torch.empty_like)
_errors: list[type[BaseException] | None] = []


@pytest.mark.parametrize("error", [MemoryError, KeyboardInterrupt])
def test_an_op_without_memory_or_interrupted_is_tried_again(error: type[BaseException]) -> None:
    x = X.to(XLA)
    y = once(x)
    _errors[:] = [None, error]
    with pytest.raises(error):
        xm.mark_step()
    assert_same([y, x * 2], [X + 1, X * 2])


def test_an_interrupt_while_the_rest_is_computed_loses_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x = X.to(XLA)
    bad, other = even(x), x * 5
    release = failed_values.release

    def interrupt(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(failed_values, "release", interrupt)  # the next attempt follows
    with pytest.raises(KeyboardInterrupt):
        xm.mark_step()
    monkeypatch.setattr(failed_values, "release", release)
    with pytest.raises(Odd):
        xm.mark_step()
    assert_same(other, X * 5)
    assert failed(bad)


def test_options_are_checked_where_they_are_set() -> None:
    with pytest.raises(OptionError, match="Did you mean 'bucket'"):
        sync.set_option("bukket", 64)
    with pytest.raises(OptionError, match="not legal"):
        sync.set_option("fallback", "gpu")
    assert (torch.ones(2, device="xla") + 1).tolist() == [2.0, 2.0]


def test_numbers_that_stay_are_sent_once(monkeypatch: pytest.MonkeyPatch) -> None:
    x = X.to(XLA)
    sent: list[list[float]] = []
    put = transfers.put
    monkeypatch.setattr(
        transfers, "put", lambda host, *rest: sent.append(host.tolist()) or put(host, *rest)
    )
    for number in (0.5, 0.5, 0.25, 0.5, -0.0, 0.0, 0.0):
        y = x * number
        xm.mark_step()
        assert_same(y, X * number)
        assert torch.equal(y.cpu().signbit(), (X * number).signbit())
    assert sent == [[0.5], [0.25], [-0.0], [0.0]]
