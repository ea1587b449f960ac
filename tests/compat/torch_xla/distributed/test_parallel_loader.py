"""Loaders that read and upload ahead: what they give, when they mark the step, how they end."""

from __future__ import annotations

import gc
import threading
from collections import OrderedDict, namedtuple
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch_xla.debug.metrics as met
import torch_xla.debug.profiler as xp
import torch_xla.distributed.parallel_loader as pl
from torch.nn.utils.rnn import pack_sequence

from tests.programs import python

XLA = torch.device("xla:0")


def batches(count: int) -> list[list[torch.Tensor]]:
    return [[torch.full((2, 3), float(i)), torch.tensor([i, i])] for i in range(count)]


def first_numbers(loader: Any) -> list[float]:
    return [batch[0][0, 0].item() for batch in loader]


def threads() -> set[str]:
    """Of loaders: that of asynchronous closures, which other tests begin, goes on."""
    names = {thread.name for thread in threading.enumerate() if thread.name.startswith("xla_")}
    return names - {"xla_closures"}


def marks() -> int:
    return met.counter_value("MarkStep") or 0


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"loader_prefetch_size": 1, "device_prefetch_size": 1},
        {"host_to_device_transfer_threads": 4},
        {"batchdim": 0, "fixed_batch_size": False, "loader_prefetch_size": 8},
    ],
)
def test_batches_arrive_on_the_device_in_order(options: dict[str, Any]) -> None:
    loader = pl.ParallelLoader(batches(20), [XLA], **options)
    for i, (x, y) in enumerate(loader.per_device_loader(XLA)):
        assert x.device == y.device == XLA
        assert x.cpu().eq(i).all()
        assert y.tolist() == [i, i]
    assert i == 19


def test_a_mp_device_loader_is_read_anew_each_time() -> None:
    loader = pl.MpDeviceLoader(batches(3), XLA, loader_prefetch_size=2)
    assert loader._parallel_loader_kwargs == {"loader_prefetch_size": 2}
    assert len(loader) == len(loader._loader) == 3
    assert [first_numbers(loader) for _ in range(2)] == [[0, 1, 2]] * 2
    iterator = iter(loader)
    next(iterator)
    assert first_numbers(loader) == [0, 1, 2]  # in the middle of another iteration


Pair = namedtuple("Pair", "x note")


def test_structure_is_kept() -> None:
    x = torch.ones(2)
    packed = pack_sequence([torch.ones(3, 1), torch.zeros(2, 1)])
    batch = {
        "pair": Pair(x, "text"),
        "tuple": (x, [x, 3]),
        "ordered": OrderedDict(b=x, a=None),
        "packed": packed,
    }
    (made,) = pl.ParallelLoader([batch], [XLA]).per_device_loader(XLA)
    assert type(made["pair"]) is Pair
    assert made["pair"].note == "text"
    assert type(made["tuple"]) is tuple
    assert list(made["ordered"]) == ["b", "a"]
    assert made["pair"].x is made["tuple"][0] is made["tuple"][1][0]
    assert made["pair"].x.device == made["packed"].data.device == XLA
    assert made["packed"].batch_sizes.device.type == "cpu"
    assert batch["tuple"][0].device.type == "cpu"


def test_the_step_is_marked_before_each_batch_and_at_the_end() -> None:
    before = marks()
    assert len(first_numbers(pl.MpDeviceLoader(batches(5), XLA))) == 5
    assert marks() - before == 7


def test_a_step_of_several_batches() -> None:
    loader = pl.MpDeviceLoader(batches(6), XLA, batches_per_execution=3)
    seen = []
    before = marks()
    for _ in loader:
        seen.append(marks() - before)
    assert seen == [0, 0, 1, 1, 1, 2]


def test_a_step_that_a_trace_marked_is_not_marked_again() -> None:
    loader = iter(pl.MpDeviceLoader(batches(3), XLA))
    before = marks()
    next(loader)
    with xp.StepTrace("step"):
        pass
    next(loader)
    assert marks() - before == 2
    next(loader)
    assert marks() - before == 3


def test_updates_are_launched_by_the_next_batch() -> None:
    total = torch.zeros(2, 3, device=XLA)
    for x, _ in pl.MpDeviceLoader(batches(4), XLA):
        total = total + x
    assert total.cpu().eq(6).all()


def failing() -> Iterator[Any]:
    yield batches(1)[0]
    raise ValueError("broken sample")


def test_an_error_of_the_dataset_is_raised_by_next() -> None:
    loader = iter(pl.MpDeviceLoader(failing(), XLA))
    next(loader)
    with pytest.raises(ValueError, match="broken sample") as raised:
        next(loader)
    assert raised.traceback[-1].name == "failing"
    with pytest.raises(StopIteration):
        next(loader)


def test_an_error_of_an_upload_is_raised_by_next() -> None:
    loader = pl.MpDeviceLoader([{"a": torch.ones(1)}], XLA, input_sharding={"b": None})
    with pytest.raises(KeyError, match="missing from input_sharding"):
        next(iter(loader))


def test_an_end_at_another_batch_size() -> None:
    uneven = [*batches(2), [torch.ones(1, 3), torch.ones(1)], *batches(1)]
    assert first_numbers(pl.MpDeviceLoader(uneven, XLA)) == [0, 1, 1, 0]
    assert first_numbers(pl.MpDeviceLoader(uneven, XLA, fixed_batch_size=True)) == [0, 1]


def test_closing_ends_the_threads() -> None:
    def endless() -> Iterator[Any]:
        while True:
            yield torch.ones(1)

    loader = pl.ParallelLoader(endless(), [XLA])
    assert len(loader._threads) == 2
    next(loader.per_device_loader(XLA))
    loader.close()
    assert not any(thread.is_alive() for thread in loader._threads)


def test_an_abandoned_loader_ends_its_threads() -> None:
    loader = pl.ParallelLoader(batches(100), [XLA], loader_prefetch_size=1, device_prefetch_size=1)
    next(loader.per_device_loader(XLA))
    running = loader._threads
    del loader
    gc.collect()
    for thread in running:
        thread.join(timeout=10)
    assert not any(thread.is_alive() for thread in running)


def test_batches_are_dealt_out_to_devices() -> None:
    printed = python(
        """
        import torch, torch_xla.distributed.parallel_loader as pl
        devices = ["xla:0", "xla:1"]
        loader = pl.ParallelLoader([torch.tensor([i]) for i in range(5)], devices)
        for device in devices:
            items = list(loader.per_device_loader(device))
            print(device, [(str(item.device), item.item()) for item in items])
        print(len(loader.per_device_loader("xla:0")))
        """,
        CPU_NUM_DEVICES="2",
    )
    assert printed.splitlines() == [
        "xla:0 [('xla:0', 0), ('xla:0', 2)]",
        "xla:1 [('xla:1', 1), ('xla:1', 3)]",
        "2",
    ]


def test_threads_that_outlive_their_loader_are_waited_for_at_exit() -> None:
    for _ in pl.MpDeviceLoader([torch.ones(1000, 1000)] * 100, "xla:0"):
        break
    pl._close_all()
    assert threads() == set()


def test_a_program_may_end_in_the_middle_of_an_epoch() -> None:
    printed = python(
        """
        import torch, torch_xla.distributed.parallel_loader as pl
        for x in pl.MpDeviceLoader([torch.ones(100, 100)] * 1000, "xla:0"):
            break
        print("done")
        """,
        fresh=True,
    )
    assert printed == "done\n"


def test_worker_processes_of_a_data_loader() -> None:
    printed = python(
        """
        import torch, torch_xla.distributed.parallel_loader as pl
        torch.zeros(1, device="xla").item()
        data = torch.utils.data.TensorDataset(torch.arange(8.0))
        loader = torch.utils.data.DataLoader(data, batch_size=2, num_workers=2)
        for _ in range(2):
            print([x.tolist() for (x,) in pl.MpDeviceLoader(loader, "xla:0")])
        """,
        fresh=True,
    )
    lines = [line for line in printed.splitlines() if line.startswith("[")]
    assert lines == ["[[0.0, 1.0], [2.0, 3.0], [4.0, 5.0], [6.0, 7.0]]"] * 2
