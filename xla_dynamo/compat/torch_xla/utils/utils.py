"""Small helpers of torch_xla's own scripts: synthetic data, nested data, timing, environment."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from .nested import DataWrapper as DataWrapper
from .nested import for_each_instance as for_each_instance
from .nested import for_each_instance_rewrite as for_each_instance_rewrite

T = TypeVar("T")
Print = Callable[..., Any]


class _Repeated:
    """An iterator over `count` items; iter() starts a new one."""

    def __init__(self, make: Callable[[], Any], count: int) -> None:
        self._make = make
        self._count = count
        self._left = count

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> _Repeated:
        return _Repeated(self._make, self._count)

    def __next__(self) -> Any:
        if self._left <= 0:
            raise StopIteration
        self._left -= 1
        return self._make()

    next = __next__


class SampleGenerator(_Repeated):
    """A loader of fake data: `data`, `sample_count` times."""

    def __init__(self, data: Any, sample_count: int) -> None:
        super().__init__(lambda: data, sample_count)


class FnDataGenerator(_Repeated):
    """`count` pairs (x, func(x)), with x = gen_tensor(batch_size, *dims)."""

    def __init__(
        self,
        func: Callable[[Any], Any],
        batch_size: int,
        gen_tensor: Callable[..., Any],
        dims: Any = None,
        count: int = 1,
    ) -> None:
        def pair() -> tuple[Any, Any]:
            data = gen_tensor(batch_size, *(dims or [1]))
            return data, func(data)

        super().__init__(pair, count)


class Cleaner:
    """Calls `func` when it is collected."""

    def __init__(self, func: Callable[[], Any]) -> None:
        self.func = func

    def __del__(self) -> None:
        self.func()


class LazyProperty:
    """`.value` is what `gen_fn` returns; it is called at the first use."""

    def __init__(self, gen_fn: Callable[[], Any]) -> None:
        self._gen_fn = gen_fn

    @functools.cached_property
    def value(self) -> Any:
        """The value, computed once."""
        return self._gen_fn()


class TmpFolder:
    """A temporary folder `.name`, removed with the object."""

    def __init__(self) -> None:
        self.name = tempfile.mkdtemp()
        self.cleaner = Cleaner(lambda name=self.name: shutil.rmtree(name))


class TimedScope:
    """`with TimedScope("load: "):` prints "load: 12.345ms" unless `set_error` was called."""

    def __init__(self, msg: str = "", printfn: Print | None = None) -> None:
        self._msg = msg
        self._print = printfn or eprint
        self._error: Any = None

    def __enter__(self) -> TimedScope:
        self._start = time.time()
        return self

    def __exit__(self, *exception: object) -> None:
        if self._error is None:
            self._print(f"{self._msg}{1e3 * (time.time() - self._start):.3f}ms")

    def set_error(self, error: Any) -> None:
        """Do not print."""
        self._error = error


def timed(fn: Callable[[], T], msg: str = "", printfn: Print | None = None) -> T:
    """What `fn` returns; prints `msg` and its milliseconds."""
    with TimedScope(msg, printfn):
        return fn()


def getenv_as(name: str, type: Callable[[Any], Any], defval: Any = None) -> Any:
    """Environment variable `name` as `type` (bool: a number), or `defval` if unset."""
    text = os.environ.get(name)
    if text is None:
        return defval
    return bool(int(text)) if type is bool else type(text)


def check_env_flag(name: str, default: str = "") -> bool:
    """Whether a variable is "true" or a positive number."""
    flag = os.environ.get(name, default)
    return flag == "true" or (flag.isdigit() and int(flag) > 0)


def as_list(t: Any) -> Any:
    """`t`, in a list if it is neither a list nor a tuple."""
    return t if isinstance(t, (list, tuple)) else [t]


def shape(inputs: Any) -> list[int]:
    """The sizes of a nested list.

    Raises:
        AssertionError: it is ragged.
    """
    if not isinstance(inputs, (list, tuple)):
        return []
    parts = [shape(part) for part in inputs]
    assert all(part == parts[0] for part in parts), f"ragged: {parts}"
    return [len(inputs), *(parts[0] if parts else [])]


def flatten_nested_tuple(inputs: Any) -> tuple[Any, ...]:
    """The leaves of nested lists and tuples, in order."""

    def leaves(item: Any) -> Iterator[Any]:
        if isinstance(item, (list, tuple)):
            for part in item:
                yield from leaves(part)
        else:
            yield item

    return tuple(leaves(inputs))


def list_copy_append(ilist: Any, item: Any) -> list[Any]:
    """A new list with `item` at its end."""
    return [*ilist, item]


def null_print(*args: Any, **kwargs: Any) -> None:
    """Print nothing."""


def eprint(*args: Any, **kwargs: Any) -> None:
    """Print to stderr."""
    print(*args, file=sys.stderr, **kwargs)


def get_print_fn(debug: bool | None = None) -> Print:
    """`eprint` if `debug` (default: the variable DEBUG) is set, else `null_print`."""
    chosen = int(os.environ.get("DEBUG", "0")) if debug is None else debug
    return eprint if chosen else null_print


def get_free_tcp_ports(n: int = 1) -> list[int]:
    """`n` different ports that nobody uses now."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(n)]
        for each in sockets:
            each.bind(("", 0))
        return [each.getsockname()[1] for each in sockets]


def parallel_work(num_workers: int, fn: Callable[..., T], *args: Any) -> list[T]:
    """`[fn(*row) for row in zip(*args)]`, in `num_workers` threads; raises what `fn` raises."""
    with ThreadPoolExecutor(num_workers) as executor:
        return list(executor.map(fn, *args))
