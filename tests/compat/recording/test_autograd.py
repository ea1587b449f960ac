"""Autograd on the device: hooks, double backward, checkpoint, functional transforms."""

from __future__ import annotations

import pytest
import torch
import torch_xla  # noqa: F401
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

from tests.like_eager.lazy import XLA, assert_lockstep, to_device

X = torch.linspace(-1, 2, 12, dtype=torch.float64).reshape(3, 4)
EXACT = {"rtol": 1e-12, "atol": 1e-12}


def _times_ten(leaf: Tensor) -> None:
    assert leaf.grad is not None
    leaf.grad.mul_(10)


def test_hooks_of_tensors() -> None:
    def chain(x: Tensor) -> list[Tensor]:
        seen: list[Tensor] = []
        y = x * 2
        y.register_hook(lambda grad: grad * 3)
        y.register_hook(seen.append)
        x.register_post_accumulate_grad_hook(_times_ten)
        removed = y.register_hook(lambda grad: grad * 1000)
        removed.remove()
        (y**2).sum().backward()
        return [*seen, x.grad]

    assert_lockstep(chain, X.clone().requires_grad_(), **EXACT)


def test_hooks_of_modules() -> None:
    def chain(module: nn.Module, x: Tensor) -> list[Tensor]:
        seen: list[Tensor] = []
        module.register_forward_pre_hook(lambda m, args: (args[0] * 2,))
        module.register_forward_hook(lambda m, args, out: seen.append(out.detach()))
        module.register_full_backward_hook(lambda m, gi, go: seen.extend([gi[0], go[0]]))
        module(x).pow(2).sum().backward()
        return [*seen, x.grad]

    assert_lockstep(chain, nn.Linear(4, 2).double(), X.clone().requires_grad_(), **EXACT)


def test_retained_gradients_and_accumulation() -> None:
    def chain(x: Tensor) -> list[Tensor]:
        y = x.sin()
        y.retain_grad()
        loss = (y * y).sum()
        loss.backward(retain_graph=True)
        loss.backward()
        grad = y.grad
        assert grad is not None
        return [x.grad, grad]

    assert_lockstep(chain, X.clone().requires_grad_(), **EXACT)


def test_double_and_triple_backward() -> None:
    def chain(x: Tensor) -> list[Tensor]:
        (first,) = torch.autograd.grad((x**4).sum(), x, create_graph=True)
        (second,) = torch.autograd.grad((first * x).sum(), x, create_graph=True)
        (third,) = torch.autograd.grad(second.sum(), x)
        return [first.detach(), second.detach(), third]

    assert_lockstep(chain, X.clone().requires_grad_(), **EXACT)


def test_gradient_penalty_trains() -> None:
    def chain(module: nn.Module, x: Tensor) -> Tensor:
        (grad,) = torch.autograd.grad(module(x).sum(), x, create_graph=True)
        penalty = ((grad.norm(2, dim=1) - 1) ** 2).mean()
        penalty.backward()
        return penalty.detach()

    module = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)).double()
    assert_lockstep(chain, module, X.clone().requires_grad_(), **EXACT)


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoint(reentrant: bool) -> None:
    def chain(module: nn.Module, x: Tensor) -> Tensor:
        loss = checkpoint(module, x, use_reentrant=reentrant).pow(2).sum()
        loss.backward()
        return loss.detach()

    module = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)).double()
    assert_lockstep(chain, module, X.clone().requires_grad_(), **EXACT)


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoint_draws_the_same_dropout_again(reentrant: bool) -> None:
    x = torch.ones(64, device=XLA, requires_grad=True)
    out = checkpoint(nn.functional.dropout, x, use_reentrant=reentrant)
    out.sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == out.tolist()
    assert {0.0, 2.0} == set(out.tolist())


def test_checkpoint_sequential() -> None:
    def chain(module: nn.Sequential, x: Tensor) -> Tensor:
        loss = checkpoint_sequential(module, 2, x, use_reentrant=False).sum()
        loss.backward()
        return loss.detach()

    module = nn.Sequential(*(nn.Linear(4, 4) for _ in range(4))).double()
    assert_lockstep(chain, module, X.clone().requires_grad_(), **EXACT)


class _Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, grad: Tensor) -> Tensor:  # type: ignore[override]
        (x,) = ctx.saved_tensors  # type: ignore[attr-defined]
        assert x.device == grad.device
        return 3 * x * x * grad


def test_functions_written_in_python() -> None:
    def chain(x: Tensor) -> Tensor:
        _Cube.apply(x).sum().backward()
        return x * 1

    assert_lockstep(chain, X.clone().requires_grad_(), **EXACT)


def test_a_saved_tensor_that_changed_is_an_error() -> None:
    x = torch.ones(3, device=XLA, requires_grad=True)
    y = x.exp()
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()
    z = torch.ones(3, device=XLA, requires_grad=True)
    with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
        z.add_(1)


def test_requires_grad_and_detach() -> None:
    def chain(x: Tensor) -> list[Tensor]:
        frozen = x.detach()
        free = frozen.clone().requires_grad_()
        (free * frozen).sum().backward()
        with torch.no_grad():
            free.sub_(free.grad)
        assert free.grad is not None
        return [frozen, free.detach(), free.grad]

    assert_lockstep(chain, X.clone().requires_grad_(), **EXACT)


def test_zero_grad_both_ways() -> None:
    def chain(module: nn.Linear, x: Tensor) -> list[Tensor]:
        for to_none in (True, False, False):
            module.zero_grad(set_to_none=to_none)
            module(x).sum().backward()
        assert module.weight.grad is not None
        return [module.weight.grad]

    assert_lockstep(chain, nn.Linear(4, 2).double(), X, **EXACT)


def test_functional_transforms() -> None:
    def loss(x: Tensor) -> Tensor:
        return (x.sin() * x).sum()

    def chain(x: Tensor) -> list[Tensor]:
        return [
            torch.func.grad(loss)(x),
            torch.vmap(loss)(x),
            torch.vmap(torch.func.grad(loss))(x),
            torch.func.jacrev(lambda v: v**2)(x[0]),
            torch.func.jacfwd(lambda v: v**2)(x[0]),
            torch.func.hessian(loss)(x[0]),
            torch.func.jvp(loss, (x,), (torch.ones_like(x),))[1],
            torch.func.vjp(loss, x)[1](torch.ones((), dtype=x.dtype, device=x.device))[0],
        ]

    assert_lockstep(chain, X, **EXACT)


def test_functional_transforms_of_in_place_ops() -> None:
    def loss(x: Tensor) -> Tensor:
        y = x * 2
        y.sin_()
        y[0] = x[1]
        y[1:].mul_(x[1:])
        y[:1].fill_(3.0)
        return (y * y * x).sum()

    def chain(x: Tensor) -> list[Tensor]:
        hessian = torch.func.jacfwd(torch.func.grad(loss))(x[0])
        return [torch.func.grad(loss)(x[0]), torch.vmap(torch.func.grad(loss))(x), hessian]

    assert_lockstep(chain, X, **EXACT)


IN_PLACE = {
    "number": lambda y, x: y.add_(1).sub_(0.5).mul_(3).div_(7),
    "number of a view": lambda y, x: y[1:].mul_(3),
    "rounded": lambda y, x: (y * 5).div_(2, rounding_mode="floor"),
    "tensor": lambda y, x: y.add_(x).mul_(x),
    "in zeros": lambda y, x: torch.zeros_like(x).add_(y).mul_(2),
    "before": lambda y, x: x.clone().mul_(4),
}


@pytest.mark.parametrize("write", IN_PLACE)
def test_gradients_of_in_place_ops_with_numbers(write: str) -> None:
    def loss(x: Tensor) -> Tensor:
        y = x * 1
        z = IN_PLACE[write](y, x)
        return (y * z.sum() * x).sum()

    def chain(x: Tensor) -> list[Tensor]:
        rows = torch.vmap(torch.func.grad(loss))(x)
        tangent = torch.func.jvp(loss, (x,), (torch.ones_like(x),))[1]
        x.mul_(2)  # outside again, the op is recorded at once
        return [torch.func.grad(loss)(x[0]), rows, torch.func.hessian(loss)(x[0]), tangent]

    assert_lockstep(chain, X, **EXACT)


def test_functional_call_and_per_sample_gradients() -> None:
    module = nn.Linear(4, 2).double()

    def chain(state: dict[str, Tensor], x: Tensor) -> dict[str, Tensor]:
        def loss(state: dict[str, Tensor], row: Tensor) -> Tensor:
            return torch.func.functional_call(module, state, (row,)).pow(2).sum()

        return torch.vmap(torch.func.grad(loss), in_dims=(None, 0))(state, x)

    state = {name: p.detach() for name, p in module.named_parameters()}
    assert_lockstep(chain, state, X, **EXACT)


def test_autograd_functional_jacobian() -> None:
    def chain(x: Tensor) -> Tensor:
        return torch.autograd.functional.jacobian(lambda v: v.cos().cumsum(0), x)

    assert_lockstep(chain, X[0], **EXACT)


def test_anomaly_mode_and_gradcheck() -> None:
    x = to_device(X.clone().requires_grad_())
    with (
        torch.autograd.detect_anomaly(check_nan=True),
        pytest.warns(UserWarning, match="Error detected in LogBackward0"),
        pytest.raises(RuntimeError, match="'LogBackward0' returned nan"),
    ):
        ((x * 0).log() * 0).sum().backward()
    assert torch.autograd.gradcheck(lambda v: v.tanh() * 2, (x.detach().requires_grad_(),))


def test_inference_mode_turns_gradients_off() -> None:
    """Views of tensors from outside the mode are what torch_xla has no answer to."""
    module = nn.Linear(4, 4).double()

    @torch.inference_mode()
    def evaluate(module: nn.Linear, x: Tensor) -> list[Tensor]:
        y = module(x)
        y.add_(1)
        assert bool(y.sum() > 0) == bool(y.sum().item() > 0)
        rows = x.reshape(-1)[1:].view(-1)
        rows.zero_()
        return [y, module.weight[:, None].squeeze(1) @ y.t(), x, *x.split(1)]

    results = assert_lockstep(evaluate, module, X)
    assert not any(result.requires_grad for result in results)
    with torch.inference_mode():
        moved = nn.Linear(4, 2).to(XLA)
        assert not moved(X.float().to(XLA)).requires_grad
        with torch.inference_mode(False):
            moved(X.float().to(XLA)).sum().backward()
    assert moved.weight.grad is not None


@pytest.mark.parametrize("shapes", [((5, 5, 0), (0, 5)), ((0, 2, 3), (3, 4)), ((2, 3, 4), (4, 0))])
def test_gradients_of_empty_products(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    def chain(x: Tensor, y: Tensor) -> list[Tensor]:
        return list(torch.autograd.grad((x @ y).sum(), (x, y)))

    assert_lockstep(chain, *(torch.ones(shape).requires_grad_() for shape in shapes))


@pytest.mark.parametrize("dim", [0, -1])
@pytest.mark.parametrize("written", [False, True])
def test_gradients_of_real_fourier_transforms(dim: int, written: bool) -> None:
    """The incoming gradients are views of a tensor from the CPU, or of one that was written to."""

    def chain(x: Tensor, given: Tensor) -> list[Tensor]:
        given = given * 2 if written else given
        if written:
            given += 1
        found = []
        for result in (torch.fft.ihfftn(x, dim=dim), torch.fft.rfft(x, dim=dim).reshape(-1)):
            cotangent = given[: result.numel()].view(result.shape)
            found += torch.autograd.grad(result, x, cotangent, create_graph=True)
        found += torch.autograd.grad(found[0].square().sum() + found[1].sum(), given)
        return found

    given = torch.linspace(0, 1, 12, dtype=torch.complex128).mul(1 + 2j).requires_grad_()
    assert_lockstep(chain, X.clone().requires_grad_(), given, **EXACT)


@pytest.mark.parametrize("shape", [(3,), (2, 3), (4, 2, 3)])
def test_gradients_of_linear_with_a_vector_of_weights(shape: tuple[int, ...]) -> None:
    def gradients(x: Tensor, weight: Tensor) -> list[Tensor]:
        y = nn.functional.linear(x, weight)
        return [y, *torch.autograd.grad(y.square().sum(), (x, weight))]

    assert_lockstep(gradients, torch.rand(shape).requires_grad_(), torch.rand(3).requires_grad_())


@pytest.mark.parametrize(("features", "rows"), [(0, 3), (4, 0), (0, 0)])
@pytest.mark.parametrize("outputs", [0, 2])
def test_gradients_of_linear_layers_without_elements(
    features: int, rows: int, outputs: int
) -> None:
    def chain(x: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, ...]:
        y = nn.functional.linear(x, weight, bias)
        return (y, *torch.autograd.grad(y.sum(), (x, weight, bias)))

    made = [torch.ones(s, requires_grad=True) for s in ((rows, features), (outputs, features))]
    assert_lockstep(chain, *made, torch.ones(outputs, requires_grad=True))
