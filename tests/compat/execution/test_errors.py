"""After an error, an interrupt, in threads and in forks: tensors stay usable, or say why not."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
import torch
import torch_xla.core.xla_model as xm
from torch import Tensor, nn

from tests.like_eager.lazy import XLA, assert_same
from tests.programs import python

X = torch.arange(6.0).reshape(2, 3)

WRONG: dict[str, Callable[[Tensor], object]] = {
    "matmul": lambda x: x @ x,
    "add": lambda x: x + torch.ones(4, device=x.device),
    "view": lambda x: x.view(4),
    "cat": lambda x: torch.cat([x, x[:, :1]]),
    "index": lambda x: x[5],
    "select": lambda x: x.select(2, 0),
    "in place broadcast": lambda x: torch.ones((), device=x.device).add_(x),
    "in place dtype": lambda x: torch.ones(2, 3, dtype=torch.int64, device=x.device).mul_(x),
    "conv": lambda x: nn.functional.conv2d(x[None, None], torch.ones(1, 2, 1, 1, device=x.device)),
    "cross entropy": lambda x: nn.functional.cross_entropy(
        x, torch.ones(3, device=x.device).long()
    ),
    "linear": lambda x: nn.Linear(4, 2, device=x.device)(x),
    "layer norm": lambda x: nn.LayerNorm(4, device=x.device)(x),
    "expand": lambda x: x.expand(2, 2, 2),
    "squeeze dim": lambda x: x.squeeze(5),
    "stack": lambda x: torch.stack([x, x[0]]),
    "reshape": lambda x: x.reshape(-1, 4),
    "split": lambda x: x.split([1, 2], dim=0),
    "gather": lambda x: x.gather(3, torch.zeros(2, 3, dtype=torch.int64, device=x.device)),
    "negative power": lambda x: x.int() ** -2,
    "a number from bools": lambda x: (x > 1) - 2.5,
    "bools from a number": lambda x: 2 - (x > 1),
    "item": lambda x: x.item(),
    "bool": lambda x: bool(x),
    "backward": lambda x: x.clone().requires_grad_().mul(2).backward(),
}


@pytest.mark.parametrize("name", WRONG)
def test_mistakes_are_raised_at_the_op_with_eagers_text(name: str) -> None:
    x = X.to(XLA)
    pending = x * 2
    with pytest.raises((RuntimeError, IndexError, ValueError)) as expected:
        WRONG[name](X.clone())
    with pytest.raises(type(expected.value)) as actual:
        WRONG[name](x)
    assert str(actual.value).splitlines()[0] == str(expected.value).splitlines()[0]
    assert_same([x, pending, pending + 1], [X, X * 2, X * 2 + 1])


def test_an_exception_in_a_window_leaves_every_tensor_usable() -> None:
    module = nn.Linear(3, 2).to(XLA)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
    before = {name: value.cpu() for name, value in module.state_dict().items()}
    x = X.to(XLA)
    try:
        loss = module(x).sum()
        loss.backward()
        raise KeyError("from a data loader, say")
    except KeyError:
        xm.mark_step()
    assert_same(dict(module.state_dict()), before)
    optimizer.step()
    expected = before["bias"] - 0.1 * 2
    assert_same(module.bias.detach(), expected)


def test_backward_twice_is_eagers_error() -> None:
    x = X.to(XLA).requires_grad_()
    loss = (x * x).sum()
    loss.backward()
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        loss.backward()
    assert_same(x.grad, 2 * X)


def test_two_threads_on_one_device() -> None:
    results: dict[int, Tensor] = {}

    def work(number: int) -> None:
        torch.manual_seed(0)
        x = (X + number).to(XLA).requires_grad_()
        for _ in range(5):
            (x.sin() * number).sum().backward()
            xm.mark_step()
        assert x.grad is not None
        results[number] = x.grad

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    for number in range(4):
        assert_same(results[number], (X + number).cos() * number * 5)


def test_a_thread_that_only_calls_backward() -> None:
    x = X.to(XLA).requires_grad_()
    loss = (x**2).sum()
    failures: list[BaseException] = []

    def work() -> None:
        try:
            loss.backward()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(120)
    assert failures == []
    assert_same(x.grad, 2 * X)


def test_two_threads_on_two_devices() -> None:
    printed = python(
        """
        import threading, torch
        results = {}
        def work(index):
            device = torch.device("xla", index)
            module = torch.nn.Linear(3, 1, bias=False).double().to(device)
            torch.nn.init.ones_(module.weight)
            optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
            for step in range(5):
                optimizer.zero_grad()
                x = torch.full((2, 3), 1.0 + index, dtype=torch.float64, device=device)
                module(x).sum().backward()
                optimizer.step()
                import torch_xla.core.xla_model as xm
                xm.mark_step()
            results[index] = module.weight
        threads = [threading.Thread(target=work, args=(i,)) for i in range(2)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        for index in range(2):
            w = results[index]
            print(w.device, [round(v, 6) for v in w[0].tolist()])
        try:
            results[0] + results[1]
        except RuntimeError as error:
            print(error)
        print((results[0] + results[1].to("xla:0")).tolist()[0][0])
        """,
        CPU_NUM_DEVICES="2",
    )
    lines = printed.strip().splitlines()
    assert lines[:2] == ["xla:0 [0.0, 0.0, 0.0]", "xla:1 [-1.0, -1.0, -1.0]"]
    assert "Expected all tensors to be on the same device" in lines[2]
    assert abs(float(lines[3]) + 1.0) < 1e-9


def test_interrupt_during_a_compile() -> None:
    printed = python(
        """
        import signal, torch
        import torch_xla.core.xla_model as xm
        from xla_dynamo.backend.runtime import pjrt

        # A shell that starts a command in the background lets it ignore Ctrl-C.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        x = torch.arange(4.0, device="xla:0")
        y = x * 2 + 1
        compile = pjrt.compile
        def slow(*args):
            signal.raise_signal(signal.SIGINT)
            return compile(*args)
        pjrt.compile = slow
        try:
            xm.mark_step()
        except KeyboardInterrupt:
            print("interrupted")
        pjrt.compile = compile
        z = y.sum()
        xm.mark_step()
        print(x.tolist(), y.tolist(), z.item())
        """,
        fresh=True,
        XLA_DYNAMO_CACHE_DIR="0",
    )
    assert printed.splitlines() == ["interrupted", "[0.0, 1.0, 2.0, 3.0] [1.0, 3.0, 5.0, 7.0] 16.0"]


def test_a_second_interrupt_ends_a_compile_at_once() -> None:
    printed = python(
        """
        import signal, torch
        import torch_xla.core.xla_model as xm
        from xla_dynamo.backend.runtime import pjrt

        signal.signal(signal.SIGINT, signal.default_int_handler)
        y = torch.arange(4.0, device="xla:0") * 2
        compile = pjrt.compile
        def slow(*args):
            signal.raise_signal(signal.SIGINT)
            print("still compiling")
            signal.raise_signal(signal.SIGINT)
            print("not reached")
        pjrt.compile = slow
        try:
            xm.mark_step()
        except KeyboardInterrupt:
            print("interrupted")
        pjrt.compile = compile
        print(y.tolist())
        """,
        fresh=True,
        XLA_DYNAMO_CACHE_DIR="0",
    )
    assert printed.splitlines() == ["still compiling", "interrupted", "[0.0, 2.0, 4.0, 6.0]"]


def test_interrupts_at_any_time() -> None:
    """A timer interrupts a loop again and again; the numbers are those without interrupts."""
    printed = python(
        """
        import signal, torch
        import torch_xla.core.xla_model as xm

        def run(interrupt):
            total = torch.zeros((), dtype=torch.float64, device="xla:0")
            done = 0
            while done < 12:
                try:
                    if interrupt:
                        signal.setitimer(signal.ITIMER_REAL, 0.003 + 0.01 * (done % 5))
                    x = torch.arange(4.0 + done, dtype=torch.float64, device="xla:0")
                    new = total + (x.sin() @ x.cos()).exp()
                    value = new.item()
                    signal.setitimer(signal.ITIMER_REAL, 0)
                    total, done = new, done + 1
                except KeyboardInterrupt:
                    run.count += 1
                    interrupt = run.count < 40 and interrupt
            return value

        run.count = 0
        # A shell that starts a command in the background lets it ignore Ctrl-C.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGALRM, lambda *event: signal.raise_signal(signal.SIGINT))
        a = run(True)
        print(run.count > 0, a == run(False))
        """,
        fresh=True,
        XLA_DYNAMO_CACHE_DIR="0",
    )
    assert printed.splitlines()[-1] == "True True"


def test_fork_after_use_is_refused() -> None:
    printed = python(
        """
        import os, torch
        x = torch.ones(2, device="xla:0")
        print(x.tolist(), flush=True)
        child = os.fork()
        if child == 0:
            for act in (lambda: x + 1, lambda: x.tolist(), lambda: torch.ones(3).to("xla:0")):
                try:
                    act().tolist() if isinstance(act(), torch.Tensor) else None
                    print("went through", flush=True)
                except RuntimeError as error:
                    print(type(error).__name__, error, flush=True)
            os._exit(0)
        os.waitpid(child, 0)
        print((x + 1).tolist())
        """,
        fresh=True,
    )
    lines = printed.strip().splitlines()
    assert lines[0] == "[1.0, 1.0]"
    assert lines[-1] == "[2.0, 2.0]"
    assert "went through" not in printed
    assert printed.count("DeviceUnavailable this process was forked") == 3


def test_workers_of_a_data_loader_after_use() -> None:
    """They fork, and touch CPU tensors only."""
    printed = python(
        """
        import torch
        from torch.utils.data import DataLoader, TensorDataset
        x = torch.ones(2, device="xla:0")
        print(x.tolist())
        loader = DataLoader(TensorDataset(torch.arange(8.0)), batch_size=4, num_workers=2)
        print([(batch.to("xla:0") * 2).sum().item() for (batch,) in loader])
        """,
        fresh=True,
    )
    assert printed.strip().splitlines()[-1] == "[12.0, 44.0]"
