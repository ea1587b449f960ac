"""A dataset that stores the samples of a slow one in files, and loads them from there."""

from __future__ import annotations

import gzip
import io
import os
from typing import Any

import torch
from torch.utils.data import Dataset

from . import gcsfs


class CachedDataset(Dataset[Any]):
    """Samples of `data_set`, each stored in a file under `path` when it is first asked for.

    Args:
        data_set: the dataset; None once the cache is complete.
        path: a folder.
        max_files_per_folder: samples in each of its sub-folders.
        compress: whether files are gzipped.
    """

    _META = "META"

    def __init__(
        self,
        data_set: Any,
        path: str,
        max_files_per_folder: int = 1000,
        compress: bool = True,
    ) -> None:
        self._data_set = data_set
        self._path = path
        self._max_files_per_folder = max_files_per_folder
        self._compress = compress
        meta = os.path.join(path, self._META)
        if data_set is None:
            stored = torch.load(io.BytesIO(gcsfs.generic_read(meta)))
            self._count = stored["count"]
            self._compress = stored["compress"]
            self._max_files_per_folder = stored["max_files_per_folder"]
            return
        self._count = len(data_set)
        stored = {"count": self._count, "compress": compress}
        stored["max_files_per_folder"] = max_files_per_folder
        gcsfs.generic_write(_bytes(stored), meta, makedirs=True)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> Any:
        if not 0 <= index < self._count:
            raise IndexError(index)
        path = self._file(index)
        if self._data_set is None or os.path.exists(path):
            return self._load(path)
        sample = self._data_set[index]
        data = _bytes(sample)
        gcsfs.generic_write(gzip.compress(data) if self._compress else data, path, makedirs=True)
        return sample

    def _load(self, path: str) -> Any:
        data = gcsfs.generic_read(path)
        data = gzip.decompress(data) if self._compress else data
        return torch.load(io.BytesIO(data), weights_only=False)

    def _file(self, index: int) -> str:
        return os.path.join(self._path, str(index // self._max_files_per_folder), str(index))

    def warmup(self) -> None:
        """Store every sample."""
        for index in range(self._count):
            self[index]


def _bytes(value: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()
