"""Times and sizes as people read them."""

from __future__ import annotations


def seconds(value: float) -> str:
    """ "2.1 ms", "1.25 s", "3 min 20 s"."""
    if value <= 0:
        return "0 s"
    if value < 1e-3:
        return f"{value * 1e6:.3g} µs"
    if value < 1:
        return f"{value * 1e3:.3g} ms"
    if value < 100:
        return f"{value:.3g} s"
    minutes, rest = divmod(round(value), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def milliseconds(value: float | None) -> str:
    """The same of milliseconds; "" for None."""
    return "" if value is None else seconds(value / 1e3)


def size(value: float) -> str:
    """ "1.5 MiB"."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} B" if unit == "B" else f"{value:.3g} {unit}"
        value /= 1024
    return f"{value:.3g} TiB"


def count(number: int, word: str) -> str:
    """ "1 program", "2 programs"."""
    return f"{number:,} {word}{'' if number == 1 else 's'}"
