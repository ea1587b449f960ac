"""A bounded cache forgets its oldest entries, and only those beyond its capacity."""

from __future__ import annotations

import pytest

from tests.programs import run_in_threads
from xla_dynamo.bounded import Bounded

pytestmark = pytest.mark.spine


def filled(count: int) -> Bounded[int, int]:
    cache: Bounded[int, int] = Bounded(3)
    for number in range(count):
        cache[number] = number * number
    return cache


def test_the_oldest_make_room() -> None:
    assert dict(filled(3)) == {0: 0, 1: 1, 2: 4}
    assert dict(filled(5)) == {2: 4, 3: 9, 4: 16}


def test_a_new_value_of_a_known_key_takes_no_room() -> None:
    cache = filled(3)
    cache[0] = 7
    assert dict(cache) == {0: 7, 1: 1, 2: 4}


def test_setdefault_counts_too() -> None:
    cache = filled(3)
    assert cache.setdefault(1, 8) == 1
    assert cache.setdefault(9, 8) == 8
    assert list(cache) == [1, 2, 9]


def test_a_key_that_was_moved_to_the_end_stays() -> None:
    cache = filled(3)
    cache.move_to_end(0)
    cache[9] = 81
    assert list(cache) == [2, 0, 9]


def test_threads_share_it() -> None:
    cache: Bounded[tuple[int, int], int] = Bounded(50)

    def add(thread: int) -> None:
        for number in range(5_000):
            cache[thread, number] = number

    assert run_in_threads([lambda thread=thread: add(thread) for thread in range(4)]) == [None] * 4
    assert len(cache) == 50
