"""What the fuzzer found, as small as it became: name -> the program that went wrong."""

from __future__ import annotations

from .program import Program

FOUND = {
    "the sign of the 0 at which a falling range starts": Program(
        ("x = torch.tensor([3.082], dtype=torch.float64, device=device)",),
        (
            "y = torch.linspace(0, -1.5, 2, dtype=torch.float64, device=x.device)",
            "z = torch.signbit(y)",
            "w = torch.signbit(torch.arange(0, -2, -0.5, device=x.device))",
        ),
        ("z", "w"),
    ),
    "the logarithm of 1 by lgamma": Program(
        ("x = torch.tensor([-4, 0, -2, 1], device=device)",),
        ("y = torch.lgamma(x.abs() + 1.0)", "z = y.masked_scatter(y > 0, y)"),
        ("z",),
        single=True,
    ),
    "the angle of zeros that the compiler knows": Program(
        ("x = torch.tensor([True, False], device=device)",),
        ("y = x != x", "z = torch.atan2(y, y)"),
        ("z",),
    ),
    "the sign of a zero that is a bound": Program(
        ("x = torch.tensor([-0.0, 0.35, -1.0, nan], dtype=torch.float64, device=device)",),
        (
            "y = torch.signbit(torch.clamp(x, min=0).nan_to_num())",
            "z = torch.signbit(F.hardtanh(x, -1, 0).nan_to_num())",
        ),
        ("y", "z"),
    ),
    "a write that reads what it has overwritten": Program(
        ("x = torch.tensor([3, 0, -4, 1, -2, -2], device=device).reshape((3, 2))",),
        ("y = torch.chunk(x, 2, -2)[0]", "y.add_(torch.roll(y, 1))", "z = x * 2"),
        ("z",),
    ),
    "a value that a fused loop computes at two places": Program(
        ("x = torch.tensor([3.082, -0.587, -4.358, 1.137, -2.169], device=device).double()",),
        ("y = torch.logaddexp2(torch.full((), 0.54, dtype=x.dtype, device=device), x)",),
        ("torch.isin(y, y)", "(y[:, None] == y).any(1)"),
    ),
    "a summand that is larger than the product": Program(
        ("x = torch.tensor([[3.0, -0.5]], dtype=torch.float64, device=device)",),
        ("y = torch.addmm(x, x[:, :1], x[:, :1])",),
        ("y",),
    ),
    "the last digit of what was rounded to decimals": Program(
        ("x = torch.tensor([0.35, 1.23, 4e5], dtype=torch.float64, device=device)",),
        ("y = torch.round(x, decimals=2)", "z = torch.round(x, decimals=-3)"),
        ("y == x", "z == x"),
    ),
    "the sign of the sum of one negative zero": Program(
        ("x = torch.tensor([[3.0, -0.0]], dtype=torch.float64, device=device)",),
        ("y = x.cumsum(-2)", "z = torch.atan2(y, y)"),
        ("z",),
    ),
    "the order of dimensions of a pointwise result": Program(
        ("x = torch.tensor([[3.0, -0.5], [-4.0, 1.0]], dtype=torch.float64, device=device)",),
        ("y = torch.copysign(x, x.mT.nan_to_num())", "z = y.as_strided((2, 1), (1, 0))"),
        ("y.neg()", "z"),
    ),
    "a write to one of two copies of an element": Program(
        ("x = torch.tensor(3.0, dtype=torch.float64, device=device)",),
        ("y = x.as_strided((1, 2), (0, 0))", "y.select(-1, 0).add_(1)"),
        ("x + 1",),
    ),
    "a write after the graph to what two results are parts of": Program(
        ("x = torch.tensor([3.0, -0.5], dtype=torch.float64, device=device)",),
        (
            "y = torch.complex(x, x + 1).conj().imag",
            "z = torch.chunk(y, 1, -1)[0]",
            "torch.add(y, y, out=y)",
        ),
        ("y", "z"),
    ),
    "a write after dimensions changed in place": Program(
        ("x = torch.tensor([3.0, -0.5], dtype=torch.float64, device=device).requires_grad_()",),
        ("y = x.neg()", "z = y.reshape((1, 2))", "z.t_()", "z.add_(z)"),
        ("z",),
        gradient=True,
    ),
    "gather from nothing": Program(
        ("x = torch.tensor([], dtype=torch.float64, device=device).reshape((0, 1, 3, 2))",),
        ("y = torch.gather(x, 1, (x > 1).long())",),
        ("y",),
    ),
    "indices that are no integers": Program(
        ("x = torch.tensor([1.0, 0.0], dtype=torch.float64, device=device)",),
        ("y = x.index_select(0, x)",),
        ("y",),
    ),
    "the slope of a loss at nan": Program(
        ("x = torch.tensor([1.5, nan, inf], dtype=torch.float64, device=device).requires_grad_()",),
        ("y = F.smooth_l1_loss(x, torch.xlogy(x, 0.5), reduction='sum')",),
        ("y",),
        gradient=True,
    ),
    "trigamma at infinity": Program(
        ("x = torch.tensor([inf, nan, 1.5], dtype=torch.float64, device=device)",),
        ("y = torch.polygamma(1, x)",),
        ("y",),
    ),
    "-0.0 + 0": Program(
        ("x = torch.tensor([-0.0, 0.0], dtype=torch.float64, device=device)",),
        ("y = torch.signbit(x + 0)", "z = torch.signbit(x + 0.0 * x)"),
        ("y", "z"),
    ),
    "what backward saves is overwritten": Program(
        (
            "x = torch.tensor([0, 2, 1], device=device)",
            "y = torch.tensor([1.5], dtype=torch.float64, device=device).requires_grad_()",
        ),
        ("z = y * x[x]", "x[...].mul_(2)"),
        ("z", "x"),
        gradient=True,
    ),
    "another part of what backward saves is overwritten": Program(
        (
            "x = torch.tensor([3.0, -2.0], dtype=torch.float64, device=device)",
            "y = x[0]",
            "z = x[1:]",
            "w = torch.tensor([1.0, 5.0], dtype=torch.float64, device=device).requires_grad_()",
        ),
        (
            "v = F.threshold(y, 1.0, 0)",
            "z.relu_()",
            "u = torch.var(torch.clamp(w, max=v), dim=[], correction=0)",
        ),
        ("u", "z"),
        gradient=True,
    ),
    "a tensor that is returned twice": Program(
        ("x = torch.ones(2, dtype=torch.float64, device=device).requires_grad_()",),
        ("y = x * 2", "z = y.to(torch.float64)", "w = y.detach()"),
        ("y", "z", "w"),
        gradient=True,
    ),
    "strides of strides": Program(
        ("x = torch.arange(8.0, dtype=torch.float64, device=device)",),
        ("y = x.as_strided((4,), (1,), 2)[1:3].as_strided((2,), (3,)) + 1",),
        ("y",),
    ),
    "as_strided of a view that became a parameter": Program(
        ("x = torch.ones(2, 3, dtype=torch.float64, device=device).view(6).requires_grad_()",),
        ("y = x.as_strided((2, 2), (1, 1), 1)",),
        ("y",),
        gradient=True,
    ),
    "a diagonal of nothing": Program(
        ("x = torch.empty(0, 2, 2, dtype=torch.float64, device=device)",),
        ("y = x.neg()", "z = y.diagonal(2, -3, 2)"),
        ("y", "z"),
    ),
    "a summand that beta=0 hides": Program(
        ("x = torch.tensor([[inf, -0.0], [-4.0, -inf]], dtype=torch.float64, device=device)",),
        ("y = torch.addmm(x, x, x.mT, beta=0)",),
        ("y",),
    ),
    "infinity times a mask": Program(
        (
            "x = torch.tensor([[nan, -inf], [-inf, 1.0]], dtype=torch.float64, device=device)"
            ".requires_grad_()",
        ),
        ("y = torch.aminmax(x, dim=0, keepdim=False)[0]", "z = x * (x > 0)"),
        ("y", "z"),
        gradient=True,
    ),
    "an infinity in a channel of its own": Program(
        ("x = torch.tensor([[[inf, 1.0], [2.0, nan]]], dtype=torch.float64, device=device)",),
        ("y = F.conv1d(x, torch.zeros_like(x).mT[:, :1], groups=2, padding=1)",),
        ("y",),
    ),
    "a nan in the gradient of one group": Program(
        (
            "x = torch.ones(2, 4, 6, dtype=torch.float64, device=device)",
            "x[1, 3] = 0",
            "x.requires_grad_()",
            "w = torch.ones(4, 1, 3, dtype=torch.float64, device=device)",
        ),
        ("y = F.conv1d(x, w, groups=4, padding=1)", "z = torch.hypot(y, y)"),
        ("z",),
        gradient=True,
    ),
    "a list of views of one memory": Program(
        ("x = torch.tensor([3.0, 4.0], dtype=torch.float64, device=device)",),
        ("y = x.view(2, 1)", "torch._foreach_add_([x, y], 1)"),
        ("x", "y"),
    ),
    "a linear layer without features": Program(
        ("x = torch.empty(2, 0, dtype=torch.float64, device=device).requires_grad_()",),
        ("y = F.linear(x, x)",),
        ("y",),
        gradient=True,
    ),
    "resizing of no images": Program(
        ("x = torch.empty(0, 2, 2, dtype=torch.float64, device=device).requires_grad_()",),
        ("y = F.interpolate(x, size=1, mode='nearest')",),
        ("y",),
        gradient=True,
    ),
    "a copy that strides ask for": Program(
        ("x = torch.tensor([[3.0, 4.0], [5.0, 6.0]], dtype=torch.float64, device=device)",),
        ("y = x.t().contiguous()", "y.add_(1)", "z = x.t().flatten()", "z.mul_(2)"),
        ("x", "y", "z"),
    ),
    "a part without elements at the end of memory": Program(
        (
            "x = torch.tensor([3.0], dtype=torch.float64, device=device)",
            "y = x.reshape(())",
            "z = x.flatten()[1:]",
        ),
        ("a = -z", "z.add_(x)", "b = -y"),
        ("a", "b", "z"),
    ),
    "a tensor without strides, copied to itself": Program(
        ("x = torch.tensor([3.0, 4.0], dtype=torch.float64, device=device)",),
        ("y = x[:, None].expand(2, 3)", "y.copy_(y)"),
        ("x", "y"),
    ),
    "any and all over no dimensions": Program(
        ("x = torch.tensor([[3.0, 0.0], [5.0, 6.0]], dtype=torch.float64, device=device).t()",),
        (
            "y = torch.any(x, []) + x",
            "y.flatten().add_(1)",
            "z = torch.all(x, [], keepdim=True) + x",
            "z.flatten().add_(1)",
        ),
        ("y", "z"),
    ),
    "kron of a column that is a row in memory": Program(
        ("x = torch.tensor([[3.0, 4.0]], dtype=torch.float64, device=device).t()",),
        (
            "y = torch.kron(x, x + 0)",
            "z = torch.kron(x.new_ones(2, 3).t(), x + 0)",
            "z.t().add_(1)",
        ),
        ("y",),
    ),
    "a result of indexing in the order of the indices": Program(
        (
            "x = torch.tensor([3.0, 4.0, 5.0], dtype=torch.float64, device=device)",
            "i = torch.arange(6, device=device).reshape(2, 3).t() % 3",
        ),
        ("y = x[i]", "y.t().flatten().add_(1)", "z = x[i]", "z.flatten().add_(1)"),
        ("y", "z"),
    ),
    "a running sum of one constant": Program(
        ("x = torch.tensor([True], device=device)",),
        ("y = x.index_fill(0, torch.arange(1, device=device) % 1, 2)", "z = y.expand(2).cumsum(0)"),
        ("z",),
    ),
    "what is 1, but for the last digit": Program(
        (
            "x = torch.tensor([3.082, -0.587, -4.358, 1.137, -2.169, -2.797, 0.807, 1.676, -1.439, "
            "-0.807, -1.193, 0.364], dtype=torch.float64, device=device).reshape((2, 6))",
        ),
        ("y = F.cosine_similarity(x, x, dim=0)", "z = y == 1"),
        ("z",),
    ),
    "nan == nan, of one tensor": Program(
        ("x = torch.tensor([nan, inf, 1.0], dtype=torch.float64, device=device)",),
        ("y = x == x", "z = torch.isfinite(x.sin())"),
        ("y", "z"),
    ),
}
