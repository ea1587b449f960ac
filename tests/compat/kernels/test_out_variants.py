"""`out=`: eager's numbers, eager's refusals; what it writes through views."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import xla_dynamo.compat  # noqa: F401

XLA = torch.device("xla:0")


def attempt(function: Callable[[str], Tensor], device: str) -> Tensor | str:
    try:
        return function(device).cpu()
    except (RuntimeError, TypeError) as error:
        return " ".join(str(error).split())


def assert_same(function: Callable[[str], Tensor]) -> None:
    want, got = attempt(function, "cpu"), attempt(function, "xla:0")
    if isinstance(want, str) or isinstance(got, str):
        assert got == want
    else:
        torch.testing.assert_close(got, want)


OPS: dict[str, Callable[..., Tensor]] = {
    "abs": lambda x, out: torch.abs(x, out=out),
    "add": lambda x, out: torch.add(x, 2.5, out=out),
    "argmax": lambda x, out: torch.argmax(x, 1, keepdim=True, out=out),
    "bitwise_not": lambda x, out: torch.bitwise_not(x.long(), out=out),
    "cumsum": lambda x, out: torch.cumsum(x, 1, out=out),
    "diag": lambda x, out: torch.diag(x, out=out),
    "eq": lambda x, out: torch.eq(x, 1, out=out),
    "lerp": lambda x, out: torch.lerp(x, x.double(), 0.5, out=out),
    "mean": lambda x, out: torch.mean(x, 0, out=out),
    "mm": lambda x, out: torch.mm(x, x.T, out=out),
    "prod": lambda x, out: torch.prod(x, 0, out=out),
    "sigmoid": lambda x, out: torch.sigmoid(x, out=out),
    "stack": lambda x, out: torch.stack([x, x], out=out),
    "sum": lambda x, out: torch.sum(x, 0, out=out),
    "true_divide": lambda x, out: torch.true_divide(x, 2, out=out),
}
DTYPES = [torch.float32, torch.float64, torch.int64, torch.bool, torch.complex64]


@pytest.mark.parametrize("to", DTYPES)
@pytest.mark.parametrize("name", OPS)
def test_dtypes(name: str, to: torch.dtype) -> None:
    """A dtype that can hold the result gets it; another is refused in eager's words."""
    for dtype in (torch.float32, torch.int64):
        x = torch.tensor([[1, 2, 3], [4, 7, 9]], dtype=dtype) - 3
        assert_same(lambda d, x=x: OPS[name](x.to(d), torch.empty(0, dtype=to, device=d)))


def test_two_results() -> None:
    x = torch.tensor([[3.0, 1.0, 2.0]])

    def sort(device: str, places: torch.dtype) -> Tensor:
        outs = torch.empty(0, device=device), torch.empty(0, dtype=places, device=device)
        result = torch.sort(x.to(device), out=outs)
        assert all(one is out for one, out in zip(result, outs, strict=True))
        return torch.cat([outs[0], outs[1].float()])

    assert_same(lambda device: sort(device, torch.int64))
    assert_same(lambda device: sort(device, torch.int32))


def test_a_view_is_written_through() -> None:
    def write(device: str) -> Tensor:
        base = torch.zeros(3, 4, device=device)
        x = torch.arange(3.0, device=device)
        torch.sin(x, out=base[:, 1])
        torch.mv(torch.ones(4, 3, device=device), x, out=base[2])
        torch.add(base[0], 1, out=base.T[:, 0])
        return base

    assert_same(write)


def test_an_operand_may_be_written_to() -> None:
    def step(device: str) -> Tensor:
        x = torch.arange(4.0, device=device)
        version = x._version
        assert torch.add(x, x, out=x) is x
        torch.maximum(x, x.flip(0), out=x)
        assert x._version > version
        return x

    assert_same(step)


@pytest.mark.parametrize("op", ["sin", "cumsum"])
def test_memory_that_is_there_twice_is_refused(op: str) -> None:
    def write(device: str) -> Tensor:
        base = torch.ones(3, 1, device=device)
        x = torch.ones(3, 4, device=device)
        args = (x, 0) if op == "cumsum" else (x,)
        return getattr(torch, op)(*args, out=base.expand(3, 4))

    with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
        write("xla:0")


def test_expanded_without_repetition() -> None:
    def write(device: str) -> Tensor:
        base = torch.ones(2, 3, device=device)
        torch.exp(torch.zeros(1, 2, 3, device=device), out=base.expand(1, 2, 3))
        torch.cumsum(base, 1, out=base.expand(2, 3))
        return base

    assert_same(write)


@pytest.mark.parametrize("numbers", [0, 6])
def test_another_shape_is_resized(numbers: int) -> None:
    for device in ("cpu", "xla:0"):
        out = torch.ones(numbers, device=device)
        x = torch.arange(4.0, device=device).reshape(2, 2)
        if numbers:
            with pytest.warns(UserWarning, match=r"was resized since it had shape \[6\]"):
                torch.neg(x, out=out)
        else:
            torch.neg(x, out=out)
        assert out.tolist() == [[0.0, -1.0], [-2.0, -3.0]]


@pytest.mark.parametrize("shape", [(3, 4), (12,), (0,)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bfloat16])
def test_factories(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    def made(device: str) -> Tensor:
        def out() -> Tensor:
            return torch.ones(shape, dtype=dtype, device=device)

        base = torch.zeros(6, 8, dtype=dtype, device=device)
        torch.arange(12, out=base[::2, ::2])
        row = [torch.arange(1, 13, out=out()), torch.linspace(0, 33, 12, out=out())]
        square = [torch.eye(3, 4, out=out()), torch.full((3, 4), 7, out=out())]
        return torch.cat([t.flatten() for t in (*row, *square, base)])

    assert_same(made)


def test_a_row_fits_any_shape() -> None:
    out = torch.zeros(3, 4, dtype=torch.int64, device=XLA)
    assert torch.arange(12, out=out).shape == (3, 4)
    assert out[1].tolist() == [4, 5, 6, 7]


def test_gradients_are_refused() -> None:
    def write(device: str) -> Tensor:
        x = torch.ones(2, device=device, requires_grad=True)
        return torch.exp(x, out=torch.empty(2, device=device))

    assert_same(write)
    with torch.no_grad():
        assert_same(write)


def test_autocast_leaves_it_alone() -> None:
    x = torch.full((2, 2), 1 + 2**-12, device=XLA)
    with torch.autocast("xla", dtype=torch.bfloat16):
        got = torch.mm(x, x, out=torch.empty(2, 2, device=XLA))
    torch.testing.assert_close(got.cpu(), torch.mm(x.cpu(), x.cpu()), rtol=1e-6, atol=0)


def test_ldexp_in_place_refuses_fractions() -> None:
    def write(device: str) -> Tensor:
        return torch.ones(2, dtype=torch.int64, device=device).ldexp_(
            torch.tensor([-1, -1], device=device)
        )

    assert_same(write)


def test_a_tensor_of_another_device_is_refused() -> None:
    x = torch.ones(2, device=XLA)
    with pytest.raises(RuntimeError, match="two devices, cpu and xla:0"):
        torch.exp(x.cpu(), out=x)
    with pytest.raises(RuntimeError, match="two devices, cpu and xla:0"):
        torch.exp(x, out=torch.ones(2))
