"""Views and in-place writes through chains of views, against the same on the CPU."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch_xla  # noqa: F401
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.like_eager.lazy import XLA, assert_lockstep, assert_same

pytestmark = pytest.mark.filterwarnings("ignore::xla_dynamo.RecompileWarning")

VIEWS: dict[str, Callable[[Tensor], Tensor]] = {
    "flatten": lambda x: x.reshape(-1),
    "contiguous": lambda x: x.contiguous(),
    "transpose": lambda x: x.transpose(0, -1),
    "first": lambda x: x[0] if x.dim() else x,
    "last": lambda x: x[..., -1] if x.dim() else x,
    "tail": lambda x: x[1:] if x.dim() else x,
    "every second": lambda x: x[..., ::2] if x.dim() else x,
    "narrow": lambda x: x.narrow(0, 0, max(1, x.shape[0] - 1)) if x.dim() else x,
    "unsqueeze": lambda x: x.unsqueeze(0),
    "squeeze": lambda x: x.squeeze(),
    "diagonal": lambda x: x.diagonal() if x.dim() > 1 else x,
    "permute": lambda x: x.permute(*reversed(range(x.dim()))),
    "expand": lambda x: x.expand(2, *x.shape),
    "split": lambda x: x.split(1)[0] if x.dim() and x.shape[0] else x,
    "unbind": lambda x: x.unbind(-1)[-1] if x.dim() and x.shape[-1] else x,
    "chunk": lambda x: x.chunk(2)[-1] if x.dim() else x,
    "unfold": lambda x: x.unfold(0, 1, 1) if x.dim() and x.shape[0] else x,
    "detach": lambda x: x.detach(),
    "data": lambda x: x.data,
    "alias": lambda x: x.view(x.shape),
    "view_as": lambda x: x.view_as(x),
    "movedim": lambda x: x.movedim(0, -1) if x.dim() else x,
    "T": lambda x: x.mT if x.dim() > 1 else x,
}


def _fill_from_copy(x: Tensor) -> None:
    x.copy_(x.clone() * 3)


WRITES: dict[str, Callable[[Tensor], object]] = {
    "add_": lambda x: x.add_(1),
    "mul_": lambda x: x.mul_(2),
    "sub_ alpha": lambda x: x.sub_(torch.ones_like(x), alpha=3),
    "zero_": lambda x: x.zero_(),
    "fill_": lambda x: x.fill_(7),
    "neg_": lambda x: x.neg_(),
    "copy_": _fill_from_copy,
    "copy_ cpu": lambda x: x.copy_(torch.full(x.shape, 5.0, dtype=x.dtype)),
    "setitem": lambda x: x.__setitem__((..., 0), 9.0) if x.dim() and x.shape[-1] else None,
    "setitem mask": lambda x: x.__setitem__(x > 2, -1.0),
    "masked_fill_": lambda x: x.masked_fill_(x > 4, 0.5),
    "index_add_": lambda x: (
        x.index_add_(0, torch.zeros(1, dtype=torch.int64, device=x.device), x[:1].clone())
        if x.dim() and x.shape[0]
        else None
    ),
    "clamp_": lambda x: x.clamp_(max=3),
    "relu_": lambda x: torch.relu_(x),
    "cumsum_": lambda x: x.cumsum_(0) if x.dim() else None,
    "foreach": lambda x: torch._foreach_add_([x], 1.5),
    "addcmul_": lambda x: x.addcmul_(x.clone(), x.clone(), value=0.5),
    "out": lambda x: torch.add(x.clone(), 1, out=x),
}

_CUT = "cut"  # read one of the tensors
_steps = st.lists(
    st.tuples(st.integers(0, 20), st.sampled_from([*VIEWS, *VIEWS, *WRITES, _CUT])),
    min_size=1,
    max_size=10,
)


def play(
    base: Tensor, steps: list[tuple[int, str]], legal: list[bool] | None = None
) -> tuple[list[Tensor], list[bool]]:
    """Apply each step to one of the tensors made so far.

    Returns all of them, and which steps were legal: nothing is written to an expanded tensor.
    """
    tensors, found = [base], []
    for i, (which, name) in enumerate(steps):
        x = tensors[which % len(tensors)]
        found.append(_legal(x, name) if legal is None else legal[i])
        if not found[-1]:
            continue
        if name in VIEWS:
            tensors.append(VIEWS[name](x))
        elif name in WRITES:
            WRITES[name](x)
        else:
            x.tolist()
    return tensors, found


def _legal(x: Tensor, name: str) -> bool:
    overlapping = any(s == 0 and n > 1 for s, n in zip(x.stride(), x.shape, strict=True))
    return not (name in WRITES and overlapping)


@settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(_steps)
def test_random_chains_of_views_and_writes(steps: list[tuple[int, str]]) -> None:
    base = torch.arange(12, dtype=torch.float64).reshape(3, 4)
    device = base.to(XLA)
    with torch.no_grad():
        expected, legal = play(base, steps)
        assert_same(play(device, steps, legal)[0], expected)


@pytest.mark.parametrize("write", WRITES)
def test_a_write_reaches_the_base_and_views_made_before_and_after(write: str) -> None:
    def chain(base: Tensor) -> list[Tensor]:
        before = base.view(-1)[2:]
        view = base.t()[1:]
        WRITES[write](view)
        return [base, before, view, base[0], before.view(2, 5)]

    assert_lockstep(chain, torch.arange(12, dtype=torch.float64).reshape(3, 4))


@pytest.mark.parametrize("view", VIEWS)
def test_writes_to_base_and_view_interleave(view: str) -> None:
    def chain(base: Tensor) -> list[Tensor]:
        made = VIEWS[view](base)
        base.add_(1)
        if view != "expand":
            made.mul_(2)
        base[0, 0] = 100
        return [base, made, made.sum()]

    assert_lockstep(chain, torch.arange(12, dtype=torch.float64).reshape(3, 4))


def test_writes_across_barriers() -> None:
    def chain(base: Tensor) -> list[Tensor]:
        row, column = base[1], base[:, 2]
        row.add_(1)
        base.sum().item()  # a barrier with the views alive
        column.mul_(3)
        row.sum().item()
        base.neg_()
        return [base, row, column]

    assert_lockstep(chain, torch.arange(12, dtype=torch.float64).reshape(3, 4))


def test_as_strided_views_write_through() -> None:
    def chain(base: Tensor) -> list[Tensor]:
        window = base.as_strided((3, 3), (4, 1), 1)
        window.zero_()
        return [base, window]

    assert_lockstep(chain, torch.arange(12.0).reshape(3, 4) + 1)


PARTS: dict[str, Callable[[Tensor], Tensor]] = {
    "slice": lambda x: x[2:],
    "slice of slices": lambda x: x[1:][2:],
    "transposed": lambda x: x.t()[1:],
    "block": lambda x: x[1:, 2:],
    "diagonal": lambda x: x[1:].diagonal(),
    "unfold": lambda x: x.view(-1).unfold(0, 3, 2)[2],
    "split": lambda x: x.split(2)[1].unbind(1)[3],
    "squeeze": lambda x: x.chunk(2, 1)[1].unsqueeze(0).squeeze(),
    "expanded": lambda x: x[4, :1].expand(4, 6),
}


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("grad", [False, True])
def test_as_strided_begins_where_its_view_begins(part: str, grad: bool) -> None:
    def chain(base: Tensor) -> list[Tensor]:
        x = base * 1
        window = PARTS[part](x).as_strided((2, 2), (2, 1))
        if not grad:
            window.mul_(3)
        return [x, window]

    assert_lockstep(chain, torch.arange(24.0).reshape(6, 4).requires_grad_(grad))


GEOMETRIES = [((4,), (1,)), ((2, 2), (0, 3)), ((2, 2), (1, 2)), ((1, 1), (1, 0))]


@pytest.mark.parametrize("part", [*PARTS, "view", "transpose"])
def test_gradients_of_as_strided_are_those_of_its_operand(part: str) -> None:
    """Elements of the same memory that are not the operand's have none."""
    whole = {"view": lambda x: x.view(3, 8), "transpose": lambda x: x.t()}

    def chain(base: Tensor) -> list[Tensor | None]:
        x = base * 1
        operand = (PARTS | whole)[part](x)
        seen = []
        for size, stride in GEOMETRIES:
            y = operand.as_strided(size, stride, 1)
            weights = torch.arange(1.0, 1 + y.numel(), device=y.device).view(y.shape)
            # A part's own gradient would have to come from the whole.
            leaves = [base, x] + [operand] * (part in whole)
            seen += torch.autograd.grad([y], leaves, [weights], retain_graph=True)
        return seen

    assert_lockstep(chain, torch.arange(24.0).reshape(6, 4).requires_grad_())


def test_a_written_view_has_the_gradient_of_its_as_strided() -> None:
    def chain(p: Tensor) -> list[Tensor]:
        x = torch.zeros(4, device=p.device).view(2, 2)
        x.add_(p)
        y = x.as_strided((2,), (2,))
        return list(torch.autograd.grad([y], [p, x], [torch.ones_like(y)]))

    assert_lockstep(chain, torch.tensor(2.0).requires_grad_())


UNKNOWN: dict[str, Callable[[Tensor], Tensor]] = {
    "empty": lambda x: x[5:5],
    "real": lambda x: torch.view_as_complex(x.view(6, 2)).imag,
}


@pytest.mark.parametrize("part", UNKNOWN)
def test_as_strided_of_a_view_without_a_beginning(part: str) -> None:
    with pytest.raises(RuntimeError, match="Give storage_offset"):
        UNKNOWN[part](torch.arange(12.0, device=XLA)).as_strided((2, 2), (2, 1))
    assert_lockstep(lambda x: UNKNOWN[part](x).as_strided((2,), (1,), 5), torch.arange(12.0))


def test_as_strided_of_another_dtype_addresses_its_elements() -> None:
    def chain(x: Tensor) -> list[Tensor]:
        words = x.view(torch.int16)
        return [words.as_strided((3, 2), (2, 1), 4), words.as_strided((2, 3), (1, 2))]

    assert_lockstep(chain, torch.arange(12.0))


NO_BASE: dict[str, Callable[[Tensor], Tensor]] = {
    "data": lambda x: x[2:].data,
    "detach": lambda x: x[2:].detach(),
    "another dtype": lambda x: x[2:].view(torch.int32),
}


@pytest.mark.parametrize("part", NO_BASE)
def test_as_strided_of_a_part_that_lost_its_base_is_refused(part: str) -> None:
    x = torch.arange(12.0, device=XLA)
    with pytest.raises(RuntimeError, match="index the tensor instead"):
        NO_BASE[part](x).as_strided((2, 2), (2, 1), 3)
    for whole in (x.data, x.detach(), x.view(3, 4).detach()):
        assert_same(whole.as_strided((2,), (3,), 1), torch.tensor([1.0, 4.0]))


def test_complex_views() -> None:
    def chain(z: Tensor) -> list[Tensor]:
        pairs = torch.view_as_real(z)
        pairs[..., 1].mul_(-1)
        z.real.add_(1)
        return [z, pairs, z.imag, torch.view_as_complex(pairs.clone()), z.conj() * z]

    assert_lockstep(chain, torch.complex(torch.arange(4.0), torch.ones(4)))


def test_conj_and_neg_views() -> None:
    def chain(z: Tensor) -> list[Tensor]:
        conjugate = z.conj()
        z.mul_(2)
        conjugate.add_(1j)
        minus = conjugate.imag
        return [z, conjugate.resolve_conj(), minus.resolve_neg() + 0, z.conj().clone()]

    assert_lockstep(chain, torch.tensor([1 + 2j, 3 - 1j]))


def test_views_with_another_dtype() -> None:
    assert_lockstep(lambda x: x.view(torch.int32), torch.tensor([1.0, -2.0]))
    assert_lockstep(lambda x: x.view(torch.int16), torch.tensor([[1.0, -2.0]]))


def test_in_place_numbers_keep_their_precision_under_autograd() -> None:
    def chain(leaf: Tensor) -> list[Tensor]:
        x = leaf * 1
        x.add_(0.1).mul_(0.3).sub_(0.7, alpha=3).div_(1.1).pow_(2)
        x.add_(1).mul_(3)
        x.sum().backward()
        return [x.detach()]

    x = torch.linspace(-1, 1, 5, dtype=torch.float64).requires_grad_()
    assert_lockstep(chain, x, rtol=1e-15, atol=1e-15)


def test_in_place_with_autograd_through_views() -> None:
    def chain(leaf: Tensor) -> list[Tensor]:
        x = leaf * 1
        x[0] = x[1] * 2
        x[:, 1:].mul_(leaf[:, 1:])
        x.t()[0].add_(leaf.sum())
        loss = (x**2).sum()
        loss.backward()
        assert leaf.grad is not None
        return [loss.detach(), leaf.grad, x.detach()]

    assert_lockstep(chain, torch.arange(12.0, dtype=torch.float64).reshape(3, 4).requires_grad_())


def test_slices_of_the_same_memory_overlap() -> None:
    def chain(base: Tensor) -> list[Tensor]:
        left, right = base[:4], base[2:]
        left.add_(1)
        right.mul_(2)
        left.copy_(right.clone())
        return [base, left, right]

    assert_lockstep(chain, torch.arange(6.0))


def test_lists_of_views_are_updated_together() -> None:
    def chain(base: Tensor) -> list[Tensor]:
        rows = list(base.unbind(0))
        torch._foreach_mul_(rows, [2.0, 3.0, 4.0])
        torch._foreach_add_(rows, base[:, :1].clone().unbind(0))
        return [base, *rows]

    def guarded(base: Tensor) -> list[Tensor]:
        with torch.no_grad():
            return chain(base.clone())

    assert_lockstep(guarded, torch.arange(12.0).reshape(3, 4))


def test_data_shares_memory_and_can_be_replaced() -> None:
    def chain(x: Tensor) -> list[Tensor]:
        p = torch.nn.Parameter(x.clone())
        shared = p.data
        shared.add_(1)
        p.data = p.data * 2
        shared.add_(100)  # no longer shared
        p.data[0] = -1
        other = p.detach()
        other.mul_(3)
        return [p.detach(), shared, other]

    assert_lockstep(chain, torch.arange(6.0).reshape(2, 3))


@pytest.mark.parametrize("size", [(6,), (3, 2), (2, 2), (1,), (0, 4), ()])
def test_resize_as(size: tuple[int, ...]) -> None:
    other = torch.zeros(size)

    def chain(x: Tensor) -> list[Tensor]:
        return [(x * 2).resize_as_(other.to(x.device)), (x + 1).resize_(size)]

    assert_lockstep(chain, torch.arange(6.0).reshape(2, 3))
    grown = torch.arange(6.0, device=XLA).resize_as_(torch.zeros(4, 2, device=XLA))
    assert_same(grown[:3], torch.arange(6.0).reshape(3, 2))


def test_set_and_resize() -> None:
    def chain(x: Tensor) -> list[Tensor]:
        grown = torch.empty(0, device=x.device)
        torch.add(x, 1, out=grown)
        taken = torch.empty(1, device=x.device)
        taken.set_(x)
        return [grown, taken, x.clone().resize_(2, 2)]

    assert_lockstep(chain, torch.arange(6.0).reshape(2, 3))
