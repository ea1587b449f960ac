"""Which size stands for a size."""

from __future__ import annotations

from typing import Any

import pytest

from xla_dynamo.backend import buckets
from xla_dynamo.errors import OptionError


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ("powers_of_two", [8, 8, 16, 16, 32, 128]),
        ("half_steps", [8, 8, 12, 16, 24, 128]),
        (64, [64, 64, 64, 64, 64, 128]),
        ([32, 4, 16], [4, 16, 16, 16, 32, 100]),
        (lambda n: n + 1, [4, 9, 10, 17, 18, 101]),
    ],
)
def test_a_size_gets_the_least_bucket_that_holds_it(choice: Any, expected: list[int]) -> None:
    chosen = buckets.parse(choice)
    assert chosen is not None
    assert [chosen.size(n) for n in (3, 8, 9, 16, 17, 100)] == expected


def test_a_bucket_is_no_larger_than_what_a_size_can_be() -> None:
    chosen = buckets.Buckets("powers_of_two")
    assert chosen.size(33, largest=48) == 48
    assert chosen.size(20, largest=48) == 32


def test_the_least_size_of_a_bucket() -> None:
    assert buckets.Buckets("powers_of_two").smallest_above(32, 30) == 17
    assert buckets.Buckets("powers_of_two").smallest_above(8, 5) == 2


def test_text_of_the_environment() -> None:
    assert buckets.parse("") is None
    assert buckets.parse("64") == buckets.Buckets(64)
    assert buckets.parse("128, 32") == buckets.Buckets((32, 128))
    assert buckets.parse("half_steps") == buckets.Buckets("half_steps")


@pytest.mark.parametrize("wrong", ["powers", 0, -1, [], [0], 1.5, True, "8,x"])
def test_anything_else_is_an_error_that_lists_what_is_legal(wrong: Any) -> None:
    with pytest.raises(OptionError, match="'powers_of_two', 'half_steps', an int, a list"):
        buckets.parse(wrong)


def test_a_function_must_give_a_size_that_holds_the_other() -> None:
    with pytest.raises(OptionError, match="no int >= 5"):
        buckets.Buckets(lambda n: n - 1).size(5)
