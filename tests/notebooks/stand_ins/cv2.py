"""Stands for OpenCV, which notebooks read a figure by."""

IMREAD_UNCHANGED = -1


def imread(path: str, flags: int) -> None: ...
