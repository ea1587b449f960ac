"""XLA:CPU takes the threads that PyTorch was given, and keeps each on a core of its own."""

from __future__ import annotations

import json

import pytest

from tests.programs import python

_STEPS = """
import json, os, time
{first}
import torch, xla_dynamo
{then}
cpus = os.sched_getaffinity(0)
run = torch.compile(lambda x: (x @ x).relu() @ x, backend="xla")
x = torch.randn(1024, 1024)
for _ in range(3):
    run(x)
start, busy = time.perf_counter(), time.process_time()
for _ in range(8):
    run(x)
cores = (time.process_time() - busy) / (time.perf_counter() - start)
tasks = [int(t) for t in os.listdir("/proc/self/task")]
pool = [t for t in tasks if open(f"/proc/self/task/{{t}}/comm").read().strip() == "tf_XLAEigen"]
bound = [sorted(os.sched_getaffinity(t)) for t in pool]
assert os.sched_getaffinity(0) == cpus and "PJRT_NPROC" not in os.environ
print(json.dumps([cores, bound, sorted(cpus)]))
"""

ONE = "os.sched_setaffinity(0, list(os.sched_getaffinity(0))[:1])"
TWO = "os.sched_setaffinity(0, list(os.sched_getaffinity(0))[:2])"


def _run(first: str = TWO, then: str = "", **environment: str) -> tuple[float, list, list]:
    """The cores that programs kept busy, the CPUs of each thread of the pool, the process's."""
    code = _STEPS.format(first=first, then=then)
    return json.loads(python(code, fails=False, fresh=bool(environment), **environment))


@pytest.mark.parametrize(
    ("first", "then", "environment"),
    [
        (TWO, "torch.set_num_threads(1)", {}),
        (TWO, "", {"OMP_NUM_THREADS": "1"}),
        (ONE, "", {}),  # as taskset does
    ],
    ids=["set_num_threads", "OMP_NUM_THREADS", "taskset"],
)
def test_the_number_of_threads_that_the_user_fixed(
    first: str, then: str, environment: dict[str, str]
) -> None:
    cores, _, cpus = _run(first, then, **environment)
    assert cores < 1.1
    assert len(cpus) == (1 if first == ONE else 2)


def test_each_thread_has_a_core() -> None:
    _, bound, cpus = _run(TWO, "torch.set_num_threads(2)")
    assert len(cpus) == 2
    assert sorted(bound) == [[cpu] for cpu in cpus]


def test_threads_are_left_to_linux_on_request() -> None:
    _, bound, cpus = _run(TWO, "torch.set_num_threads(2)", XLA_DYNAMO_BIND_THREADS="0")
    assert bound == [cpus, cpus]


def test_no_thread_is_busy_between_calls() -> None:
    idle = """
import time, torch, xla_dynamo
run = torch.compile(torch.nn.Linear(512, 512), backend="xla")
for _ in range(3):
    run(torch.randn(512, 512)).sum().backward()
torch.randn(1000, 1000).relu()
time.sleep(0.5)  # OpenMP's threads wait in a loop first
before = time.process_time()
time.sleep(1)
print(time.process_time() - before)
"""
    assert float(python(idle)) < 0.05
