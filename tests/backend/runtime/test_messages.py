"""Messages between processes go through the coordination service, in order and in pieces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from xla_dynamo.backend.runtime import messages
from xla_dynamo.errors import ReplicaError

pytestmark = pytest.mark.spine


class Service:
    """The coordination service's store, here a dictionary."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}

    def key_value_set_bytes(self, key: str, value: bytes) -> None:
        self.kept[key] = value

    def key_value_try_get_bytes(self, key: str) -> bytes:
        return self.kept[key]

    def key_value_delete(self, key: str) -> None:
        self.kept = {k: v for k, v in self.kept.items() if not k.startswith(f"{key}/")}


def at_once(poll: Callable[[], Any], why: Callable[[], str]) -> Any:
    found = poll()
    if found is None:
        raise ReplicaError(why())
    return found


@pytest.fixture
def service() -> Service:
    return Service()


@pytest.fixture
def ends(service: Service) -> tuple[messages.Messages, messages.Messages]:
    return messages.Messages(service, at_once), messages.Messages(service, at_once)


Ends = tuple[messages.Messages, messages.Messages]


def test_messages_come_in_order_and_leave_nothing(
    service: Service, ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(messages, "_PIECE", 100)
    sender, receiver = ends
    x = torch.randn(1000, dtype=torch.bfloat16)
    sender.send("0 to 1", x)
    sender.send("0 to 1", "second")
    sender.send("0 to 2", "for another")
    numbers = [receiver.reserve("0 to 1") for _ in range(2)]
    assert receiver.receive("0 to 1", numbers[1]) == "second"
    assert torch.equal(receiver.receive("0 to 1", numbers[0]), x)
    assert {key.split("/")[1] for key in service.kept} == {"0 to 2"}


def test_a_message_from_any(ends: Ends) -> None:
    sender, receiver = ends
    first = receiver.reserve("a")  # awaited by itself
    sender.send("a", 1)
    sender.send("b", 2)
    assert receiver.receive_any(["a", "b"]) == (1, 2)
    sender.send("a", 3)
    assert receiver.receive_any(["a", "b"]) == (0, 3)
    assert receiver.receive("a", first) == 1


def test_what_does_not_come_and_what_is_not_received(ends: Ends) -> None:
    sender, receiver = ends
    with pytest.raises(ReplicaError, match="no message came for a"):
        receiver.receive("a", receiver.reserve("a"))
    with pytest.raises(ReplicaError, match="no message came for any of b, c"):
        receiver.receive_any(["b", "c"])
    for _ in range(8):
        sender.send("d", 0)
    with pytest.raises(ReplicaError, match="8 messages for d were not received"):
        sender.send("d", 0)
