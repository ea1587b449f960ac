"""torch_xla.core.functions: collectives with gradients, and layers built on them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from xla_dynamo.compat.kernels.manual_sharding import is_manual
from xla_dynamo.compat.recording import replicas

from .._absent import Absent
from . import _collectives

ops = torch.ops.xla_dynamo


class _AllReduce(torch.autograd.Function):
    """torch_xla's gradient: this replica's own part of the result's, times `scale`.

    It sums nothing over replicas: as the gradients of parameters are summed in the end, each
    replica's loss counts once.
    """

    @staticmethod
    def forward(ctx: Any, input: Tensor, reduce_type: str, scale: float, groups: Any) -> Tensor:
        output = _collectives.all_reduce(reduce_type, input, scale, groups)
        assert isinstance(output, Tensor)
        ctx.reduce_type, ctx.scale = reduce_type, scale
        ctx.save_for_backward(input, output)
        return output

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        input, output = ctx.saved_tensors
        scaled = gradients[0] * ctx.scale
        if ctx.reduce_type == _collectives.REDUCE_MUL:
            others = torch.where(input != 0, output / input, torch.zeros_like(input))
            scaled = gradients[0] * others
        elif ctx.reduce_type in (_collectives.REDUCE_MIN, _collectives.REDUCE_MAX):
            is_own = input * ctx.scale == output
            scaled = torch.where(is_own, scaled, torch.zeros_like(scaled))
        return scaled, None, None, None


class _AllGather(torch.autograd.Function):
    """torch_xla's gradient: this replica's part of the result's."""

    @staticmethod
    def forward(ctx: Any, input: Tensor, dim: int) -> Tensor:
        ctx.dim = dim
        return _collectives.all_gather(input, dim).clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        count = replicas.size()
        if count == 1:
            return gradients[0], None
        return ops.own_part(gradients[0], ctx.dim, list(range(count)), count), None


class _SumOfAll(torch.autograd.Function):
    """A sum over all replicas that the losses of all depend on: so is its gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Any:
        return _collectives.all_reduce(_collectives.REDUCE_SUM, x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return _collectives.all_reduce(_collectives.REDUCE_SUM, gradients[0])


def all_reduce(reduce_type: str, value: Tensor, scale: float = 1.0, groups: Any = None) -> Tensor:
    """The reduction over the replicas, times `scale`, through which gradients flow.

    Raises:
        ValueError: an unknown reduce_type.
    """
    if is_manual(value):
        return _collectives.all_reduce(reduce_type, value, scale, groups)  # type: ignore[return-value]
    return _AllReduce.apply(value, reduce_type, scale, groups)  # type: ignore[return-value]


def all_gather(value: Tensor, dim: int = 0) -> Tensor:
    """The values of all replicas concatenated along `dim`, through which gradients flow."""
    if is_manual(value):
        return _collectives.all_gather(value, dim)
    return _AllGather.apply(value, dim)  # type: ignore[return-value]


def distributed_mm(w: Tensor, x: Tensor, split: int = 1) -> Tensor:
    """The product of the replicas' `w`, of N x K each, side by side, and this replica's `x`.

    x: (K * replicas) x M; it is worked on in `split` parts of its columns.

    Raises:
        ValueError: `split` does not divide the columns of x.
    """
    if x.size(1) % split:
        raise ValueError(f"split={split} does not divide the {x.size(1)} columns of x")
    count = replicas.size()
    if count == 1:
        return w @ x
    return torch.cat([_product(w, part, count) for part in x.chunk(split, 1)], 1)


def _product(w: Tensor, x: Tensor, count: int) -> Tensor:
    everyone = list(range(count)), count
    rows = _OwnPart.apply(all_gather(x, 1), 0, *everyone)
    return _OwnPart.apply(all_reduce(_collectives.REDUCE_SUM, w @ rows), 1, *everyone)  # type: ignore


class _OwnPart(torch.autograd.Function):
    """This replica's part along `dim`; the rest of the gradient is zero."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, dim: int, ranks: list[int], group: int) -> Tensor:
        ctx.dim, ctx.ranks, ctx.group = dim, ranks, group
        return ops.own_part(x.detach(), dim, ranks, group)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        place = torch.arange(ctx.group, device=gradients[0].device)
        mine = ops.own_part(place, 0, ctx.ranks, ctx.group)
        parts = [torch.where(mine == i, gradients[0], 0) for i in range(ctx.group)]
        return torch.cat(parts, ctx.dim), None, None, None


nms = Absent("torch_xla.core.functions.nms", "use torchvision.ops.nms")


class SyncBatchNorm(torch.nn.modules.batchnorm._BatchNorm):
    """Batch norm over (N, C, ...) with the statistics of all replicas, of N rows each."""

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float = 0.1) -> None:
        super().__init__(num_features, eps, momentum)

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"SyncBatchNorm takes (N, C, ...), got {list(input.shape)}")

    def forward(self, input: Tensor) -> Tensor:
        count = replicas.size()
        if count == 1 or not self.training:
            return super().forward(input)
        self._check_input_dim(input)
        over = [dim for dim in range(input.dim()) if dim != 1]
        sums = torch.stack([input.sum(over), input.square().sum(over)])
        total: Any = _SumOfAll.apply(sums)
        rows = input.numel() // input.shape[1] * count
        mean, square = total / rows
        variance = square - mean.square()
        self._track(mean.detach(), variance.detach() * (rows / (rows - 1)))
        # By batch_norm's own formula, so that it is differentiated in the statistics, too.
        shape = [-1 if dim == 1 else 1 for dim in range(input.dim())]
        scale = (self.weight * (variance + self.eps).rsqrt()).view(shape)
        return (input - mean.view(shape)) * scale + self.bias.view(shape)

    def _track(self, mean: Tensor, variance: Tensor) -> None:
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.momentum is not None
        with torch.no_grad():
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_(variance, self.momentum)
            if self.num_batches_tracked is not None:
                self.num_batches_tracked.add_(1)
