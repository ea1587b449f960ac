"""Reports that cannot be made are left out, and the program runs on; its numbers are right."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest
import torch
from torch import Tensor, nn

import xla_dynamo
import xla_dynamo.compat
from xla_dynamo import bookkeeping
from xla_dynamo.bookkeeping import optional
from xla_dynamo.config import config

XLA = torch.device("xla:0")


@pytest.fixture(autouse=True)
def as_for_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bookkeeping, "config", lambda: replace(config(), strict=False))
    monkeypatch.setattr(bookkeeping, "_told", {})


def fail(*args: Any, **kwargs: Any) -> NoReturn:
    raise KeyError("a report")


def test_what_fails_is_left_out_and_told_once(caplog: pytest.LogCaptureFixture) -> None:
    report = optional("nothing")(fail)
    with caplog.at_level(logging.WARNING):
        assert [report(1), report(2)] == ["nothing"] * 2
    (record,) = caplog.records
    assert record.getMessage() == (
        f"A report is left out: {__name__}.fail failed: KeyError('a report')"
    )
    assert record.exc_info is not None


def test_what_does_not_fail_is_as_it_was() -> None:
    assert optional(0)(lambda x, *, y: x + y)(1, y=2) == 3


def test_warnings_that_the_user_makes_errors_are_errors() -> None:
    @optional(None)
    def report() -> None:
        warnings.warn("look", UserWarning, stacklevel=1)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="look"):
            report()


def test_a_bug_is_an_error_in_our_own_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bookkeeping, "config", lambda: replace(config(), strict=True))
    with pytest.raises(KeyError, match="a report"):
        optional(None)(fail)()


def compiled(x: Tensor) -> Iterator[Tensor]:
    run = torch.compile(lambda x: x.exp().cumsum(0), backend="xla", dynamic=True)
    with xla_dynamo.capture():
        for rows in range(2, 12):  # more than are compiled without a warning
            yield run(x[:rows]) - x[:rows].exp().cumsum(0)


@torch.library.custom_op("bookkeeping_tests::doubled", mutates_args=())
def doubled(x: Tensor) -> Tensor:
    return x * 2


doubled.register_fake(torch.empty_like)


def fallback(x: Tensor) -> Iterator[Tensor]:
    yield torch.compile(lambda x: doubled(x).exp(), backend="xla")(x) - (x * 2).exp()


def lazy(x: Tensor) -> Iterator[Tensor]:
    on_device = x.to(XLA)
    for row in range(10):
        y = on_device.exp().narrow(0, 0, row + 1)
        y = y + torch.linalg.lstsq(on_device[:4], on_device[:4]).solution.trace()
        yield y.cpu() - x[: row + 1].exp() - 4  # each time a barrier


BROKEN: dict[str, Callable[[Tensor], Iterator[Tensor]]] = {
    "xla_dynamo.backend.capture.aot._SIZE": compiled,
    "xla_dynamo.backend.capture.recapture_reason._describe": compiled,
    "xla_dynamo.backend.executable.size_changes.first_location": compiled,
    "xla_dynamo.backend.executable.compile.cache.key_of": compiled,
    "xla_dynamo.backend.executable.compile.first_location": compiled,
    "xla_dynamo.backend.executable.compile.pjrt.Executable.optimized_hlo": compiled,
    "xla_dynamo.backend.lowering.unsupported._what": fallback,
    "xla_dynamo.compat.execution.dispatch.describe.where": lazy,
    "xla_dynamo.compat.execution.dispatch.user_location": lazy,
    "xla_dynamo.compat.execution.recompile_reason.op_at": lazy,
    "xla_dynamo.compat.execution.recompile_warning._alike": lazy,
    "xla_dynamo.compat.recording.metrics.Watch.launched": lazy,
    "xla_dynamo.compat.values.describe.linecache": lazy,
}


@pytest.mark.filterwarnings("ignore::xla_dynamo.FallbackWarning")
@pytest.mark.filterwarnings("ignore::xla_dynamo.RecompileWarning")
@pytest.mark.parametrize("name", BROKEN)
def test_a_program_whose_report_fails(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(name, fail)
    x = torch.rand(12, 4, dtype=torch.float64)
    for difference in BROKEN[name](x):
        torch.testing.assert_close(difference, torch.zeros_like(difference), rtol=0, atol=1e-9)


def test_a_dump_folder_that_cannot_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    settings = replace(config(), dump=tmp_path / "file" / "dump")
    monkeypatch.setattr("xla_dynamo.backend.metrics.config", lambda: settings)
    x = torch.rand(3)
    with caplog.at_level(logging.WARNING):
        torch.testing.assert_close(torch.compile(torch.exp, backend="xla")(x), x.exp())
    assert "publish_stages failed: NotADirectoryError" in caplog.text
    assert "Traceback" not in caplog.text


class Cache(nn.Module):
    """After the graph break, Dynamo's code holds slice(None), which has no hash in Python 3.11."""

    def __init__(self) -> None:
        super().__init__()
        self.cache = nn.Buffer(torch.zeros(3, 4))

    def forward(self, x: Tensor, position: int) -> Tensor:
        y = x * 2
        torch._dynamo.graph_break()
        self.cache[:, position] = y
        return self.cache.sum(0)


def test_code_without_a_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bookkeeping, "config", config)  # nothing fails
    eager = Cache()
    ours = Cache().to(XLA)
    run = torch.compile(ours, backend="openxla")
    x = torch.arange(3.0)
    for position in (0, 2):
        torch.testing.assert_close(run(x.to(XLA), position).cpu(), eager(x, position))
    torch.testing.assert_close(ours(x.to(XLA), 1).cpu(), eager(x, 1))
