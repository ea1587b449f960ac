"""What this backend raises while Dynamo compiles: our message first, our type and Dynamo's."""

from __future__ import annotations

import pickle
import traceback
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo.exc import BackendCompilerFailed

import xla_dynamo
from xla_dynamo import XlaDynamoError, errors
from xla_dynamo.backend.capture import own_errors

KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type)]


def raised_by(function: Any, x: Tensor, **options: Any) -> Exception:
    with pytest.raises(XlaDynamoError) as raised:
        torch.compile(function, backend="xla", options=options)(x)
    return raised.value


def test_a_wrong_option() -> None:
    error = raised_by(torch.sin, torch.ones(3), falback="error")
    assert isinstance(error, xla_dynamo.OptionError)
    assert isinstance(error, ValueError)
    assert isinstance(error, BackendCompilerFailed)
    assert isinstance(error.inner_exception, xla_dynamo.OptionError)
    assert error.backend_name == "xla"
    assert str(error).startswith("options['falback'] is unknown to backend 'xla'. Did you mean")
    last = traceback.format_exception_only(error)[0]
    assert last.startswith("xla_dynamo.errors.OptionError: options['falback'] is unknown")


def overlapping(x: Tensor) -> Tensor:
    y = x.clone()
    y.as_strided((3, 3), (0, 1)).add_(1)  # here
    return y


def test_what_is_refused_names_op_line_reason_and_remedy_before_dynamos_text() -> None:
    message = str(raised_by(overlapping, torch.ones(3, 3)))
    first = message.splitlines()[0]
    for part in ("as_strided", f"{__file__}:", "more than one element", "clone() that tensor"):
        assert part in first
    assert "backend='xla' raised" not in message


def test_the_traceback_has_no_frame_of_dynamos() -> None:
    error = raised_by(torch.sin, torch.ones(3), platform="none")
    frames = traceback.extract_tb(error.__traceback__)
    assert not [frame for frame in frames if "_dynamo/output_graph.py" in frame.filename]
    assert any(frame.filename == __file__ for frame in frames)


@pytest.mark.parametrize("kind", KINDS)
def test_every_error(kind: type[XlaDynamoError]) -> None:
    given = kind("what, where, why; do this")
    given.__dict__["op"] = "aten.sin"
    with (
        pytest.raises(kind, match=r"^what, where, why; do this$") as raised,
        own_errors.passing_through("xla", None),  # type: ignore[arg-type]
    ):
        raise given
    error = raised.value
    assert type(error).__qualname__ == kind.__qualname__
    assert error.__dict__["op"] == "aten.sin"
    assert isinstance(error, BackendCompilerFailed)
    sent = pickle.loads(pickle.dumps(error))  # to the process that started this one
    assert type(sent) is kind
    assert str(sent) == str(given)


def test_other_errors_are_dynamos_business() -> None:
    with pytest.raises(KeyError), own_errors.passing_through("xla", None):  # type: ignore[arg-type]
        raise KeyError("a bug")
