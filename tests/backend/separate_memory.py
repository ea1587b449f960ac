"""The CPU's client as a device with memory of its own: what is there is copied, and counted.

No accelerator is at hand where the tests run; its side of transfers is the same.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from xla_dynamo.backend.runtime import transfers


@pytest.fixture
def separate_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs take copies of CPU tensors, and give copies."""
    put = transfers.put

    def put_copy(host: np.ndarray, on: Any, **semantics: Any) -> Any:
        return put(host.copy(), on, **semantics)

    monkeypatch.setattr(transfers, "is_apart", lambda device: True)
    monkeypatch.setattr(transfers, "put", put_copy)
