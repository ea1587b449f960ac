"""A bounded cache of compiled executables on disk, safe against crashes, races and other users.

An entry is one file, written under another name and then renamed, with a digest of its key and its
bytes, which is checked before XLA gets them. The key must cover everything that the executable
depends on. Nothing is unpickled, but an executable is machine code: who can write an entry could
run what they like. So entries that belong to another user, or that others may write to, are not
read: they are compiled anew. `trust="folder"` reads what is there, for a folder that users share.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import re
import stat
import tempfile
import time
from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from pathlib import Path
from typing import Literal, cast

import filelock

from xla_dynamo.config import config

_DIGEST_BYTES = 32
_KEY = re.compile("[0-9a-f]{64}")
_UNFINISHED = "unfinished-"  # what a process that was killed has left begins so
_OLD = 3600  # seconds after which nobody still writes one, or waits for it
_ROOT = 0

Trust = Literal["own", "folder"]
Fault = Literal["damaged", "another user's"]


class DiskCache:
    """A folder of executables, at most `limit` bytes; the least recently used go first.

    Other processes write to it too: the folder is looked through again when this one has written
    an eighth of the room that was left.
    """

    def __init__(self, folder: Path, limit: int, trust: Trust = "own") -> None:
        self._folder = folder
        self._limit = limit
        self._trust: Trust = trust
        self._unseen = 0  # bytes that this process may write before it looks again

    def get(self, key: str) -> bytes | None:
        """The bytes under `key`, or None: missing, unreadable, damaged, or not to be trusted."""
        path = self._folder / key
        try:
            content = _read(path, self._trust)
            if content is None:
                return None
            os.utime(path)
        except OSError:
            return None
        return _data(key, content)

    def put(self, key: str, data: bytes) -> None:
        """Store `data`; a full or read-only disk is no error, only no cache."""
        unfinished = None
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(
                dir=self._folder, prefix=_UNFINISHED, delete=False
            ) as file:
                unfinished = file.name
                file.write(_digest(key, data) + data)
            if self._trust == "folder":
                os.chmod(unfinished, 0o644)
            os.replace(unfinished, self._folder / key)
        except OSError:
            with contextlib.suppress(OSError):
                if unfinished is not None:
                    os.unlink(unfinished)
            return
        self._unseen -= _DIGEST_BYTES + len(data)
        if self._unseen < 0:
            self._evict()

    @contextlib.contextmanager
    def turn(self, key: str, patience: float) -> Iterator[bool]:
        """Hold the right to make `key`'s entry; whether another process held it before.

        It is waited for, `patience` seconds at most: a process that dies gives the right back.
        Where files cannot be locked, all have it at once.
        """
        path = self._folder / f"{key}.lock"
        lock = filelock.FileLock(path, thread_local=False)
        waited = held = False
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            try:
                lock.acquire(timeout=0)
            except filelock.Timeout:
                waited = True
                lock.acquire(timeout=patience)
            held = True
        except (OSError, NotImplementedError):  # a Timeout is an OSError
            pass
        try:
            yield waited
        finally:
            if held:
                # One who opened it before waits for a file without a name: both may compile then.
                with contextlib.suppress(OSError):
                    path.unlink()
                lock.release()

    def faults(self) -> Iterator[tuple[Path, Fault]]:
        """The entries that are not read, and why."""
        for entry in entries(self._folder):
            try:
                content = _read(entry, self._trust)
            except OSError:
                content = b""
            if content is None:
                yield entry, "another user's"
            elif _data(entry.name, content) is None:
                yield entry, "damaged"

    def _evict(self) -> None:
        """Bring a folder that is too large down to 15/16 of the limit."""
        with contextlib.suppress(FileNotFoundError):  # another process evicts as well
            sweep(self._folder)
            stats = [(entry.stat(), entry) for entry in entries(self._folder)]
            own = sorted((stat.st_mtime, stat.st_size, entry) for stat, entry in stats)
            total = sum(size for _, size, _ in own)
            goal = self._limit if total <= self._limit else self._limit - self._limit // 16
            for _, size, entry in own:
                if total <= goal:
                    break
                with contextlib.suppress(PermissionError):
                    entry.unlink(missing_ok=True)
                    total -= size
            self._unseen = (self._limit - total) // 8


def configured() -> DiskCache | None:
    """The cache that the environment asks for, if any."""
    folder, settings = config().cache_dir, config()
    if folder is None:
        return None
    return opened(folder, settings.cache_bytes, cast(Trust, settings.cache_trust))


@lru_cache(maxsize=16)
def opened(folder: Path, limit: int, trust: Trust = "own") -> DiskCache:
    """The cache in `folder`, one for all who ask."""
    return DiskCache(folder, limit, trust)


def entries(folder: Path) -> list[Path]:
    """The executables in `folder`, by their names: it may hold files that are not ours."""
    return [e for e in folder.iterdir() if _KEY.fullmatch(e.name)] if folder.is_dir() else []


def sweep(folder: Path) -> None:
    """Delete what processes that were killed have left: nobody writes it any more."""
    for path in folder.iterdir() if folder.is_dir() else ():
        if path.name.startswith(_UNFINISHED) or path.suffix == ".lock":
            with contextlib.suppress(OSError):
                if time.time() - path.stat().st_mtime > _OLD:
                    path.unlink()


def _read(path: Path, trust: Trust) -> bytes | None:
    """What a file holds; None if it is not to be trusted."""
    with open(path, "rb") as file:
        own = is_own(os.fstat(file.fileno()))
        return file.read() if own or trust == "folder" else None


def is_own(of: os.stat_result) -> bool:
    """Whether nobody but this user and root may have written to a file or folder."""
    written_by_others = of.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return of.st_uid in (os.geteuid(), _ROOT) and not written_by_others


def _data(key: str, content: bytes) -> bytes | None:
    """The data of an entry, if they are those that were written under this key."""
    digest, data = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
    return data if _digest(key, data) == digest else None


def _digest(key: str, data: bytes) -> bytes:
    return hashlib.sha256(key.encode() + data).digest()


def key_of(parts: Iterable[str]) -> str:
    """A file name for the given parts, this CPU's features and XLA's own environment."""
    digest = hashlib.sha256()
    for part in (
        *parts,
        _machine(),
        os.environ.get("XLA_FLAGS", ""),
        os.environ.get("LIBTPU_INIT_ARGS", ""),
    ):
        digest.update(part.encode())
        digest.update(b"\0")
    return digest.hexdigest()


@cache
def _machine() -> str:
    """CPU executables hold machine code, which must not run on a CPU with fewer features."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith(("flags", "Features")):
                return platform.machine() + line
    return platform.machine() + platform.processor()
