"""Programs of the CPU that write into arguments: in their own memory, and after all reads of it."""

from __future__ import annotations

import copy
import os
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import xla_dynamo
from xla_dynamo.backend.executable import in_place
from xla_dynamo.backend.jax_adapter import LEAST_MEMORY
from xla_dynamo.backend.ops import stores as writes

N = 128  # of float32, N x N is as large as results have to be
pytestmark = pytest.mark.filterwarnings("ignore:Profiler record function")


@pytest.fixture
def stores(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many arguments each program that is compiled writes to."""
    counts: list[int] = []
    choose = in_place.choose

    def counted(*args: Any) -> Any:
        chosen = choose(*args)
        counts.append(0 if chosen is None else len(chosen[1].targets))
        return chosen

    monkeypatch.setattr(in_place, "choose", counted)
    return counts


def tensors(count: int = 3) -> list[Tensor]:
    made = torch.Generator().manual_seed(0)
    return [torch.randn(N, N, generator=made) for _ in range(count)]


def same(update: Callable[..., Any], *given: Any, times: int = 2, **options: Any) -> Any:
    """`update` does to its arguments what eager does, and gives the same."""
    theirs = copy.deepcopy(given)
    compiled = torch.compile(update, backend="xla", options=options)
    with torch.no_grad():
        for _ in range(times):
            found, wanted = compiled(*given), update(*theirs)
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(given, theirs)
    return found


def double(xs: Sequence[Tensor]) -> None:
    for x in xs:
        x.mul_(2)


def test_an_optimizer_has_its_state_once(stores):
    runs = []
    for backend in ("xla", "eager"):
        parameters = [nn.Parameter(x) for x in (*tensors(), torch.ones(5))]
        optimizer = torch.optim.AdamW(parameters, lr=0.1)
        update = torch.compile(optimizer.step, backend=backend)
        for _ in range(3):
            for p in parameters:
                p.grad = p.detach().sin()
            update()
        runs.append((parameters, list(optimizer.state.values())))
    torch.testing.assert_close(runs[0], runs[1], rtol=1e-5, atol=1e-6)
    assert stores == [3 * 3]


def test_what_a_program_needs_beside_its_arguments_is_one_group(monkeypatch):
    from xla_dynamo.backend.runtime import pjrt

    made: list[Any] = []
    load = pjrt.Executable.__init__
    monkeypatch.setattr(
        pjrt.Executable, "__init__", lambda self, *args: made.append(self) or load(self, *args)
    )
    xs = tensors(8)
    same(double, xs)
    memory = made[0].memory()
    assert memory.output_size_in_bytes < 4 * N
    assert memory.temp_size_in_bytes < 2 * xs[0].nbytes + 4096


def test_views_and_arrays_of_the_memory_see_it(stores):
    xs = tensors()
    seen = [xs[0].view(-1), xs[0].detach(), xs[0][1:], torch.from_numpy(xs[0].numpy())]
    before, versions = [x.data_ptr() for x in xs], [x._version for x in xs]
    wanted = 2 * xs[0]
    torch.compile(double, backend="xla")(xs)
    assert [x.data_ptr() for x in xs] == before
    assert all(x._version > old for x, old in zip(xs, versions, strict=True))
    assert all(torch.equal(s.reshape(-1), wanted.reshape(-1)[-s.numel() :]) for s in seen)
    assert stores == [3]


def swap(xs: list[Tensor]) -> None:
    old = [x.clone() for x in xs]
    for x, other in zip(xs, (*old[1:], old[0]), strict=True):
        x.copy_(other)


def swap_pairs(xs: list[Tensor]) -> None:
    swap(xs[:2])
    swap(xs[2:])


def with_old_values(xs: list[Tensor]) -> list[Tensor]:
    kept = [x.clone() for x in xs]
    double(xs)
    return kept


def with_old_elements(xs: list[Tensor]) -> list[Tensor]:
    kept = [x[0].clone() for x in xs]
    double(xs)
    return [*kept, *(x.sum() for x in xs)]


def into_each_other(xs: list[Tensor]) -> None:
    xs[1].add_(xs[0])
    xs[0].mul_(xs[1])
    xs[2].sub_(1)


def transposed(xs: list[Tensor]) -> None:
    for x in xs:
        x.copy_(x.t().clone())


def normed(xs: list[Tensor]) -> Tensor:
    norm = torch.stack([x.norm() for x in xs]).norm()
    for x in xs:
        x.div_(norm)
    return norm


@pytest.mark.parametrize(
    ("update", "count", "stored"),
    [
        (swap, 2, 0),  # one group
        (swap_pairs, 4, 4),
        (with_old_values, 3, 0),
        (with_old_elements, 3, 3),
        (into_each_other, 3, 3),
        (transposed, 3, 3),
        (normed, 3, 0),
    ],
)
def test_old_values_are_read_before(stores, update, count, stored):
    same(update, tensors(count))
    assert stores == [stored]


def test_dtypes(stores):
    xs = [x.to(d) for x in tensors(2) for d in (torch.float64, torch.bfloat16, torch.int64)]
    same(double, xs)
    assert len(stores) == 1
    assert stores[0] >= 4


def test_memory_that_is_not_row_major_or_shared(stores):
    def add(xs: list[Tensor], y: Tensor) -> None:
        for x in xs:
            x.add_(y)

    host = np.zeros((2 * N, N), dtype=np.float32)
    host[:] = np.arange(N)
    expected = torch.from_numpy(host).clone()
    xs = [torch.from_numpy(host[i * N : (i + 1) * N]) for i in range(2)]
    y = torch.from_numpy(host[:N])  # as PyTorch knows, of other memory
    run, eager = (torch.compile(add, backend=name) for name in ("xla", "aot_eager"))
    ours, theirs = [*xs, y], [expected[:N].clone(), expected[N:].clone(), expected[:N].clone()]
    run(ours[:2], ours[2])
    eager(theirs[:2], theirs[2])
    assert torch.equal(torch.from_numpy(host), torch.cat(theirs[:2]))
    assert stores == [2]
    # Strides that are exchanged behind Dynamo's back.
    a, b = nn.Parameter(torch.ones(N, N)), nn.Parameter(torch.ones(N, N))
    both = torch.compile(lambda: double([a, b]), backend="xla")
    with torch.no_grad():
        both()
        a.data = torch.arange(float(N * N)).view(N, N).t()
        both()
    assert torch.equal(a.detach(), 2 * torch.arange(float(N * N)).view(N, N).t())
    assert torch.equal(b.detach(), torch.full((N, N), 4.0))


def test_parts_of_one_memory():
    flat = torch.arange(2.0 * N * N)
    parts = [flat[: N * N].view(N, N), flat[N * N :].view(N, N)]
    torch.compile(double, backend="xla")(parts)
    assert torch.equal(flat, 2 * torch.arange(2.0 * N * N))


def test_what_was_saved_before_is_known_to_have_changed():
    xs = [nn.Parameter(x) for x in tensors(2)]
    loss = torch.stack([x.square().sum() for x in xs]).sum()
    with torch.no_grad():
        torch.compile(double, backend="xla")(xs)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_writes_start_no_threads():
    """A thread of XLA's would have a team of OpenMP's, beside that of PyTorch's kernels."""
    source, given, other = torch.randn(3, 2**20)
    started = []

    def write() -> None:
        before = set(os.listdir("/proc/self/task"))
        writes.write([source, source[: 2**19]], [given.data_ptr(), other.data_ptr()])
        writes.write([given[1:]], [given.data_ptr()])  # what is written over
        started.extend(set(os.listdir("/proc/self/task")) - before)

    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        (thread := threading.Thread(target=write)).start()
        thread.join()
    finally:
        torch.set_num_threads(threads)
    assert started == []
    torch.testing.assert_close(given[:-1], source[1:], rtol=0, atol=0)
    torch.testing.assert_close(other[: 2**19], source[: 2**19], rtol=0, atol=0)


def test_programs_without_kernels_and_small_results(stores):
    same(double, tensors(), cpu_kernels="xla")
    same(double, [torch.ones(4), torch.ones(4)])
    assert stores == [0]


def test_a_program_from_the_disk_cache_writes_too(stores):
    for _ in range(2):
        torch.compiler.reset()
        same(double, tensors())
    assert stores == [3, 3]
    assert xla_dynamo.compiles()[-1].from_disk


def test_the_users_options_for_the_compiler_go_first():
    from xla_dynamo.backend.executable.request import Request
    from xla_dynamo.backend.options import Options
    from xla_dynamo.backend.passes.contract import WayIn

    [(name, value)] = LEAST_MEMORY.items()
    request = Request("", "", frozenset(), 0, Options(), WayIn.COMPILE)
    chosen = in_place.with_little_memory(request).options
    assert chosen.compiler_options == {name: value}
    own = Options(compiler_options={name: "CPU_SCHEDULER_TYPE_DEFAULT"})
    request = Request("", "", frozenset(), 0, own, WayIn.COMPILE)
    assert in_place.with_little_memory(request).options.compiler_options == own.compiler_options
