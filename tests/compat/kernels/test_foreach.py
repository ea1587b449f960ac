"""Ops on lists of tensors, in place and in compiled graphs."""

from __future__ import annotations

import copy

import torch

import xla_dynamo
import xla_dynamo.compat


def test_a_tensor_that_is_in_a_list_twice_is_updated_twice() -> None:
    for device in ("cpu", "xla:0"):
        x = torch.ones(3, device=device)
        torch._foreach_add_([x, x], 1)
        torch._foreach_mul_([x, x], [2.0, 3.0])
        assert x.tolist() == [18.0] * 3


def test_views_of_the_same_memory_in_a_list_are_updated_one_after_the_other() -> None:
    seen = []
    for device in ("cpu", "xla:0"):
        x, parts = torch.arange(6.0, device=device), torch.zeros(6, device=device)
        whole, left, right = x.view(2, 3), parts[:3], parts[3:]
        torch._foreach_add_([x, whole], 1)
        torch._foreach_add_([left, right], [1.0, 2.0])
        torch._foreach_addcmul_([parts, left], [parts * 2, left], [parts, left + 1], value=2)
        seen.append((x.tolist(), parts.tolist()))
    assert seen[1] == seen[0]


def test_an_optimizer_step_compiles_on_device_tensors() -> None:
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 2)
    twin, x = copy.deepcopy(model).to("xla:0"), torch.randn(4, 3)
    for net, inputs, compiled in ((model, x, False), (twin, x.to("xla:0"), True)):
        optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
        step = torch.compile(optimizer.step, backend="xla") if compiled else optimizer.step
        for _ in range(4):
            optimizer.zero_grad()
            net(inputs).square().sum().backward()
            step()
    # The compiled Adam counts its steps in float32.
    torch.testing.assert_close(twin.weight.cpu(), model.weight, rtol=1e-4, atol=1e-5)
    assert not [name for name in xla_dynamo.counters() if name.startswith("fallback")]
