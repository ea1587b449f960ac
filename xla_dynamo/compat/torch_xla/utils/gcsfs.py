"""Local files by path; for `gs://` paths the error says which package to use.

torch_xla 1.x read Google Cloud Storage through TensorFlow's file system, which is not here.
"""

from __future__ import annotations

import builtins
import os
import shutil
from collections.abc import Iterable
from typing import Any, NamedTuple

from xla_dynamo.errors import XlaDynamoError

_PREFIX = "gs://"


class FileStat(NamedTuple):
    """path, length in bytes, time of the last change in nanoseconds, whether it is a folder."""

    path: str
    length: int
    mtime_nsec: int
    is_dir: bool


def is_gcs_path(path: str) -> bool:
    """Whether a path is one of Google Cloud Storage."""
    return path.startswith(_PREFIX)


def _local(path: str) -> str:
    if is_gcs_path(path):
        raise XlaDynamoError(
            f"{path}: Google Cloud Storage is not served by torch_xla.utils.gcsfs here; "
            "use the package google-cloud-storage or gcsfs, or mount the bucket (gcsfuse)."
        )
    return path


def open(path: str, mode: str = "r", encoding: str | None = None) -> Any:
    """A file object.

    Raises:
        XlaDynamoError: a gs:// path.
    """
    return builtins.open(_local(path), mode, encoding=encoding)


def list(path: str) -> builtins.list[FileStat]:
    """What is in a folder, by name; one entry for a file."""
    path = _local(path)
    if not os.path.isdir(path):
        return [stat(path)]
    return [stat(os.path.join(path, name)) for name in sorted(os.listdir(path))]


def stat(path: str) -> FileStat:
    """Length, time and kind of a file."""
    found = os.stat(_local(path))
    return FileStat(path, found.st_size, found.st_mtime_ns, os.path.isdir(path))


def remove(path: str) -> None:
    """Delete a file."""
    os.remove(_local(path))


def rmtree(path: str) -> None:
    """Delete a folder and what is in it."""
    shutil.rmtree(_local(path))


def read(path: str) -> bytes:
    """The bytes of a file."""
    with open(path, "rb") as file:
        return file.read()


def write(path: str, content: str | bytes) -> None:
    """Replace a file by `content`."""
    data = content.encode() if isinstance(content, str) else content
    with open(path, "wb") as file:
        file.write(data)


generic_open, generic_read = open, read


def generic_write(
    output_string: str | bytes | Iterable[Any], path: str, makedirs: bool = False
) -> None:
    """`write`, making the folder first if `makedirs`."""
    if makedirs:
        os.makedirs(os.path.dirname(_local(path)) or ".", exist_ok=True)
    content = output_string if isinstance(output_string, (str, bytes)) else bytes(output_string)
    write(path, content)
