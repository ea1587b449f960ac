"""Read TFRecord files of tf.train.Example into dicts of tensors, without TensorFlow.

A record is its length (uint64), the CRC of the length (uint32), the bytes, and their CRC (uint32),
all little endian. An Example is a protocol buffer; the field numbers are given below.
"""

from __future__ import annotations

import builtins
import gzip
import io
import re
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

Transform = Callable[[Any], Any] | str


class TfRecordReader:
    """Reads the records of one file in turn.

    Args:
        path: the file.
        compression: "", "GZIP" or "ZLIB".
        buffer_size: bytes read ahead.
        transforms: feature name (or regular expression) -> function of the tensor, or "STR" for
            text. A dict, or pairs of which the first match counts.
    """

    def __init__(
        self,
        path: str,
        compression: str | None = "",
        buffer_size: int = 16 * 1024 * 1024,
        transforms: dict[str, Transform] | Iterable[tuple[str, Transform]] | None = None,
    ) -> None:
        self._file = _open(path, (compression or "").upper(), buffer_size)
        pairs: Any = transforms.items() if isinstance(transforms, dict) else transforms or ()
        self._transforms = [(re.compile(name), function) for name, function in pairs]

    def read_record(self) -> bytes | None:
        """The bytes of the next record, or None at the end.

        Raises:
            ValueError: the file ends inside a record.
        """
        header = self._file.read(12)
        if not header:
            return None
        length = struct.unpack("<Q", header[:8])[0] if len(header) == 12 else -1
        body = self._file.read(length + 4) if length >= 0 else b""
        if len(body) != length + 4:
            raise ValueError("truncated TFRecord file")
        return body[:length]

    def read_example(self) -> dict[str, Any] | None:
        """The features of the next record by name, or None at the end.

        float_list is float32[n], int64_list int64[n], bytes_list a list of uint8[length] (the
        tensor itself if there is one).
        """
        record = self.read_record()
        if record is None:
            return None
        return {name: self._transform(name, value) for name, value in _features(record)}

    def _transform(self, name: str, value: Any) -> Any:
        for pattern, function in self._transforms:
            if pattern.fullmatch(name):
                if function == "STR":
                    return bytes(value.tolist()).decode()
                assert callable(function)
                return function(value)
        return value


def _open(path: str, compression: str, buffer_size: int) -> Any:
    if compression == "GZIP":
        return gzip.open(path, "rb")
    if compression == "ZLIB":
        with builtins.open(path, "rb") as file:
            return io.BytesIO(zlib.decompress(file.read()))
    if compression:
        raise ValueError(f"compression must be '', 'GZIP' or 'ZLIB', not {compression!r}")
    return builtins.open(path, "rb", buffering=buffer_size)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """(field number, value) of a message: ints for varints, bytes for anything else."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, wire = tag >> 3, tag & 7
        if wire == 0:
            value, at = _varint(data, at)
        else:
            if wire == 2:
                size, at = _varint(data, at)
            else:
                size = {1: 8, 5: 4}[wire]
            value, at = data[at : at + size], at + size
        yield number, value


def _features(record: bytes) -> Iterator[tuple[str, Any]]:
    """Example.features (1) . feature (1, a map: key 1, value 2)."""
    for number, features in _fields(record):
        if number == 1:
            for _, entry in _fields(features):
                parts = dict(_fields(entry))
                yield parts[1].decode(), _feature(parts.get(2, b""))


def _feature(data: bytes) -> Any:
    """Feature: bytes_list (1), float_list (2) or int64_list (3), each with `value` (1)."""
    for kind, values in _fields(data):
        items = [value for _, value in _fields(values)]
        if kind == 1:
            tensors = [torch.tensor(list(item), dtype=torch.uint8) for item in items]
            return tensors[0] if len(tensors) == 1 else tensors
        if kind == 2:
            packed = b"".join(items)
            return torch.tensor(struct.unpack(f"<{len(packed) // 4}f", packed))
        return torch.tensor([_signed(number) for item in items for number in _integers(item)])
    return torch.empty(0)


def _integers(item: Any) -> Iterator[int]:
    if isinstance(item, int):
        yield item
        return
    at = 0
    while at < len(item):
        value, at = _varint(item, at)
        yield value


def _signed(value: int) -> int:
    return value - 2**64 if value >= 2**63 else value
