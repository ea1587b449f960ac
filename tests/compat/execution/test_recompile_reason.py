"""Why a trace was compiled: the first op, argument, size or barrier that differs, and its line."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch_xla
import torch_xla.core.xla_model as xm
from torch import nn

import xla_dynamo
from xla_dynamo.backend.lowering.registry import RULES
from xla_dynamo.backend.runtime import transfers
from xla_dynamo.compat.execution import program_cache, recompile_warning
from xla_dynamo.compat.recording import pending
from xla_dynamo.compat.values.trie import State

XLA = torch.device("xla:0")


@pytest.fixture
def reason(monkeypatch: pytest.MonkeyPatch) -> Callable[[], str]:
    """The reason of the last compile; every test begins with nothing recorded."""
    xm.mark_step()
    trace = pending.trace(XLA)
    trace.root = State(None, (), 0, 0, None, None)
    trace.clear()
    monkeypatch.setattr(recompile_warning, "_alike", {})
    monkeypatch.setattr(program_cache, "_runs", OrderedDict())
    return lambda: xla_dynamo.compiles()[-1].reason


def on_device(*shape: int) -> torch.Tensor:
    return torch.ones(shape).to(XLA)


def test_the_first_of_its_kind(reason: Callable[[], str]) -> None:
    x = on_device(3, 4)
    y = x.exp()  # here
    xm.mark_step()
    assert y.device == XLA
    assert reason().startswith("first compile of a trace that begins with aten.exp at")
    assert reason().endswith("(y = x.exp()  # here)")
    assert f"{__file__}:" in reason()


def test_an_input_of_another_size(reason: Callable[[], str]) -> None:
    layer = nn.Linear(4, 2).to(XLA)

    def step(rows: int) -> torch.Tensor:
        result = layer(on_device(rows, 4) * 2)
        xm.mark_step()
        return result

    for rows in (3, 5):
        result = step(rows)
    assert result.shape == (5, 2)
    assert reason().startswith("input 0 (first used by aten.mul.Tensor at")
    assert reason().endswith("was float32[3, 4], is float32[5, 4] (dimension 0: 3 -> 5)")


def test_an_input_of_another_dtype(reason: Callable[[], str]) -> None:
    for dtype in (torch.float32, torch.bfloat16):
        y = torch.ones(3).to(XLA, dtype).exp()
        xm.mark_step()
    assert y.dtype == torch.bfloat16
    assert reason().endswith("was float32[3], is bfloat16[3]")


def test_a_static_argument(reason: Callable[[], str]) -> None:
    x = on_device(8, 10)
    for size in ((4, 20), (10, 8)):
        y = x.exp().view(size)
        xm.mark_step()
    assert y.shape == (10, 8)
    assert reason().startswith("aten.view: argument size was [4, 20], is [10, 8] at ")
    assert reason().endswith("(y = x.exp().view(size))")


def test_one_element_of_a_static_argument(reason: Callable[[], str]) -> None:
    x = on_device(8, 1)
    for columns in (2, 3):
        y = x.exp().expand(8, columns)
        xm.mark_step()
    assert y.shape == (8, 3)
    assert "argument size was [8, 2], is [8, 3] (dimension 1: 2 -> 3)" in reason()


def test_another_op(reason: Callable[[], str]) -> None:
    x = on_device(3)
    for op in (torch.relu, torch.sigmoid):
        y = op(x.exp())
        xm.mark_step()
    assert y.shape == (3,)
    assert reason().startswith("aten.relu became aten.sigmoid at ")
    assert reason().count(__file__) == 1


def test_another_op_at_another_line(reason: Callable[[], str]) -> None:
    x = on_device(3)
    y = torch.relu(x.exp())
    xm.mark_step()
    y = torch.sigmoid(x.exp())
    xm.mark_step()
    assert y.shape == (3,)
    assert reason().startswith("aten.relu at ")
    assert "became aten.sigmoid at" in reason()
    assert reason().count(__file__) == 2


def test_another_operand(reason: Callable[[], str]) -> None:
    x = on_device(3)
    for first in (True, False):
        a, b = x.exp(), x.sin()
        y = (a if first else b).relu()
        xm.mark_step()
    assert y.shape == (3,)
    assert reason().startswith("aten.relu: self was the result of aten.exp at ")
    assert "is the result of aten.sin at" in reason()


def test_an_element_of_a_list_of_tensors(reason: Callable[[], str]) -> None:
    x, y = on_device(3).exp(), on_device(3).sin()
    xm.mark_step()
    for parts in ((x, y), (x, x)):
        z = torch.cat(parts)
        xm.mark_step()
    assert z.shape == (6,)
    assert reason().startswith("aten.cat: tensors[1] was input 1 (float32[3]), is input 0")


def test_a_number_of_another_type(reason: Callable[[], str]) -> None:
    x = torch.tensor([1, 2]).to(XLA)
    for number in (3, 3.5):
        y = x.abs() * number
        xm.mark_step()
    torch.testing.assert_close(y.cpu(), torch.tensor([3.5, 7.0]))
    assert "argument other was a number (int), is a number (float)" in reason()


def test_numbers_that_change_compile_nothing(reason: Callable[[], str]) -> None:
    x = on_device(3)
    for number in (3.5, 4.5, 2, 0.0, 1.0):
        y = x.exp() * number + number
        xm.mark_step()
    torch.testing.assert_close(y.cpu(), torch.ones(3).exp() + 1)
    assert len(xla_dynamo.compiles()) == 1


def test_a_barrier_that_came_later_and_one_that_came_earlier(reason: Callable[[], str]) -> None:
    x = on_device(3)

    def step(barriers: int) -> torch.Tensor:
        y = x.exp()
        if barriers > 1:
            xm.mark_step()
        y = y.sin()
        xm.mark_step()
        return y

    step(1)
    step(2)
    assert any(
        record.reason.startswith("the barrier came earlier: after aten.exp at")
        and "before, aten.sin at" in record.reason
        for record in xla_dynamo.compiles()
    )


def test_uploading_what_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 12 bytes.")

    kept = torch.ones(512, 512).to(XLA)
    monkeypatch.setattr(transfers, "upload", refuse)
    with pytest.raises(xla_dynamo.OutOfMemory, match=r"xla:0 out of memory(.|\n)*1\.00MB"):
        torch.ones(3).to(XLA)
    monkeypatch.undo()
    assert kept.sum().item() == 512 * 512


def test_a_window_that_goes_on_after_the_known_barrier(reason: Callable[[], str]) -> None:
    x = on_device(3)
    y = x.exp()
    xm.mark_step()
    y = x.exp()
    z = y.sin()
    xm.mark_step()
    assert z.shape == y.shape
    assert reason().startswith("the barrier came later: the trace went on after aten.exp at")
    assert reason().endswith("(z = y.sin())")


def test_another_tensor_is_alive(reason: Callable[[], str]) -> None:
    x = on_device(3)

    def step(keep: bool) -> tuple[torch.Tensor, ...]:
        y = x.exp()
        z = y.sin()
        kept = (y, z) if keep else (z,)
        del y
        xm.mark_step()
        return kept

    step(False)
    step(True)
    assert reason().startswith("the set of live tensors differs: the result of aten.exp at")
    assert reason().endswith("is alive at the barrier, was not")


def test_windows_that_keep_being_compiled_are_warned_of_once(reason: Callable[[], str]) -> None:
    def step(rows: int) -> None:
        x = on_device(rows, 4)
        y = x.exp()
        xm.mark_step()
        assert y.shape == (rows, 4)

    for rows in range(1, 8):
        step(rows)
    with pytest.warns(xla_dynamo.RecompileWarning) as warned:
        step(8)
    text = str(warned[0].message)
    assert text.startswith("8 programs were compiled for traces that begin with aten.exp at")
    assert "was float32[7, 4], is float32[8, 4] (dimension 0: 7 -> 8)" in text
    assert "drop_last=True" in text
    assert "XLA_DYNAMO_BUCKET" in text
    assert "Of these 8 programs it would have made 2 with 'powers_of_two'" in text
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        step(9)


def test_a_fallback_names_op_line_reason_and_remedy() -> None:
    def solve(x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.lstsq(x, x).solution  # this line

    x = torch.eye(3)
    with pytest.warns(xla_dynamo.FallbackWarning) as warned:
        result = solve(x.to(XLA))
    torch.testing.assert_close(result.cpu(), x)
    text = str(warned[0].message)
    assert f"at {__file__}:{solve.__code__.co_firstlineno + 1}" in text
    assert "this line" in text
    assert "aten.linalg_lstsq" in text
    assert "depends on values" in text
    assert "outside the training step" in text


def test_a_fallback_is_said_once_a_line() -> None:
    x = torch.eye(3).to(XLA)

    def solve(_: object) -> int:
        return torch.linalg.lstsq(x, x).solution.shape[0]

    with pytest.warns(xla_dynamo.FallbackWarning) as warned:
        assert [*map(solve, range(3)), torch.linalg.lstsq(x, x).solution.shape[0]] == [3, 3, 3, 3]
    assert len(warned) == 2


def test_a_fallback_in_backward_names_the_line_of_backward(monkeypatch: Any) -> None:
    """What autograd issues has no line in the user's program but that of backward()."""
    for op in (torch.ops.aten.segment_reduce, torch.ops.aten._segment_reduce_backward):
        monkeypatch.delitem(RULES, op.default)
    x = torch.tensor([1.0, 3.0, 2.0]).to(XLA).requires_grad_()
    lengths = torch.tensor([1, 2]).to(XLA)

    def step() -> None:
        y = torch.segment_reduce(x, "max", lengths=lengths)
        y.sum().backward()
        xm.mark_step()

    with pytest.warns(xla_dynamo.FallbackWarning) as warned:
        step()
    assert x.grad is not None
    torch.testing.assert_close(x.grad.cpu(), torch.tensor([1.0, 1.0, 0.0]))
    forward, backward = sorted((str(warning.message) for warning in warned), reverse=True)
    assert 'segment_reduce(x, "max", lengths=lengths))' in forward
    assert "aten._segment_reduce_backward" in backward
    assert "(y.sum().backward())" in backward


def test_running_out_of_memory_names_the_largest_buffers() -> None:
    kept = torch.ones(512, 512).to(XLA)
    huge = torch.ones(1 << 23, 1 << 23, device=XLA)
    with pytest.raises(xla_dynamo.OutOfMemory) as raised:
        (huge + 1).sum().item()
    text = str(raised.value)
    assert text.startswith("xla:0 out of memory. XLA says: RESOURCE_EXHAUSTED")
    assert "256.00TB  float32[8388608, 8388608], result of aten.ones at" in text
    assert "1.00MB  float32[512, 512], a tensor that is alive" in text
    assert isinstance(raised.value, torch.OutOfMemoryError)
    del raised, huge  # or what is pending for it would be launched again
    torch.testing.assert_close(kept.cpu(), torch.ones(512, 512))


def test_other_options_of_the_compiler(reason: Callable[[], str]) -> None:
    x = on_device(3)
    for options in ({}, {"xla_cpu_enable_fast_math": True}):
        torch_xla.set_custom_compile_options(options)
        y = x.exp()
        xm.mark_step()
    torch_xla.set_custom_compile_options({})
    assert y.shape == (3,)
    assert reason() == "the options of the compiler changed"
