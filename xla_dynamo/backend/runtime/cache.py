"""A bounded cache of compiled executables on disk, safe against crashes and races.

An entry is one file, written under another name and then renamed, with a digest that is checked
before XLA gets the bytes. The key must cover everything that the executable depends on.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import re
import tempfile
from collections.abc import Iterable
from functools import cache, lru_cache
from pathlib import Path

_DIGEST_BYTES = 32
_KEY = re.compile("[0-9a-f]{64}")


class DiskCache:
    """A folder of executables, at most `limit` bytes; the least recently used go first.

    Other processes write to it too: the folder is looked through again when this one has written
    an eighth of the room that was left.
    """

    def __init__(self, folder: Path, limit: int) -> None:
        self._folder = folder
        self._limit = limit
        self._unseen = 0  # bytes that this process may write before it looks again

    def get(self, key: str) -> bytes | None:
        """The bytes stored under `key`, or None (missing, unreadable or damaged)."""
        path = self._folder / key
        try:
            content = path.read_bytes()
            os.utime(path)
        except OSError:
            return None
        digest, data = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
        return data if hashlib.sha256(data).digest() == digest else None

    def put(self, key: str, data: bytes) -> None:
        """Store `data`; a full or read-only disk is no error, only no cache."""
        with contextlib.suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=self._folder, delete=False) as file:
                file.write(hashlib.sha256(data).digest() + data)
            os.replace(file.name, self._folder / key)
            self._unseen -= _DIGEST_BYTES + len(data)
            if self._unseen < 0:
                self._evict()

    def _evict(self) -> None:
        """Bring a folder that is too large down to 15/16 of the limit."""
        with contextlib.suppress(FileNotFoundError):  # another process evicts as well
            stats = [(entry.stat(), entry) for entry in entries(self._folder)]
            own = sorted((stat.st_mtime, stat.st_size, entry) for stat, entry in stats)
            total = sum(size for _, size, _ in own)
            goal = self._limit if total <= self._limit else self._limit - self._limit // 16
            for _, size, entry in own:
                if total <= goal:
                    break
                entry.unlink(missing_ok=True)
                total -= size
            self._unseen = (self._limit - total) // 8


@lru_cache(maxsize=16)
def opened(folder: Path, limit: int) -> DiskCache:
    """The cache in `folder`, one for all who ask."""
    return DiskCache(folder, limit)


def entries(folder: Path) -> list[Path]:
    """The executables in `folder`, by their names: it may hold files that are not ours."""
    return [e for e in folder.iterdir() if _KEY.fullmatch(e.name)] if folder.is_dir() else []


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
