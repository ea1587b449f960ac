"""The folder of executables: whole entries or none, the least recently used go first."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from xla_dynamo.backend.runtime import cache
from xla_dynamo.backend.runtime.cache import DiskCache, key_of

pytestmark = pytest.mark.spine
KEYS = [digit * 64 for digit in "abcdef"]
ENTRY = 32 + 100  # the digest and the data


@pytest.fixture
def disk(tmp_path: Path) -> DiskCache:
    return DiskCache(tmp_path / "cache", 3 * ENTRY + ENTRY // 2)


def test_what_is_put_is_got(disk: DiskCache) -> None:
    assert disk.get(KEYS[0]) is None
    disk.put(KEYS[0], b"first")
    disk.put(KEYS[1], b"")
    assert disk.get(KEYS[0]) == b"first"
    assert disk.get(KEYS[1]) == b""
    disk.put(KEYS[0], b"second")
    assert disk.get(KEYS[0]) == b"second"


@pytest.mark.parametrize(
    "damage",
    [lambda c: c[:-1], lambda c: c[:10], lambda c: b"", lambda c: c[:40] + b"?" + c[41:]],
    ids=["cut", "cut in the digest", "empty", "changed"],
)
def test_damaged_entries_are_none(disk: DiskCache, tmp_path: Path, damage) -> None:
    disk.put(KEYS[0], b"x" * 100)
    path = tmp_path / "cache" / KEYS[0]
    path.write_bytes(damage(path.read_bytes()))
    assert disk.get(KEYS[0]) is None


def test_the_least_recently_used_go_and_foreign_files_stay(disk: DiskCache, tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    folder.mkdir()
    (folder / "notes.txt").write_bytes(b"x" * 1000)
    for age, key in enumerate(KEYS[:3]):
        disk.put(key, b"x" * 100)
        os.utime(folder / key, (age, age))
    assert disk.get(KEYS[0])  # used now
    disk.put(KEYS[3], b"x" * 100)
    assert [key for key in KEYS if disk.get(key)] == [KEYS[0], KEYS[2], KEYS[3]]
    assert (folder / "notes.txt").exists()


def test_other_processes_write_too(tmp_path: Path) -> None:
    caches = [DiskCache(tmp_path, 100 * ENTRY) for _ in range(4)]
    for i in range(400):
        caches[i % 4].put(f"{i:064x}", b"x" * 100)
        assert len(os.listdir(tmp_path)) <= 100
    assert all(caches[0].get(f"{i:064x}") for i in range(360, 400))


def test_a_folder_with_room_is_not_looked_through(tmp_path: Path, monkeypatch) -> None:
    disk = DiskCache(tmp_path, 10_000 * ENTRY)
    disk.put(KEYS[0], b"x")
    monkeypatch.setattr(cache, "entries", None)
    for i in range(1000):
        disk.put(f"{i:064x}", b"x" * 100)


def test_no_half_written_entry_stays(disk: DiskCache, tmp_path: Path) -> None:
    disk.put(KEYS[0], b"x")
    assert os.listdir(tmp_path / "cache") == [KEYS[0]]


def test_a_folder_that_cannot_be_made_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    disk = DiskCache(tmp_path / "file" / "cache", 1000)
    disk.put(KEYS[0], b"x")
    assert disk.get(KEYS[0]) is None


def test_keys_tell_parts_flags_and_machines_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = [key_of(["ab", "c"]), key_of(["a", "bc"]), key_of(["abc"])]
    for name in ("XLA_FLAGS", "LIBTPU_INIT_ARGS"):
        with monkeypatch.context() as patch:
            patch.setenv(name, "--xla_other")
            keys.append(key_of(["abc"]))
    with monkeypatch.context() as patch:
        patch.setattr(cache, "_machine", lambda: "another")
        keys.append(key_of(["abc"]))
    assert len(set(keys)) == len(keys)
    assert key_of(["abc"]) == key_of(["abc"])
    assert all(cache._KEY.fullmatch(key) for key in keys)
