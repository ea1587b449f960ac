"""What tests of the backend share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .capture.aot_programs import switched


@pytest.fixture
def aot_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of AOTAutograd's cache, which is on: the suite's environment turns it off."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "torch"))
    monkeypatch.setenv("TORCHINDUCTOR_AUTOGRAD_CACHE", "1")  # of child processes
    with switched(True):
        yield tmp_path / "torch" / "aotautograd"
