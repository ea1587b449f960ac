"""What processes read of each other, of a service that is a dict."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from xla_dynamo.backend.runtime.notice_board import NoticeBoard
from xla_dynamo.errors import ReplicaError

pytestmark = pytest.mark.spine


class Service:
    """The calls of JAX's coordination client that a board makes."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}

    def key_value_set(self, key: str, value: str, *, allow_overwrite: bool = False) -> None:
        if key in self.values and not allow_overwrite:
            raise RuntimeError("ALREADY_EXISTS")
        self.values[key] = value

    def key_value_try_get(self, key: str) -> str:
        return self.values[key]

    def key_value_dir_get(self, folder: str) -> list[tuple[str, str]]:
        return [(key, value) for key, value in self.values.items() if key.startswith(folder)]


@pytest.fixture
def boards() -> Iterator[list[NoticeBoard]]:
    service = Service()
    made = [NoticeBoard(service, rank, 3) for rank in range(2)]
    yield made
    for board in made:
        board.close()


def test_launches_are_numbered_and_compared(boards: list[NoticeBoard]) -> None:
    one, two = boards
    assert [one.launches("a", known=False), one.launches("b", known=False)] == [1, 2]
    two.launches("a", known=False)
    assert one.difference(one.posts()) == ""
    assert (one.own.ready, one.launches("c", known=True), one.own.ready) == (0, 3, 3)
    two.launches("other", known=False)
    told = one.difference(one.posts())
    assert re.search(
        r"launch 2 .* has b on rank 0 and other on rank 1, which is at .*\.py:\d", told
    )


def test_who_is_not_there(boards: list[NoticeBoard]) -> None:
    one, two = boards
    two.tell()
    one.launches("a", known=False)
    told = one.absent()
    assert re.search(r"rank 1, which has launched 0 of 1 .* is at .*py:\d+; rank 2 has not", told)
    assert "rank 1 is dead: it was last at" in one.absent(asked=two.posts()[1].time + 1)
    two.close()
    assert "rank 1 has ended after 0 launches" in one.absent()


def test_the_first_verdict_is_everybodys(boards: list[NoticeBoard]) -> None:
    one, two = boards
    assert one.known_verdict() == ""
    assert one.verdict("rank 0 raised KeyError") == "rank 0 raised KeyError"
    assert two.verdict("something else") == two.known_verdict() == "rank 0 raised KeyError"


def test_a_service_that_has_gone() -> None:
    board = NoticeBoard(None, 0, 1)  # each call of it fails
    with pytest.raises(ReplicaError, match="does not answer"):
        board.posts()
    assert board.verdict("why") == "why"
    board.close()
