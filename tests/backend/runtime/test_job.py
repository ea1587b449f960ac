"""What the processes of a job tell each other: here two in threads, with JAX's service between."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.programs import run_in_threads
from xla_dynamo.backend import jax_adapter
from xla_dynamo.backend.runtime import coordinator, job
from xla_dynamo.errors import ReplicaError

PATIENCE = 2


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[job.Job]]:
    monkeypatch.setenv("XLA_FLAGS", "")
    service = coordinator.Apart(2, 10)
    made = run_in_threads([lambda r=r: job.Job(service.address, r, 2, PATIENCE) for r in range(2)])
    assert all(isinstance(each, job.Job) for each in made), made
    yield made
    for each in made:
        each.leave()
    service.end()


def both(jobs: list[job.Job], call: Callable[[job.Job], Any]) -> list[Any]:
    return run_in_threads([lambda j=j: call(j) for j in jobs])


def test_two_processes(jobs: list[job.Job]) -> None:
    """One test, as it takes seconds to come together."""
    one, two = jobs

    # They exchange what can be pickled, in the order of ranks.
    assert both(jobs, lambda j: j.exchange("tag", {"of": j.rank})) == [[{"of": 0}, {"of": 1}]] * 2
    for _ in range(4):
        assert both(jobs, lambda j: j.exchange("again", j.rank)) == [[0, 1]] * 2

    # A program that is new waits for the other; rank 0 compiles it first.
    done: list[int] = []

    def compile(of: job.Job) -> None:
        of.announce("a program", known=False)
        of.wait_for_first()
        time.sleep(0.1 * (1 - of.rank))
        done.append(of.rank)
        of.compiled()

    assert both(jobs, compile) == [None, None]
    assert done == [0, 1]
    one.announce("a program", known=True)  # waits for nobody
    two.announce("a program", known=True)

    # Who is not there is named, with what it does.
    start = time.monotonic()
    with pytest.raises(ReplicaError, match=r"rank 1, which has launched 2 of 3 .* is at .*py:\d+"):
        one.announce("another", known=False)
    assert PATIENCE <= time.monotonic() - start < PATIENCE + 3
    # The first cause that anybody finds is everybody's.
    with pytest.raises(ReplicaError, match="rank 1, which has launched 2 of 3"):
        two.fail("something else")


def test_other_programs_and_other_meetings(jobs: list[job.Job]) -> None:
    errors = both(jobs, lambda j: j.announce(f"program {j.rank}", known=False))
    assert all(isinstance(error, ReplicaError) for error in errors), errors
    assert str(errors[0]) == str(errors[1])
    assert "processes launch different programs: launch 1" in str(errors[0])
    errors = both(jobs, lambda j: j.exchange(f"place {j.rank}", None))
    assert all(isinstance(error, ReplicaError) for error in errors), errors


def test_who_does_not_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLA_FLAGS", "")
    with pytest.raises(ReplicaError, match="not all of 2 processes came to the coordination"):
        job.Job("127.0.0.1:9", 0, 2, 1)


def test_patience_goes_to_xla_unless_it_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    flag = jax_adapter.COLLECTIVE_TIMEOUT_FLAG
    monkeypatch.setenv("XLA_FLAGS", "--some=1")
    job.set_patience(7)
    job.set_patience(8)
    expected = f"--some=1 {flag}=7" if flag else "--some=1"
    assert os.environ["XLA_FLAGS"] == expected
