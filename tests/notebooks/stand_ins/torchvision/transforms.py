"""Transforms that change nothing: the stand-in data sets give what they would make."""

from __future__ import annotations

from typing import Any


class _Transform:
    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

    def __call__(self, image: Any) -> Any:
        return image


Compose = ToTensor = Normalize = Resize = Lambda = RandomCrop = RandomHorizontalFlip = _Transform
