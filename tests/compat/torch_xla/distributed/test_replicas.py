"""Replicas in threads and processes: their numbers are those of one, and faults of one end all."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch.distributed as dist

from tests.programs import python, run

ROOT = Path(__file__).parents[4]
PACKAGE = "tests.compat.torch_xla.distributed"


@pytest.mark.parametrize(
    ("program", "kind", "count"),
    [
        ("collectives", "threads", 4),
        ("collectives", "fork", 2),
        ("training", "threads", 2),
        pytest.param("training", "fork", 2, marks=pytest.mark.slow),  # DDP is in "distributed"
        ("sharded", "threads", 2),
        ("collectives", "both", 4),
        *[pytest.param(p, "both", 4, marks=pytest.mark.slow) for p in ("training", "sharded")],
        ("distributed", "fork", 2),
        ("replicated", "threads", 2),
        pytest.param("replicated", "both", 4, marks=pytest.mark.slow),
        pytest.param("dtensor", "fork", 4, marks=pytest.mark.slow),
        *[
            pytest.param(program, kind, count, marks=pytest.mark.slow)
            for program in ("collectives", "training", "sharded", "distributed")
            for kind, count in [("threads", 8), ("fork", 8), ("spawn", 2), ("forkserver", 2)]
            if not (program == "distributed" and kind == "threads")  # it is for processes
        ],
    ],
)
def test_replicas(program: str, kind: str, count: int) -> None:
    printed = run("-m", f"{PACKAGE}.replica_programs", program, kind, str(count), cwd=ROOT)
    for rank in range(count):
        assert f"{program} of rank {rank} ended" in printed
    assert "Gloo" not in printed
    if program == "training":  # two models, four steps: one launch each
        each = 8 * {"threads": count, "both": 2}.get(kind, 1)
        assert max(map(int, re.findall(r"after (\d+) launches", printed))) == each


DIFFERENT = "different programs"
FAULTS = {
    "raises": ("ZeroDivisionError: only here", "ZeroDivisionError: only here"),
    "ends": ("replica 1 has ended", "rank 1 has ended"),
    "shape": (f"{DIFFERENT}.*float32\\[8\\]", f"{DIFFERENT}.*float32\\[8\\]"),
    "op": (f"{DIFFERENT}.*'?max", f"{DIFFERENT}.*'max'"),
    "rendezvous": ("replica 1 in rendezvous 'alone'", "rendezvous 'alone'"),
    "receives": (
        "no message came for channel 5|replica 1 waits for a message for channel 5",
        "no message came for channel 5; of rank 0: it is",
    ),
    "hangs": (r"replica 1 is at .*time\.sleep", r"rank 1, which .* is at .*replica_faults\.py"),
    "killed": ("", "process 1 terminated with signal SIGKILL"),
    "none": ("nothing was raised", "nothing was raised"),
}


@pytest.mark.parametrize(
    ("kind", "faults"),
    [
        ("threads", ["raises", "ends", "shape", "op", "rendezvous", "receives", "hangs", "none"]),
        ("fork", ["raises", "shape", "receives"]),
        pytest.param(
            "fork", ["ends", "op", "rendezvous", "hangs", "killed", "none"], marks=pytest.mark.slow
        ),
    ],
)
def test_faults_of_one_end_all_soon(kind: str, faults: list[str]) -> None:
    printed = run("-m", f"{PACKAGE}.replica_faults", kind, *faults, cwd=ROOT)
    for fault in faults:
        told = re.search(rf"<{fault}> (.*) </{fault}> after (\d+) s", printed, re.DOTALL)
        assert told, printed
        assert re.search(FAULTS[fault][kind == "fork"], told[1], re.DOTALL), told[1]
        assert int(told[2]) < 20


@pytest.mark.parametrize("fails", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_torchrun(fails: bool) -> None:
    program = str(Path(__file__).with_name("torchrun_program.py"))
    arguments = ["--nproc-per-node=2", "--standalone", program, *["fails"][: int(fails)]]
    printed = run("-m", "torch.distributed.run", *arguments, fails=fails, fresh=True, cwd=ROOT)
    if fails:
        assert "ZeroDivisionError: only here" in printed
    else:
        both = {f"rank {rank} of 2 ended on xla:0" for rank in range(2)}
        assert both <= set(printed.splitlines())


@pytest.mark.slow
@pytest.mark.parametrize("late", [False, True])
def test_torchrun_with_two_devices_for_each_process(late: bool) -> None:
    program = str(Path(__file__).with_name("torchrun_program.py"))
    arguments = ["--nproc-per-node=2", "--standalone", program, *["late"][: int(late)]]
    how = {"cwd": ROOT, "fresh": True, "fails": late, "CPU_NUM_DEVICES": "2"}
    printed = run("-m", "torch.distributed.run", *arguments, **how)  # type: ignore[arg-type]
    if late:
        assert "call torch_xla.launch(fn) before anything that uses a device" in printed
    else:
        ended = {f"rank {rank} of 4 ended on xla:{rank % 2}" for rank in range(4)}
        assert ended <= set(printed.splitlines())


@pytest.mark.slow
@pytest.mark.parametrize("bad", [0, 1])
@pytest.mark.parametrize("fault", ["shape", "raises"])
def test_whoever_fails_the_others_end_by_an_error(bad: int, fault: str) -> None:
    """As under torchrun, whose agent does not stop who still runs; by no signal of their own."""
    for _ in range(5):
        store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        variables = {
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(store.port),
            "TORCHELASTIC_USE_AGENT_STORE": "True",
            "WORLD_SIZE": "2",
            "XLA_DYNAMO_PATIENCE": "5",
        }
        command = [sys.executable, "-m", f"{PACKAGE}.replica_faults", "launch", fault, str(bad)]
        started = [
            subprocess.Popen(
                command,
                env=os.environ | variables | {"RANK": str(rank)},
                cwd=ROOT,
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in range(2)
        ]
        for rank, process in enumerate(started):
            _, printed = process.communicate(timeout=120)
            assert process.returncode == 1, printed
            own = fault == "raises" and rank == bad
            cause = "only here" if fault == "raises" else DIFFERENT
            assert f"{'ZeroDivisionError' if own else 'ReplicaError'}: " in printed
            assert cause in printed, printed


LAUNCHED = """
import torch, torch_xla, torch_xla.core.xla_model as xm, torch_xla.runtime as xr
from torch_xla._internal import pjrt

def train(rank, seed):
    torch.manual_seed(seed)  # threads share the generator: they begin one after another
    layers = [torch.nn.Linear(4, 4) for _ in range(100)]
    weight = layers[-1].weight.detach().to(xm.xla_device())
    assert (xr.global_ordinal(), xr.world_size()) == (rank, xr.world_size())
    every = xm.all_gather(weight.unsqueeze(0))
    assert (every == weight).all().item()
    print(f"rank {rank} of {xr.world_size()} ended on {weight.device}", flush=True)

torch_xla.launch(train, args=(3,))
torch_xla.launch(train, args=(3,), debug_single_process=True)
assert pjrt.run_multiprocess(xr.global_ordinal) == {0: 0, 1: 1, 2: 2}
try:
    torch_xla.launch(lambda rank: 1 / rank)
except ZeroDivisionError:
    print("raised")

def exchanges(rank, failing):
    total = xm.all_reduce("sum", torch.ones(2, device="xla"))
    if rank == failing:
        raise KeyError(rank)
    assert total.tolist() == [3.0, 3.0]

try:
    torch_xla.launch(exchanges, args=(1,))
except KeyError:
    torch_xla.launch(exchanges, args=(None,))  # nothing of the run before is left
    print("again")
"""


def test_launch_calls_a_thread_for_each_device_of_a_cpu() -> None:
    printed = python(LAUNCHED, CPU_NUM_DEVICES="3")
    for rank in range(3):
        assert f"rank {rank} of 3 ended on xla:{rank}" in printed
    assert "rank 0 of 1 ended on xla:0" in printed
    assert "raised" in printed
    assert printed.rstrip().endswith("again")


FORKED = """
import signal
import torch
import torch_xla.distributed.xla_multiprocessing as xmp

torch.set_num_threads(2)
large = torch.ones(1000, 1000)
large.relu()  # its threads wait for the next kernel

def compute(rank):
    signal.alarm(20)  # a process that has not these threads waits for them for ever
    print(f"rank {rank} has {large.relu().sum().item()}", flush=True)

xmp.spawn(compute, nprocs=2, start_method="fork")
"""


def test_forks_of_a_process_whose_kernels_have_threads() -> None:
    printed = python(FORKED)
    assert {f"rank {rank} has 1000000.0" for rank in range(2)} <= set(printed.splitlines())


def told_to_libtpu(printed: str) -> list[dict[str, str]]:
    """By process."""
    told = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    return sorted(told, key=lambda of: of["CLOUD_TPU_TASK_ID"])


def check_four_chips(printed: str) -> None:
    told = told_to_libtpu(printed)
    assert [of["TPU_VISIBLE_CHIPS"] for of in told] == list("0123")
    assert {of["TPU_PROCESS_BOUNDS"] for of in told} == {"2,2,1"}
    (addresses,) = {of["TPU_PROCESS_ADDRESSES"] for of in told}
    ports = [address.removeprefix("localhost:") for address in addresses.split(",")]
    assert [of["TPU_PROCESS_PORT"] for of in told] == ports
    for rank in range(4):
        assert f"rank {rank} ended [-8.0, -12.0]" in printed


def test_a_process_for_each_chip_of_a_tpu() -> None:
    check_four_chips(run("-m", f"{PACKAGE}.tpu_program", "spawn", cwd=ROOT))


@pytest.mark.slow
def test_a_thread_for_each_device_of_a_chip() -> None:
    printed = run("-m", f"{PACKAGE}.tpu_program", "v3", cwd=ROOT)
    assert [of["TPU_VISIBLE_CHIPS"] for of in told_to_libtpu(printed)] == list("01")
    for rank in range(4):
        assert f"rank {rank} ended [-8.0, -12.0]" in printed


@pytest.mark.slow
def test_on_tpus_whole_programs_are_compared() -> None:
    arguments = ["-m", f"{PACKAGE}.tpu_program", "differs"]
    printed = run(*arguments, fails=True, cwd=ROOT, XLA_DYNAMO_PATIENCE="20")
    assert re.search(r"ReplicaError: .*launch 3.* in program .*which of its values are", printed)


@pytest.mark.slow
@pytest.mark.parametrize("count", [4, 2])
def test_torchrun_on_a_tpu(count: int) -> None:
    program = str(Path(__file__).with_name("tpu_program.py"))
    arguments = [f"--nproc-per-node={count}", "--standalone", program]
    printed = run("-m", "torch.distributed.run", *arguments, fails=count != 4, fresh=True, cwd=ROOT)
    if count == 4:
        check_four_chips(printed)
    else:
        assert "Start it with --nproc-per-node=4 --nnodes=1" in printed


@pytest.mark.slow
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL])
def test_a_signal_to_the_parent_leaves_nobody(sent: signal.Signals, tmp_path: Path) -> None:
    """Ctrl-C reaches all of the terminal's group; a kill reaches the parent alone."""
    log = tmp_path / "log"
    with log.open("w") as output:
        parent = subprocess.Popen(
            [sys.executable, "-m", f"{PACKAGE}.replica_faults", "fork", "hangs"],
            cwd=ROOT,
            stdout=output,
            stderr=output,
            start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )
    wait_until(lambda: len(of_group(parent.pid)) >= 3)
    (os.killpg if sent is signal.SIGINT else os.kill)(parent.pid, sent)
    assert parent.wait(30) == -sent
    wait_until(lambda: not of_group(parent.pid))


def of_group(group: int) -> list[str]:
    """The processes of a group."""
    found = subprocess.run(["pgrep", "-g", str(group)], capture_output=True, text=True, check=False)
    return found.stdout.split()


def wait_until(done: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.1)
