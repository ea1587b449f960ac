"""Tags of checkpoint files: a file that loses its last tag is removed."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any


class CheckpointTagger:
    """Names -> paths.

    Args:
        remover: called with a path that lost its last name.
    """

    def __init__(self, remover: Callable[[str], Any] | None = None) -> None:
        self._tags: dict[str, str] = {}
        self._remover = remover or (lambda path: None)

    def tag(self, name: str, path: str) -> None:
        """Give `path` a name, taking it from the path that had it."""
        old = self._tags.get(name)
        self._tags[name] = path
        if old is not None and old not in self._tags.values():
            self._remover(old)

    @property
    def tags(self) -> dict[str, str]:
        """Names and their paths."""
        return self._tags

    def save_to_json(self) -> str:
        """The names, as text."""
        return json.dumps(self._tags)

    @classmethod
    def load_from_json(
        cls, str_json: str, remover: Callable[[str], Any] | None = None
    ) -> CheckpointTagger:
        """A tagger with the names of `save_to_json`."""
        made = cls(remover)
        made._tags.update(json.loads(str_json))
        return made
