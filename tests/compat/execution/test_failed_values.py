"""An op that raises at a barrier: it raises once, its results fail, everything else is computed."""

from __future__ import annotations

import copy
import gc
import io
import traceback
import weakref
from collections.abc import Callable

import pytest
import torch
import torch_xla.core.xla_model as xm
from torch import Tensor, nn

import xla_dynamo
from tests.compat.failing import REFUSED, Odd, X, both, even, failed
from tests.like_eager.lazy import XLA, assert_same
from tests.programs import python
from xla_dynamo.compat.execution import sync
from xla_dynamo.compat.recording.op_forms import COMPOSITES
from xla_dynamo.compat.values.values import value_of

pytestmark = pytest.mark.filterwarnings("ignore::xla_dynamo.FallbackWarning")


def test_an_op_that_the_cpu_refuses() -> None:
    a, b = torch.eye(2, dtype=torch.bfloat16).to(XLA), X.to(XLA)
    other = b * 2
    bad = torch.linalg.det(a)
    with pytest.raises(NotImplementedError, match='"lu_cpu" not implemented for') as first:
        bad.cpu()
    assert_same([b + 1, other], [X + 1, X * 2])
    with pytest.raises(NotImplementedError) as second:
        bad.tolist()
    assert str(second.value) == str(first.value)
    assert second.value is not first.value


def test_the_barrier_raises_once_and_computes_the_rest() -> None:
    x = X.to(XLA)
    before, bad = x + 1, even(x)
    worse, after = bad.sum() + before, before * 3
    with pytest.raises(Odd, match=REFUSED):
        xm.mark_step()
    xm.mark_step()
    assert_same([x, before, after, after - x], [X, X + 1, (X + 1) * 3, (X + 1) * 3 - X])
    text = failed(bad)
    assert failed(worse) == text
    assert "failed_windows.even" in text
    assert "test_failed_values.py" in text
    assert "before, bad = x + 1, even(x)" in text


def test_the_first_error_names_the_op_and_its_line() -> None:
    bad = even(X.to(XLA))  # this line
    with pytest.raises(Odd) as raised:
        xm.mark_step()
    text = "".join(traceback.format_exception_only(raised.value))
    assert text == failed(bad)
    assert "(bad = even(X.to(XLA))  # this line)" in text


def test_what_a_failed_tensor_is_used_for_raises_at_once() -> None:
    x = X.to(XLA)
    bad = even(x)
    with pytest.raises(Odd):
        xm.mark_step()
    uses: list[Callable[[], object]] = [
        lambda: bad + 1,
        lambda: x * bad,
        lambda: x.add_(bad),
        lambda: bad[0].tolist(),
        lambda: bad.t().cpu(),
        lambda: bad.detach()[0, 0].item(),
        lambda: repr(bad),
        lambda: torch.equal(bad, x),
        lambda: bad.sum().backward(),
    ]
    for use in uses:
        with pytest.raises(Odd, match=REFUSED):
            use()
    assert bad.shape == X.shape
    assert_same(x, X)


def test_two_ops_of_a_window() -> None:
    x = X.to(XLA)
    bad, never, good = even(x), both(x), even(x + x)
    mixed = never[1] + bad
    with pytest.raises(Odd, match=REFUSED):
        xm.mark_step()
    xm.mark_step()
    failed(bad)
    for tensor in never:
        with pytest.raises(TypeError, match="never"):
            tensor.cpu()
    with pytest.raises((Odd, TypeError)):
        mixed.cpu()
    assert_same(good, X * 4)


def test_all_of_a_window() -> None:
    bad = even(X.to(XLA))
    with pytest.raises(Odd):
        bad.cpu()
    xm.mark_step()
    assert failed(bad)


def test_a_loop_that_goes_on_compiles_nothing_more() -> None:
    x = X.to(XLA)
    compiled = []
    for step in range(4):
        total = x + float(step)
        bad = even(x)
        with pytest.raises(Odd):
            xm.mark_step()
        assert_same(total, X + float(step))
        assert failed(bad)
        compiled.append(len(xla_dynamo.compiles()))
        del bad
    assert compiled[1:] == compiled[:1] * 3


def test_random_numbers_after_the_op_are_the_same() -> None:
    def draw(op: Callable[[Tensor], object]) -> list[Tensor]:
        xm.set_rng_state(5)
        noise = torch.rand(2, 3, device=XLA)
        kept = op(torch.rand(2, 3, device=XLA) * 3.5)
        rest = torch.rand(2, 3, device=XLA) * 7.25 + noise
        try:
            xm.mark_step()
        except TypeError:
            assert op is both
        del kept
        return [noise.cpu(), rest.cpu()]

    torch.testing.assert_close(draw(both), draw(torch.neg), rtol=0, atol=0)


def test_writes() -> None:
    x, y, z = X.to(XLA), X.to(XLA), X.to(XLA)
    bad = even(x)
    x.add_(bad)
    y[0] = bad[0]
    z.mul_(2)
    with pytest.raises(Odd):
        xm.mark_step()
    assert failed(x) == failed(y) == failed(bad)
    assert_same(z, X * 2)
    x.copy_(z)
    y.zero_()
    bad.fill_(3)
    assert_same([x, y, bad], [X * 2, torch.zeros(2, 3), torch.full((2, 3), 3.0)])


def test_initializing_again_makes_parameters_good() -> None:
    module = nn.Linear(3, 2).to(XLA)
    good = {name: value.cpu() for name, value in module.state_dict().items()}
    optimizer = torch.optim.AdamW(module.parameters())
    even(module(X.to(XLA) + 0.123)).sum().backward()
    optimizer.step()
    with pytest.raises(Odd):
        xm.mark_step()
    assert failed(module.weight.detach())
    with torch.no_grad():
        nn.init.normal_(module.bias)
        nn.init.uniform_(module.weight)
    assert module.weight.isfinite().all()
    assert module.bias.isfinite().all()
    module.load_state_dict(good)
    assert_same(dict(module.state_dict()), good)


def test_gradients() -> None:
    x, w = X.to(XLA).requires_grad_(), torch.ones(3).to(XLA).requires_grad_()
    bad = even(x)
    loss = (bad * w).sum()
    loss.backward()
    with pytest.raises(Odd):
        xm.mark_step()
    assert w.grad is not None
    assert x.grad is not None
    assert failed(w.grad) == failed(loss.detach()) == failed(x.grad)
    with pytest.raises(Odd):
        (bad * w).sum()
    x.grad = w.grad = None
    (x * w).sum().backward()
    assert_same(w.grad, X.sum(0))


def test_a_backward_that_comes_after_the_barrier() -> None:
    w = torch.ones(3).to(XLA).requires_grad_()
    loss = (even(X.to(XLA)) * w).sum()
    with pytest.raises(Odd):
        xm.mark_step()
    with pytest.raises(Odd, match=REFUSED):
        loss.backward()
    assert w.grad is None


def test_two_devices() -> None:
    printed = python(
        """
        import warnings
        import torch
        import torch_xla.core.xla_model as xm
        warnings.simplefilter("ignore")
        a = [torch.eye(2, dtype=torch.bfloat16, device=f"xla:{i}") for i in range(2)]
        bad, good = torch.linalg.det(a[0]), a[1] + 1
        kept = []
        for read in (lambda: bad.to("xla:1"), good.tolist, lambda: bad.to("xla:1"), bad.tolist):
            try:
                print(read())
            except NotImplementedError as error:
                kept.append(error)
                print(type(error).__name__, error)
        xm.mark_step("xla:0"), xm.mark_step("xla:1")
        print((good * 2).to("xla:0").tolist())
        """,
        CPU_NUM_DEVICES="2",
    )
    error = "NotImplementedError \"lu_cpu\" not implemented for 'BFloat16'"
    assert printed.splitlines() == [
        error,
        str([[2.0, 1.0], [1.0, 2.0]]),
        error,
        error,
        str([[4.0, 2.0], [2.0, 4.0]]),
    ]


def test_an_op_that_may_not_fall_back() -> None:
    x = X.to(XLA)
    sync.set_option("fallback", "error")
    try:
        y, other = both(x), x + 1
        with pytest.raises(xla_dynamo.UnsupportedOp, match=r"failed_windows\.both"):
            xm.mark_step()
        assert_same(other, X + 1)
        with pytest.raises(xla_dynamo.UnsupportedOp, match=r"failed_windows\.both"):
            y[0].cpu()
    finally:
        sync.set_option("fallback", None)


def test_a_decomposition_that_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    def raising(*arguments: object) -> None:
        raise Odd(1)

    monkeypatch.setitem(COMPOSITES, torch.ops.aten.erfinv.default, raising)
    x = X.to(XLA)
    other, bad = x + 1, (x / 7).erfinv()
    with pytest.raises(Odd, match=REFUSED):
        xm.mark_step()
    assert_same(other, X + 1)
    assert "aten.erfinv" in failed(bad)


def test_neither_a_failed_tensor_nor_its_error_keeps_others() -> None:
    x = X.to(XLA) + 1
    xm.mark_step()
    bad, other = even(x), x * 2
    with pytest.raises(Odd) as raised:
        xm.mark_step()
    kept = [weakref.ref(value_of(t).array) for t in (x, other)]
    del x, other
    gc.collect()
    assert [reference() for reference in kept] == [None, None]
    assert raised.value.__traceback__ is not None
    assert failed(bad)


def test_a_failed_tensor_enters_no_compiled_graph() -> None:
    x = X.to(XLA)
    bad = even(x)
    compiled = torch.compile(lambda t: t + 1, backend="xla")
    with pytest.raises(Odd, match=REFUSED):
        compiled(bad)
    assert_same(compiled(x), X + 1)
    with pytest.raises(Odd, match=REFUSED):
        compiled(bad)


def test_saving_and_copying() -> None:
    bad = even(X.to(XLA))
    with pytest.raises(Odd):
        xm.mark_step()
    for use in (copy.deepcopy, lambda t: torch.save(t, io.BytesIO()), torch.Tensor.clone):
        with pytest.raises(Odd, match=REFUSED):
            use(bad)


def test_closures_of_the_step_that_failed_run_at_the_next_barrier() -> None:
    seen: list[object] = []
    total, bad = X.to(XLA).sum(), even(X.to(XLA))
    xm.add_step_closure(lambda value: seen.append(value.item()), args=(total,))
    with pytest.raises(Odd):
        xm.mark_step()
    xm.mark_step()
    assert seen == [15.0]
    assert failed(bad)


def test_an_error_that_cannot_be_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    class Awkward(Exception):
        def __init__(self, code: int, *, text: str) -> None:
            super().__init__(f"{text} ({code})")

    def raising(*arguments: object) -> None:
        raise Awkward(3, text="no such thing")

    monkeypatch.setitem(COMPOSITES, torch.ops.aten.erfinv.default, raising)
    bad = (X.to(XLA) / 7).erfinv()
    with pytest.raises(Awkward, match=r"no such thing \(3\)"):
        xm.mark_step()
    with pytest.raises(RuntimeError, match=r"no such thing \(3\)"):
        bad.cpu()


def test_windows_that_share_a_program_name_their_own_lines() -> None:
    x = X.to(XLA)
    first = even(x + 1 - 1)  # the first line
    with pytest.raises(Odd):
        xm.mark_step()
    _ = x.exp().sum()
    del _
    compiled = len(xla_dynamo.compiles())
    second = even(x + 1 - 1)  # the second line
    with pytest.raises(Odd):
        xm.mark_step()
    assert len(xla_dynamo.compiles()) == compiled
    assert "# the first line" in failed(first)
    assert "# the second line" in failed(second)
