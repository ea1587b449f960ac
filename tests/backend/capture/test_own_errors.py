"""What this backend raises while Dynamo compiles: our message first, our type and Dynamo's."""

from __future__ import annotations

import pickle
import sys
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
    whole = torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True)
    with whole, pytest.raises(XlaDynamoError) as raised:
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


@torch.library.custom_op("own_errors_tests::positive", mutates_args=())
def positive(x: Tensor) -> Tensor:
    return x[x > 0]


@positive.register_fake
def _(x: Tensor) -> Tensor:
    return x.new_empty(torch.library.get_ctx().new_dynamic_size())


def test_what_is_refused_names_op_line_reason_and_remedy_before_dynamos_text() -> None:
    error = raised_by(lambda x: positive(x) + 1, torch.ones(3), fallback="error")
    assert isinstance(error, xla_dynamo.UnsupportedOp)
    assert isinstance(error, BackendCompilerFailed)
    assert error.op == "own_errors_tests.positive.default"
    first, *others = str(error).splitlines()
    for part in (error.op, error.location, error.reason, error.remedy):
        assert part
        assert part in first
    assert f"{__file__}:" in first
    assert "backend='xla' raised" not in str(error)
    assert any("TORCHDYNAMO_VERBOSE" in line for line in others)


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
        own_errors.passing_through("xla", sys._getframe()),
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
    with pytest.raises(KeyError), own_errors.passing_through("xla", sys._getframe()):
        raise KeyError("a bug")
