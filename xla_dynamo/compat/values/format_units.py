"""Nanoseconds and bytes as torch_xla prints them."""

from __future__ import annotations

# Parts of a time: nanoseconds, digits, name.
_TIMES = (
    (86_400 * 10**9, 2, "d"),
    (3_600 * 10**9, 2, "h"),
    (60 * 10**9, 2, "m"),
    (10**9, 2, "s"),
    (10**6, 3, "ms"),
)


def show_time(nanoseconds: float) -> str:
    """1202003000.0 -> "01s202ms003.000us"."""
    rest, text = round(nanoseconds), ""
    for size, digits, name in _TIMES:
        whole, rest = divmod(rest, size)
        if whole or text:
            text += f"{whole:0{digits}d}{name}"
    return f"{text}{rest / 1000:07.3f}us"


def show_bytes(number: float) -> str:
    """1577.0 -> "1.54KB"."""
    for name in ("B", "KB", "MB", "GB", "TB"):
        if number < 1024:
            return f"{number:.2f}{name}"
        number /= 1024
    return f"{number:.2f}PB"
