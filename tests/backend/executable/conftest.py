"""What is launched by what was compiled."""

from __future__ import annotations

from typing import Any

import pytest

from xla_dynamo.backend.runtime import pjrt


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The programs that were launched."""
    found: list[str] = []
    launch = pjrt.Executable.__call__

    def noted(self: pjrt.Executable, *arrays: Any) -> Any:
        found.append("program")
        return launch(self, *arrays)

    monkeypatch.setattr(pjrt.Executable, "__call__", noted)
    return found
