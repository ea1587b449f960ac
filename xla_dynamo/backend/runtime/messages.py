"""Messages from one process of a job to another, through JAX's coordination service.

An address is known to one sender and one receiver, and its messages are numbered. They go through
the memory of the service, in pieces that it takes: right, not fast.
"""

from __future__ import annotations

import collections
import pickle
from collections.abc import Callable, Sequence
from typing import Any

_PIECE = 1 << 20
_UNREAD = 8  # so many messages of an address may wait in the service
# What polls until a function gives something, or raises what the second says.
Patiently = Callable[[Callable[[], Any], Callable[[], str]], Any]


class Messages:
    """What this process sends and receives. `patiently` bounds each wait."""

    def __init__(self, service: Any, patiently: Patiently) -> None:
        self._service, self._patiently = service, patiently
        self._sent: collections.Counter[str] = collections.Counter()
        self._reserved: collections.Counter[str] = collections.Counter()

    def send(self, address: str, item: Any) -> None:
        """Send what can be pickled; returns before it is received.

        Raises:
            ReplicaError: nobody receives the messages of before.
        """
        number = self._sent[address] = self._sent[address] + 1
        unread = _key(address, number - _UNREAD)
        self._patiently(
            lambda: self._get(f"{unread}/pieces") is None or None,
            lambda: f"{_UNREAD} messages for {address} were not received",
        )
        data, key = pickle.dumps(item), _key(address, number)
        pieces = [data[at : at + _PIECE] for at in range(0, len(data), _PIECE)]
        for i, piece in enumerate(pieces):
            self._service.key_value_set_bytes(f"{key}/{i}", piece)
        self._service.key_value_set_bytes(f"{key}/pieces", str(len(pieces)).encode())

    def reserve(self, address: str) -> int:
        """The number of the next message to be received from an address, which is now taken."""
        self._reserved[address] += 1
        return self._reserved[address]

    def receive(self, address: str, number: int) -> Any:
        """Message `number` of an address, which this process has reserved.

        Raises:
            ReplicaError: it does not come.
        """
        return self._patiently(
            lambda: self._take(address, number), lambda: f"no message came for {address}"
        )[0]

    def receive_any(self, addresses: Sequence[str]) -> tuple[int, Any]:
        """The next message of any of several addresses: which it is, and the message.

        Raises:
            ReplicaError: none comes.
        """

        def look() -> tuple[int, Any] | None:
            for i, address in enumerate(addresses):
                found = self._take(address, self._reserved[address] + 1)
                if found is not None:
                    self.reserve(address)
                    return i, found[0]
            return None

        return self._patiently(look, lambda: f"no message came for any of {', '.join(addresses)}")

    def _take(self, address: str, number: int) -> tuple[Any] | None:
        key = _key(address, number)
        count = self._get(f"{key}/pieces")
        if count is None:
            return None
        pieces = [self._get(f"{key}/{i}") or b"" for i in range(int(count))]
        self._service.key_value_delete(key)  # all below it
        return (pickle.loads(b"".join(pieces)),)

    def _get(self, key: str) -> bytes | None:
        try:
            return self._service.key_value_try_get_bytes(key)
        except Exception:  # there is none
            return None


def _key(address: str, number: int) -> str:
    return f"message/{address}/{number}"
