"""Dtypes and shapes that eager PyTorch refuses for an op: both doors do, with eager's words."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import xla_dynamo
import xla_dynamo.compat
from xla_dynamo.backend import metrics

HALF, LONG, BOOL, COMPLEX = torch.bfloat16, torch.int64, torch.bool, torch.complex64
FLOAT, DOUBLE = torch.float32, torch.float64

REFUSED: dict[str, tuple[Callable[..., Tensor], list[torch.dtype]]] = {
    "mm": (torch.mm, [FLOAT, LONG]),
    "matmul": (torch.matmul, [BOOL, LONG]),
    "mv": (lambda x, y: torch.mv(x, y[0]), [DOUBLE, LONG]),  # PyTorch has a decomposition
    "bools": (torch.mm, [BOOL, BOOL]),
    "linear": (F.linear, [BOOL, FLOAT]),
    "bias": (lambda x, y: torch.addmm(y, x, x), [FLOAT, DOUBLE]),
    "convolution": (lambda x, y: F.conv1d(x[None], y[:, :, None]), [FLOAT, LONG]),
    "index_add": (lambda x, y: x.index_add(0, torch.arange(4, device=x.device), y), [FLOAT, LONG]),
    "index_put": (lambda x, y: x.index_put((torch.arange(4, device=x.device),), y), [FLOAT, HALF]),
    "order": (torch.lt, [COMPLEX, FLOAT]),
    "maximum": (torch.maximum, [FLOAT, COMPLEX]),
    "clamp": (lambda x: x.clamp(min=1), [COMPLEX]),
    "largest": (lambda x: x.amax(0), [COMPLEX]),
    "softmax": (lambda x: torch.softmax(x, 0), [LONG]),
    "gelu": (F.gelu, [LONG]),
    "argmax": (lambda x: x.argmax(0), [BOOL]),
    "hypot": (torch.hypot, [LONG, BOOL]),
    "layer_norm": (lambda x, y: F.layer_norm(x, (4,), y[0], y[1]), [FLOAT, LONG]),
    "negative power": (lambda x: x**-1, [LONG]),
    "subtraction": (torch.sub, [BOOL, BOOL]),
    "bits of floats": (torch.bitwise_and, [FLOAT, FLOAT]),
    "bits of a float": (torch.bitwise_not, [HALF]),
    "divisor of floats": (torch.gcd, [HALF, HALF]),
    "multiple of floats": (torch.lcm, [FLOAT, LONG]),
}

# What PyTorch's tracing says before the backend is asked.
OTHER_WORDS = {"convolution": "should be the same"}


def _tensors(dtypes: list[torch.dtype]) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [(torch.randn(4, 4, generator=generator) * 3).to(dtype) for dtype in dtypes]


REFUSED |= {
    "range of float16": (lambda x: x.clone().random_(3, 65506), [torch.float16]),
    "range of int8": (lambda x: x.clone().random_(0, 1000), [torch.int8]),
    "range of bool": (lambda x: x.clone().random_(0, 3), [BOOL]),
    "empty range": (lambda x: x.clone().random_(3, 1), [FLOAT]),
    "nothing below 0": (lambda x: x.clone().random_(0), [LONG]),
    "uniform upside down": (lambda x: x.clone().uniform_(3, 1), [FLOAT]),
    "uniform too wide": (lambda x: x.clone().uniform_(-1e6, 1), [torch.float16]),
    "uniform integers": (lambda x: x.clone().uniform_(), [LONG]),
    "negative deviation": (lambda x: x.clone().normal_(0, -1), [FLOAT]),
    "deviation of means": (lambda x: torch.normal(x, -1.0), [FLOAT]),
    "log_normal": (lambda x: x.clone().log_normal_(0, 0), [FLOAT]),
    "exponential": (lambda x: x.clone().exponential_(0), [HALF]),
    "geometric": (lambda x: x.clone().geometric_(1.5), [FLOAT]),
    "cauchy": (lambda x: x.clone().cauchy_(0, 0), [DOUBLE]),
    "bernoulli": (lambda x: x.clone().bernoulli_(1.5), [FLOAT]),
    "randint": (lambda x: x + torch.randint(3, 1, (4,), device=x.device), [FLOAT]),
    "randint of int8": (
        lambda x: torch.randint(0, 1000, (4,), dtype=torch.int8, device=x.device),
        [FLOAT],
    ),
    "randint_like": (lambda x: torch.randint_like(x, 3, 1), [FLOAT]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_as_in_eager(name: str) -> None:
    function, dtypes = REFUSED[name]
    given = _tensors(dtypes)
    with pytest.raises(RuntimeError) as eager:
        function(*given)
    expected = str(eager.value).splitlines()[0]
    on_device = [x.to("xla:0") for x in given]
    with pytest.raises(RuntimeError) as lazy:  # at the op: nothing is read here
        function(*on_device)
    # Where functionalization asks PyTorch's Python code first, floats are printed as Python's.
    assert re.sub(r"\.0$", "", str(lazy.value).splitlines()[0]) == re.sub(r"\.0$", "", expected)
    compiled = torch.compile(function, backend="xla", dynamic=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", metrics.FallbackWarning)
        with pytest.raises(RuntimeError) as raised:
            compiled(*given)
    assert OTHER_WORDS.get(name, expected) in str(raised.value)


def test_asking_eager_draws_nothing() -> None:
    """The user's generator is where it was, for ranges that eager takes."""
    state = torch.get_rng_state()
    x = torch.ones(4, device="xla:0").uniform_(2, 3)
    assert x.cpu().ge(2).all()
    assert torch.equal(torch.get_rng_state(), state)


MIXED: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "mm": torch.mm,
    "matmul": lambda x, y: x[None] @ y,
    "linear": F.linear,
    "convolution": lambda x, y: F.conv1d(x[None], y[:, :, None]),
    "index_add": lambda x, y: x.index_add(0, torch.arange(4, device=x.device), y),
    "index_copy": lambda x, y: x.index_copy(0, torch.arange(4, device=x.device), y),
    "layer_norm": lambda x, y: F.layer_norm(x, (4,), y[0], y[1]),
}


@pytest.mark.parametrize("dtypes", [(FLOAT, HALF), (HALF, FLOAT), (DOUBLE, FLOAT)], ids=str)
@pytest.mark.parametrize("name", MIXED)
def test_floats_of_two_dtypes_as_in_torch_xla(
    name: str, dtypes: tuple[torch.dtype, torch.dtype]
) -> None:
    x, y = _tensors(list(dtypes))
    with warnings.catch_warnings():
        warnings.simplefilter("error", metrics.FallbackWarning)
        actual = MIXED[name](x.to("xla:0"), y.to("xla:0")).cpu()
    assert actual.dtype is x.dtype
    expected = MIXED[name](x.double(), y.double()).to(x.dtype)
    torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("name", ["mm", "matmul", "linear"])
def test_torch_compile_takes_floats_of_one_dtype(name: str) -> None:
    given = _tensors([FLOAT, HALF])
    with pytest.raises(RuntimeError) as eager:
        MIXED[name](*given)
    compiled = torch.compile(MIXED[name], backend="xla", dynamic=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", metrics.FallbackWarning)
        with pytest.raises(RuntimeError) as raised:
            compiled(*given)
    assert str(eager.value) in str(raised.value)


TAKEN: dict[str, tuple[Callable[..., Tensor], list[torch.dtype]]] = {
    "embedding": (lambda w, i: F.embedding(i % 4, w), [FLOAT, LONG]),
    "a mask": (lambda x, m: x * m + torch.where(m, x, 0), [FLOAT, BOOL]),
    "promotion": (torch.atan2, [HALF, LONG]),
    "labels": (lambda x, i: F.cross_entropy(x, i[0] % 4), [FLOAT, LONG]),
    "integer products": (torch.mm, [LONG, LONG]),
    "norm in bfloat16": (lambda x, w: F.layer_norm(x, (4,), w[0], w[1]), [HALF, FLOAT]),
    "index_copy": (lambda x: x.index_copy(0, torch.arange(4, device=x.device), x), [LONG]),
    "no remainders": (lambda x: x[:0] % 0, [LONG]),
    "order of integers": (lambda x: x.sort(0)[0] + x.cummax(1)[0], [LONG]),
}


@pytest.mark.parametrize("name", TAKEN)
def test_what_eager_takes_is_lowered(name: str) -> None:
    function, dtypes = TAKEN[name]
    given = _tensors(dtypes)
    expected = function(*given)
    with warnings.catch_warnings():
        warnings.simplefilter("error", metrics.FallbackWarning)
        compiled = torch.compile(function, backend="xla", dynamic=False, fullgraph=True)
        actual = compiled(*given)
        lazy = function(*[x.to("xla:0") for x in given]).cpu()
    torch.testing.assert_close(actual, expected)
    torch.testing.assert_close(lazy, expected)


@pytest.mark.parametrize("bias", [LONG, BOOL, HALF, DOUBLE, COMPLEX], ids=str)
def test_addr_adds_a_bias_of_another_dtype(bias: torch.dtype) -> None:
    b, x = _tensors([bias, FLOAT])
    expected = torch.addr(b, x[0], x[1], beta=2, alpha=3)
    actual = torch.compile(torch.addr, backend="xla")(b, x[0], x[1], beta=2, alpha=3)
    torch.testing.assert_close(actual, expected)


def test_allclose_of_two_dtypes() -> None:
    x = torch.ones(3).to("xla:0")
    with pytest.raises(RuntimeError, match="Float did not match Double"):
        torch.allclose(x, x.double())
    assert torch.allclose(x, x + 1e-7)


def _ones(*shape: int) -> Tensor:
    return torch.ones(shape)


LARGE_SUMMANDS = {
    "addmm": (torch.addmm, _ones(1, 2), _ones(1, 1), _ones(1, 1)),
    "addmm of more dims": (torch.addmm, _ones(1, 1, 1), _ones(1, 4), _ones(4, 3)),
    "addmv": (torch.addmv, _ones(2), _ones(1, 1), _ones(1)),
    "_addmm_activation": (torch._addmm_activation, _ones(2), _ones(1, 1), _ones(1, 1)),
    "linear": (torch.nn.functional.linear, _ones(1, 1), _ones(1, 1), _ones(2)),
    "linear of more dims": (torch.nn.functional.linear, _ones(2, 1, 1), _ones(1, 1), _ones(2)),
}


@pytest.mark.parametrize("device", ["cpu", "xla:0"])
@pytest.mark.parametrize("name", LARGE_SUMMANDS)
def test_summands_larger_than_the_product(name: str, device: str) -> None:
    """Eager does not make the product larger; shape inference does."""
    op, *operands = LARGE_SUMMANDS[name]
    with pytest.raises(RuntimeError) as eager:
        op(*operands)
    run = torch.compile(op, backend="xla") if device == "cpu" else op
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that eager runs it
        with pytest.raises(RuntimeError) as raised:
            run(*[operand.to(device) for operand in operands])
    assert str(eager.value) in str(raised.value)


@pytest.mark.parametrize("shape", [(), (1,), (3,), (1, 3), (2, 1), (2, 3)])
def test_summands_that_fit(shape: tuple[int, ...]) -> None:
    operands = torch.rand(shape), torch.rand(2, 4), torch.rand(4, 3)
    expected = torch.addmm(*operands)
    torch.testing.assert_close(torch.compile(torch.addmm, backend="xla")(*operands), expected)
    lazy = torch.addmm(*[operand.to("xla:0") for operand in operands])
    torch.testing.assert_close(lazy.cpu(), expected)
    assert xla_dynamo.counters() == {}  # no fallback
