"""DataParallel: the shape of a loader's items, contexts, errors, replicas in threads."""

from __future__ import annotations

import functools
import re
from typing import Any

import pytest
import torch
import torch_xla.distributed.data_parallel as dp
import torch_xla_py.data_parallel as dp2019
from torch_xla.distributed.loop_target import nested_target

from tests.programs import python

BATCHES = [(torch.full((2,), float(i)), torch.tensor([i])) for i in range(3)]


def model() -> torch.nn.Module:
    return torch.nn.Linear(2, 1)


def numbered_loop(model: Any, loader: Any, device: Any, context: Any) -> list[int]:
    return [number for number, (_data, _target) in loader]


def plain_loop(model: Any, loader: Any, device: Any, context: Any) -> list[int]:
    found = []
    for _data, target in loader:
        found.append(int(target))
    return found


def enumerated_loop(model: Any, loader: Any, device: Any, context: Any) -> list[int]:
    found = []
    for number, (_data, target) in enumerate(loader):
        assert number == int(target)
        found.append(number)
    return found


def whole_loop(model: Any, loader: Any, device: Any, context: Any) -> list[int]:
    found = []
    for number, batch in loader:
        _data, _target = batch
        found.append(number)
    return found


@pytest.mark.parametrize("devices", [["xla:0"], []])
@pytest.mark.parametrize("loop", [numbered_loop, plain_loop, enumerated_loop])
def test_items_have_the_shape_that_the_loop_unpacks(loop: Any, devices: list[str]) -> None:
    assert dp.DataParallel(model, device_ids=devices)(loop, BATCHES) == [[0, 1, 2]]


@pytest.mark.parametrize("devices", [["xla:0"], []])
@pytest.mark.parametrize("loop", [numbered_loop, whole_loop])
def test_items_of_the_package_of_2019(loop: Any, devices: list[str]) -> None:
    assert dp2019.DataParallel(model, device_ids=devices)(loop, BATCHES) == [[0, 1, 2]]


def test_a_batch_that_is_nested_itself_is_not_numbered() -> None:
    nested = [(torch.tensor([7]), [torch.ones(2), torch.tensor([1])])]

    def loop(model: Any, loader: Any, device: Any, context: Any) -> list[int]:
        return [int(index) for index, (_image, _label) in loader]

    assert dp.DataParallel(model, device_ids=["xla:0"])(loop, nested) == [[7]]


def test_which_loops_unpack_a_pair() -> None:
    assert nested_target(numbered_loop) == 2
    assert nested_target(functools.partial(numbered_loop)) == 2
    assert nested_target(plain_loop) is None
    assert nested_target(enumerated_loop) is None
    assert nested_target(print) is None


def test_context_lives_across_epochs() -> None:
    def loop(model: Any, loader: Any, device: Any, context: Any) -> int:
        seen = context.getattr_or("seen", lambda: [])
        seen.append(str(device))
        assert context.getattr_or("limit", 3) == 3
        return len(seen)

    parallel = dp.DataParallel(model, device_ids=["xla:0"])
    assert [parallel(loop, BATCHES) for _ in range(2)] == [[1], [2]]
    assert parallel.devices == ["xla:0"]
    assert parallel._models is parallel.models
    assert next(parallel.models[0].parameters()).device == torch.device("xla:0")


def test_without_devices_it_runs_on_the_cpu() -> None:
    made = model()
    parallel = dp.DataParallel(made, device_ids=[])
    assert parallel.models == [made]

    def loop(model: Any, loader: Any, device: Any, context: Any) -> tuple[Any, int]:
        assert {x.device.type for x, _ in loader} == {"cpu"}
        return model, len(loader)

    assert parallel(loop, BATCHES) == [(made, 3)]


def test_old_and_new_arguments() -> None:
    uneven = [*BATCHES, (torch.ones(1), torch.tensor([9]))]
    parallel = dp.DataParallel(model)
    assert parallel(plain_loop, uneven, True) == [[0, 1, 2]]
    assert parallel(plain_loop, uneven, fixed_batch_size=True, batchdim=0) == [[0, 1, 2]]

    def loop(model: Any, loader: Any, device: Any, context: Any, *, extra: int) -> int:
        return extra

    assert parallel(loop, BATCHES, 0, extra=5) == [5]


def test_an_error_is_printed_and_raised(capsys: pytest.CaptureFixture[str]) -> None:
    def loop(model: Any, loader: Any, device: Any, context: Any) -> None:
        raise ValueError("in the loop")

    with pytest.raises(ValueError, match="in the loop"):
        dp.DataParallel(model, device_ids=["xla:0"])(loop, BATCHES)
    printed = capsys.readouterr().err
    assert "Exception in model function for device=xla:0: in the loop" in printed
    assert "Traceback" in printed


def test_an_error_in_one_of_two_threads_ends_both() -> None:
    printed = python(
        """
        import torch, torch_xla.core.xla_model as xm, torch_xla.distributed.data_parallel as dp
        def loop(model, loader, device, context):
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for x in loader:
                if device.index == 1:
                    raise KeyError("only here")
                model(x).sum().backward()
                xm.optimizer_step(optimizer)
        try:
            dp.DataParallel(torch.nn.Linear(2, 1))(loop, [torch.ones(1, 2)] * 8)
        except KeyError as error:
            print("raised", error)
        """,
        CPU_NUM_DEVICES="2",
    )
    assert "Exception in model function for device=xla:1" in printed
    assert "device=xla:0" not in printed
    assert printed.rstrip().endswith("raised 'only here'")


def test_two_replicas_train_as_one_on_twice_the_batch() -> None:
    printed = python(
        """
        import copy, torch, torch_xla.core.xla_model as xm, xla_dynamo
        import torch_xla.distributed.data_parallel as dp
        torch.manual_seed(0)
        model = torch.nn.Linear(3, 1)
        expected = copy.deepcopy(model)
        data = [torch.randn(4, 3) for _ in range(6)]
        def loop(model, loader, device, context):
            optimizer = context.getattr_or(
                "optimizer", lambda: torch.optim.Adam(model.parameters(), lr=0.1))
            for x in loader:
                optimizer.zero_grad()
                (model(x) - x.sum(1, keepdim=True)).square().mean().backward()
                xm.optimizer_step(optimizer)
        parallel = dp.DataParallel(model)
        for _ in range(2):
            parallel(loop, data)
        assert len(xla_dynamo.compiles()) == 1  # the step that makes Adam's state, and all others
        optimizer = torch.optim.Adam(expected.parameters(), lr=0.1)
        for _ in range(2):
            for i in range(0, 6, 2):
                x = torch.cat(data[i : i + 2])
                optimizer.zero_grad()
                (expected(x) - x.sum(1, keepdim=True)).square().mean().backward()
                optimizer.step()
        for replica in parallel.models:
            torch.testing.assert_close(replica.weight.cpu(), expected.weight)
            print(replica.weight.device)
        """,
        CPU_NUM_DEVICES="2",
    )
    assert printed.split() == ["xla:0", "xla:1"]


def test_that_each_device_compiles_its_own_program_is_nothing_to_warn_of() -> None:
    printed = python(
        """
        import torch, torch_xla, torch_xla.core.xla_model as xm

        def evaluate(rank):
            assert torch.ones(3, device=xm.xla_device()).exp().sum().item() > 8

        torch_xla.launch(evaluate)
        """,
        CPU_NUM_DEVICES="8",
    )
    assert "RecompileWarning" not in printed


def test_a_thread_that_hangs_is_named_and_left_alone() -> None:
    printed = python(
        """
        import time
        import torch, torch_xla, torch_xla.core.xla_model as xm

        def hang(rank):
            if rank == 1:
                time.sleep(600)
            xm.all_reduce("sum", torch.ones(1, device=xm.xla_device())).item()

        for _ in range(2):
            try:
                torch_xla.launch(hang)
            except Exception as error:
                print("raised", type(error).__name__, error)
        """,
        CPU_NUM_DEVICES="3",
        XLA_DYNAMO_PATIENCE="2",
    )
    first, second = re.findall("raised ReplicaError (.*)", printed)
    assert re.match(r"after 2 s replicas? .* and replica 1 is at <string>:8", first), first
    assert re.match(r"threads of .* still running \(xla_replica:1\).* new process", second), second
