"""xmp.spawn and torch.distributed's backend "xla", with one replica; several: test_replicas."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch_xla
import torch_xla.distributed.xla_backend as xla_backend
import torch_xla.distributed.xla_multiprocessing as xmp
from torch_xla._internal import pjrt

from tests.programs import python
from xla_dynamo.backend.runtime import tpu_chips
from xla_dynamo.backend.runtime.tpu_chips import Chips
from xla_dynamo.errors import DeviceUnavailable

XLA = torch.device("xla:0")


@pytest.mark.parametrize("nprocs", [None, 1])
@pytest.mark.parametrize("start_method", ["spawn", "fork", "forkserver"])
def test_the_function_is_called_here(nprocs: int | None, start_method: str) -> None:
    calls: list[Any] = []
    done = xmp.spawn(
        lambda index, *args: calls.append((index, args, threading.current_thread())),
        args=(1, "two"),
        nprocs=nprocs,
        start_method=start_method,
    )
    assert done is None
    assert calls == [(0, (1, "two"), threading.main_thread())]


@pytest.mark.parametrize("platform", ["tpu", "cuda"])
def test_where_there_are_no_processes_for_replicas_it_is_said_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, platform: str
) -> None:
    xmp._say_fewer.cache_clear()
    monkeypatch.setattr(xmp, "default_platform", lambda: platform)
    monkeypatch.setattr(xmp.tpu_chips, "here", lambda: Chips(1, "v6e"))
    for _ in range(2):
        xmp.spawn(lambda index: None, nprocs=8)
    assert capsys.readouterr().err.count("xmp.spawn(nprocs=8) runs one replica") == 1


def test_processes_take_all_chips_of_a_tpu(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.ones(1, device=XLA)
    monkeypatch.setattr(xmp, "default_platform", lambda: "tpu")
    monkeypatch.setattr(tpu_chips, "here", lambda: Chips(8, "v5e"))
    monkeypatch.setenv("TPU_SKIP_MDS_QUERY", "1")
    with pytest.raises(ValueError, match=r"has 8 TPU chips.* nprocs is 1, 8 or None"):
        xmp.spawn(print, nprocs=4)
    with pytest.raises(RuntimeError, match="has the TPU's chips, which processes"):
        xmp.spawn(print)


def test_a_process_that_has_used_a_device_is_not_forked() -> None:
    torch.ones(1, device=XLA)
    with pytest.raises(RuntimeError, match="has used an xla device, and cannot be forked"):
        xmp.spawn(print, nprocs=2, start_method="fork")


@pytest.mark.parametrize("error", [ValueError("in the function"), SystemExit(21)])
def test_what_the_function_raises_is_raised(error: BaseException) -> None:
    def fail(index: int) -> None:
        raise error

    with pytest.raises(type(error)) as raised:
        xmp.spawn(fail, nprocs=1)
    assert raised.value is error


@pytest.mark.parametrize("start", [xmp.spawn, torch_xla.launch])
def test_a_process_group_ends_with_the_function_that_made_it(start: Any) -> None:
    sums: list[Any] = []

    def train(index: int, error: type[Exception] | None) -> None:
        dist.init_process_group("xla", init_method="xla://")
        tensor = torch.ones(2, device=XLA)
        dist.all_reduce(tensor)
        sums.append(tensor.tolist())
        if error is not None:
            raise error

    start(train, args=(None,))
    with pytest.raises(ZeroDivisionError):
        start(train, args=(ZeroDivisionError,))
    start(train, args=(None,))
    assert sums == [[1.0, 1.0]] * 3
    assert not dist.is_initialized()


def test_functions_that_pjrt_starts_end_their_process_groups() -> None:
    def size(*index: int, more: int = 0) -> int:
        dist.init_process_group("xla", init_method="xla://")
        return dist.get_world_size() + more

    assert pjrt.run_multiprocess(size, more=3) == {0: 4}
    pjrt.spawn_threads(size)
    assert pjrt.run_multiprocess(size) == {0: 1}
    assert not dist.is_initialized()


def test_a_process_group_of_the_caller_stays() -> None:
    dist.init_process_group("xla", init_method="xla://")
    try:
        xmp.spawn(lambda index: None)
        assert dist.get_world_size() == 1
    finally:
        dist.destroy_process_group()


def test_without_join_it_runs_beside_the_caller() -> None:
    go = threading.Event()
    done: list[int] = []

    def wait(index: int, value: int) -> None:
        go.wait(10)
        done.append(torch.full((2,), value, device="xla").sum().item())  # type: ignore[arg-type]

    context = xmp.spawn(wait, args=(4,), join=False)
    assert context is not None
    assert not context.join(timeout=0.01)
    go.set()
    assert context.join()
    assert done == [8]
    assert context.pids() == []


def test_processes_are_forked_while_others_run_and_after() -> None:
    """Of threads that the caller had for the first ones, the next would not have the other half."""
    printed = python("""
        import torch
        import torch_xla.core.xla_model as xm
        import torch_xla.distributed.xla_multiprocessing as xmp

        def both(index, word):
            for _ in range(3):
                total = xm.all_reduce("sum", torch.full((2,), index + 1.0, device=xm.xla_device()))
            print(f"{word} {total.tolist()}", flush=True)

        def spawn(word, join):
            return xmp.spawn(both, args=(word,), nprocs=2, join=join, start_method="fork")

        first = spawn("first", join=False)
        second = spawn("second", join=False)
        while not (first.join() and second.join()):
            pass
        services = [context._service for context in (first, second)]
        assert services == [None, None], services
        spawn("third", join=True)
    """)
    for word in ("first", "second", "third"):
        assert printed.count(f"{word} [3.0, 3.0]") == 2


def test_constants_of_processes_may_differ() -> None:
    """XLA would compute a collective of a constant by itself: as if all had the same one."""
    printed = python(
        """
        import torch
        import torch_xla.core.xla_model as xm
        import torch_xla.distributed.xla_multiprocessing as xmp

        def both(index):
            device = xm.xla_device()
            make = torch.ones if index else torch.zeros
            found = [
                xm.all_reduce("sum", torch.full((2,), float(index), device=device)).tolist(),
                xm.all_reduce("sum", make(2, device=device)).tolist(),
                xm.all_gather(make(1, dtype=torch.bool, device=device)).tolist(),
                xm.all_gather(torch.arange(index, index + 2, device=device)).tolist(),
            ]
            first = xm.all_reduce("sum", torch.ones(1, device=device))
            second = xm.all_reduce("sum", make(1, device=device))
            print(f"found {[*found, first.tolist(), second.tolist()]}", flush=True)

        xmp.spawn(both, nprocs=2, start_method="fork")
        """,
        XLA_DYNAMO_PATIENCE="30",
    )
    expected = [[1.0, 1.0], [1.0, 1.0], [False, True], [0, 1, 1, 2], [2.0], [1.0]]
    assert printed.count(f"found {expected}") == 2, printed


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_without_join_the_error_is_raised_by_joining() -> None:
    def fail(index: int) -> None:
        raise KeyError("later")

    context = xmp.spawn(fail, join=False, daemon=True)
    assert context is not None
    with pytest.raises(KeyError, match="later"):
        context.join()


def test_wrappers_of_models_and_functions() -> None:
    wrapped = xmp.MpModelWrapper(torch.nn.Linear(2, 2))
    assert wrapped.to(XLA).weight.device == XLA  # type: ignore[union-attr]
    assert xmp.MpSerialExecutor().run(lambda: 3) == 3
    assert xmp.create_optimized_replica_groups() is None


@pytest.fixture
def group() -> Iterator[None]:
    dist.init_process_group("xla", init_method="xla://")
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("group")
def test_collectives_of_one_member() -> None:
    assert (dist.get_backend(), dist.get_world_size(), dist.get_rank()) == ("xla", 1, 0)
    x = torch.arange(4.0, device=XLA)
    for reduction in (dist.ReduceOp.SUM, dist.ReduceOp.MAX, dist.ReduceOp.PRODUCT):
        dist.all_reduce(x, op=reduction)
    dist.broadcast(x, src=0)
    dist.reduce(x, dst=0)
    dist.gather(x, [torch.zeros(4, device=XLA)], dst=0)
    assert x.tolist() == [0, 1, 2, 3]
    outputs = [torch.zeros(4, device=XLA)]
    dist.all_gather(outputs, x)
    gathered, scattered = torch.zeros(4, device=XLA), torch.zeros(4, device=XLA)
    dist.all_gather_into_tensor(gathered, x)
    dist.reduce_scatter_tensor(scattered, x)
    swapped = [torch.zeros(4, device=XLA)]
    dist.all_to_all(swapped, [x])
    for result in (*outputs, gathered, scattered, *swapped):
        assert result.tolist() == [0, 1, 2, 3]
    dist.barrier()
    objects: list[Any] = [None]
    dist.all_gather_object(objects, {"a": 1})
    assert objects == [{"a": 1}]
    assert xla_backend.new_xla_process_group([0]).size() == 1


@pytest.mark.usefixtures("group")
def test_distributed_data_parallel_trains() -> None:
    torch.manual_seed(0)
    plain = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
    model = torch.nn.Sequential(*[type(m)(*_sizes(m)) for m in plain])
    model.load_state_dict(plain.state_dict())
    wrapped = torch.nn.parallel.DistributedDataParallel(model.to(XLA), gradient_as_bucket_view=True)
    pairs = [
        (m, torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9), device)
        for m, device in ((plain, "cpu"), (wrapped, XLA))
    ]
    for _ in range(4):
        x = torch.randn(8, 3)
        for module, optimizer, device in pairs:
            optimizer.zero_grad()
            module(x.to(device)).square().mean().backward()
            optimizer.step()
    for (name, expected), parameter in zip(
        plain.named_parameters(), model.parameters(), strict=True
    ):
        torch.testing.assert_close(parameter.cpu(), expected, msg=name)


def _sizes(module: torch.nn.Module) -> tuple[int, ...]:
    if isinstance(module, torch.nn.Linear):
        return module.in_features, module.out_features
    return ()


def test_a_group_of_two_is_refused() -> None:
    with pytest.raises(DeviceUnavailable, match="one replica here, asked for 2"):
        xla_backend.ProcessGroupXla(None, 0, 2, dist.default_pg_timeout)
