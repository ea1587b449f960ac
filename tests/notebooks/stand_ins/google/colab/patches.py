"""Stands for Colab's own module."""

from __future__ import annotations

from typing import Any


def cv2_imshow(image: Any) -> None: ...
