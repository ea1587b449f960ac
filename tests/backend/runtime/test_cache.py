"""The folder of executables: whole entries or none, the least recently used go first."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import threading
import time
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
    assert [fault for _, fault in disk.faults()] == ["damaged"]


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


def test_an_entry_is_bound_to_its_key(disk: DiskCache, tmp_path: Path) -> None:
    disk.put(KEYS[0], b"x")
    os.rename(tmp_path / "cache" / KEYS[0], tmp_path / "cache" / KEYS[1])
    assert disk.get(KEYS[1]) is None


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o620, 0o602])
def test_what_others_may_write_to_is_not_read(tmp_path: Path, mode: int) -> None:
    own, shared = DiskCache(tmp_path, 1000), DiskCache(tmp_path, 1000, trust="folder")
    own.put(KEYS[0], b"x")
    os.chmod(tmp_path / KEYS[0], mode)
    is_own = mode in (0o600, 0o644)
    assert own.get(KEYS[0]) == (b"x" if is_own else None)
    assert shared.get(KEYS[0]) == b"x"
    assert [fault for _, fault in own.faults()] == ([] if is_own else ["another user's"])


def test_what_belongs_to_another_user_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, shared = DiskCache(tmp_path, 1000), DiskCache(tmp_path, 1000, trust="folder")
    own.put(KEYS[0], b"x")
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    monkeypatch.setattr(cache, "_ROOT", 12346)
    assert own.get(KEYS[0]) is None
    assert shared.get(KEYS[0]) == b"x"


def test_a_shared_folder_has_entries_that_others_can_read(tmp_path: Path) -> None:
    for trust, mode in (("own", 0o600), ("folder", 0o644)):
        DiskCache(tmp_path, 1000, trust).put(KEYS[0], b"x")  # type: ignore[arg-type]
        assert (tmp_path / KEYS[0]).stat().st_mode & 0o777 == mode


def test_a_full_disk_is_no_error_and_leaves_nothing(tmp_path: Path) -> None:
    """A limit on the size of files stands for it: the write fails in the middle."""
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    disk = DiskCache(tmp_path, 10**9)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limit[1]))
        disk.put(KEYS[0], b"x" * 100_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, before)
    assert os.listdir(tmp_path) == []
    disk.put(KEYS[0], b"x" * 100_000)
    assert disk.get(KEYS[0]) == b"x" * 100_000


def test_what_a_killed_process_leaves_is_swept(tmp_path: Path) -> None:
    """It is no entry meanwhile; what is an hour old nobody writes any more."""
    program = (
        "import os, signal; from pathlib import Path\n"
        "from xla_dynamo.backend.runtime import cache\n"
        "os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        f"cache.DiskCache(Path({str(tmp_path)!r}), 1000).put({KEYS[0]!r}, b'x')"
    )
    assert subprocess.run([sys.executable, "-c", program]).returncode == -signal.SIGKILL
    [left] = tmp_path.iterdir()
    assert cache.entries(tmp_path) == []
    cache.sweep(tmp_path)
    assert left.exists()
    os.utime(left, (0, 0))
    cache.sweep(tmp_path)
    assert not left.exists()


def test_one_makes_an_entry_and_others_wait(tmp_path: Path) -> None:
    first, second = DiskCache(tmp_path, 1000), DiskCache(tmp_path, 1000)
    begun, found = threading.Event(), []

    def make() -> None:
        with first.turn(KEYS[0], patience=60) as waited:
            begun.set()
            time.sleep(0.2)
            assert not waited
            first.put(KEYS[0], b"x")

    thread = threading.Thread(target=make)
    thread.start()
    assert begun.wait(60)
    with second.turn(KEYS[0], patience=60) as waited:
        found.append((waited, second.get(KEYS[0])))
    thread.join()
    assert found == [(True, b"x")]
    assert os.listdir(tmp_path) == [KEYS[0]]


def test_patience_with_one_that_never_ends_is_limited(tmp_path: Path) -> None:
    disk = DiskCache(tmp_path, 1000)
    with disk.turn(KEYS[0], 60), disk.turn(KEYS[0], patience=0.1) as waited:
        assert waited
    with disk.turn(KEYS[1], 60) as waited:  # others are not concerned
        assert not waited


def test_a_process_that_dies_gives_its_turn_back(tmp_path: Path) -> None:
    program = (
        "import os, signal; from pathlib import Path\n"
        "from xla_dynamo.backend.runtime import cache\n"
        f"with cache.DiskCache(Path({str(tmp_path)!r}), 1000).turn({KEYS[0]!r}, 1):\n"
        "    os.kill(os.getpid(), signal.SIGKILL)"
    )
    assert subprocess.run([sys.executable, "-c", program]).returncode == -signal.SIGKILL
    assert (tmp_path / f"{KEYS[0]}.lock").exists()
    with DiskCache(tmp_path, 1000).turn(KEYS[0], patience=60) as waited:
        assert not waited


def test_where_files_cannot_be_made_all_compile() -> None:
    disk = DiskCache(Path("/proc/nowhere"), 1000)
    with disk.turn(KEYS[0], 60) as waited:
        assert not waited
        disk.put(KEYS[0], b"x")
    assert disk.get(KEYS[0]) is None


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
