"""The sizes that programs are compiled for where sizes change: options={"bucket": ...}.

A size between two buckets is padded to the larger one, so that one executable serves all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from xla_dynamo.errors import OptionError

# Smaller programs cost no less to compile and to launch.
SMALLEST = 8
NAMES = ("powers_of_two", "half_steps")


@dataclass(frozen=True)
class Buckets:
    """Which size stands for a size.

    choice: "powers_of_two" (8, 16, 32, ...), "half_steps" (8, 12, 16, 24, 32, 48, ...), an int (its
        multiples), a tuple of sizes in ascending order, or a function of the size.
    """

    choice: str | int | tuple[int, ...] | Callable[[int], int]

    def size(self, n: int, largest: int | None = None) -> int:
        """The bucket of size `n`: at least `n`, and at most `largest`, which `n` never exceeds.

        A size beyond the last one of a list is its own bucket.

        Raises:
            OptionError: a function of the user's gave no size that holds `n`.
        """
        found = self._size(n)
        if callable(self.choice) and (type(found) is not int or found < n):
            raise OptionError(f"options['bucket'] gave {found!r} for size {n}: no int >= {n}.")
        return max(n, found if largest is None else min(found, largest))

    def _size(self, n: int) -> Any:
        choice = self.choice
        if isinstance(choice, int):
            return -(-n // choice) * choice
        if isinstance(choice, tuple):
            return next((size for size in choice if size >= n), n)
        if callable(choice):
            return choice(n)
        power = max(SMALLEST, 1 << (n - 1).bit_length())
        return (
            3 * power // 4 if choice == "half_steps" and SMALLEST < n <= 3 * power // 4 else power
        )

    def smallest_above(self, bucket: int, size: int) -> int:
        """The least size, down from `size`, that `bucket` stands for."""
        while size > 2 and self.size(size - 1) == bucket:
            size -= 1
        return size


def programs(buckets: Buckets, sizes: Iterable[Sequence[int]]) -> int:
    """How many programs these combinations of sizes would have; 0 and 1 are not padded."""
    return len({tuple([n if n < 2 else buckets.size(n) for n in each]) for each in sizes})


def proposal(
    sizes: Collection[Sequence[int]], how: str = "options={'bucket': ...} (or XLA_DYNAMO_BUCKET)"
) -> str:
    """What buckets would have made of the programs for these combinations of sizes.

    how: what the user sets.
    """
    found = {choice: programs(Buckets(choice), sizes) for choice in (*NAMES, 64)}
    numbers = ", ".join(f"{count} with {choice!r}" for choice, count in found.items())
    return (
        f"{how} pads sizes to a few, with the same results. Of these {len(sizes)} programs it "
        f"would have made {numbers}. docs/shapes.md says what it guarantees"
    )


def parse(value: Any, name: str = "options['bucket']") -> Buckets | None:
    """What the option or the environment variable says; None for exact sizes.

    Raises:
        OptionError.
    """
    if value is None or value == "":
        return None
    if isinstance(value, Buckets):
        return value
    read = _numbers(value) if isinstance(value, str) and value not in NAMES else value
    if isinstance(read, str) or (type(read) is int and read > 0):
        return Buckets(read)
    if callable(read):
        return Buckets(cast("Callable[[int], int]", read))
    if isinstance(read, (list, tuple)) and read and all(type(n) is int and n > 0 for n in read):
        return Buckets(tuple(sorted(set(read))))
    raise OptionError(
        f"{name}={value!r} is not legal; legal: {', '.join(map(repr, NAMES))}, an int, a list of "
        "ints, a function of a size, None."
    )


def _numbers(text: str) -> Any:
    """ "64" as an int, "16,64" as a list; other text is refused."""
    parts = text.split(",")
    if not all(part.strip().isdecimal() for part in parts):
        return (text,)  # no list of sizes
    numbers = [int(part) for part in parts]
    return numbers if len(numbers) > 1 else numbers[0]
