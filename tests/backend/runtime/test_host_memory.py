"""Steps reuse the memory of the steps before, and the user's own settings of malloc come first."""

from __future__ import annotations

import pytest

from tests.programs import python

_STEPS = """
import resource, torch, xla_dynamo
torch.set_num_threads(2)
from xla_dynamo.backend.runtime import host_memory

def step(x):
    return x * 2, x + 1, x.sin()

run = torch.compile(step, backend="xla")
x = torch.ones(1 << 20)  # results of 4 MB
for _ in range(20):
    run(x)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    run(x)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before, host_memory.keep_freed())
"""

_ARENAS = """
import ctypes, threading, torch, xla_dynamo
torch.set_num_threads(2)
torch.compile(torch.sin, backend="xla")(torch.ones(3))

malloc = ctypes.CDLL(None).malloc
malloc.restype = ctypes.c_void_p
together = threading.Barrier(4)
others = []

def take():
    block = malloc(100_000)
    size = ctypes.c_size_t.from_address(block - ctypes.sizeof(ctypes.c_size_t)).value
    others.append(bool(size & 4))  # glibc's NON_MAIN_ARENA
    together.wait()

threads = [threading.Thread(target=take) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(any(others))
"""


def _faults(**environment: str) -> tuple[int, bool]:
    faults, kept = python(_STEPS, **environment).split()
    return int(faults), kept == "True"


def test_a_step_takes_no_fresh_pages() -> None:
    faults, kept = _faults()
    assert kept
    assert faults < 10_000  # ten steps write 30,720 pages


@pytest.mark.parametrize(
    "setting",
    [
        {"XLA_DYNAMO_KEEP_MEMORY": "0"},
        {"MALLOC_TRIM_THRESHOLD_": "131072"},
        {"GLIBC_TUNABLES": "glibc.malloc.trim_threshold=131072"},
    ],
)
def test_the_users_settings_come_first(setting: dict[str, str]) -> None:
    assert not _faults(**setting)[1]


@pytest.mark.parametrize(("kernels", "others"), [("torch", "True"), ("xla", "False")])
def test_threads_of_kernels_do_not_share_an_arena(kernels: str, others: str) -> None:
    assert python(_ARENAS, XLA_DYNAMO_CPU_KERNELS=kernels).strip() == others
