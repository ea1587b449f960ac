"""XLA's FFI for custom calls (xla/ffi/api/c_api.h of jaxlib), spoken with ctypes.

`handler` makes a C function of a Python one, for `jax.ffi.register_ffi_target`. Version 0 of the
interface, whose structures have only grown at their ends; seen with jaxlib 0.7.2 to 0.12.0.
"""

from __future__ import annotations

import ctypes
import functools
import re
from collections.abc import Callable
from ctypes import POINTER, c_char_p, c_int, c_int64, c_size_t, c_uint32, c_void_p
from pathlib import Path
from typing import Any

import jax
import torch

_METADATA = 1  # a type of extension
_INTERNAL = 13  # an error code

DTYPES = {
    1: torch.bool,
    2: torch.int8,
    3: torch.int16,
    4: torch.int32,
    5: torch.int64,
    6: torch.uint8,
    10: torch.float16,
    11: torch.float32,
    12: torch.float64,
    15: torch.complex64,
    16: torch.bfloat16,
    18: torch.complex128,
}


class _Extension(ctypes.Structure):
    pass


_Extension._fields_ = [("size", c_size_t), ("type", c_int), ("next", POINTER(_Extension))]


class _Version(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("extension", c_void_p), ("major", c_int), ("minor", c_int)]


class _Metadata(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("version", _Version), ("traits", c_uint32)]


class _MetadataExtension(ctypes.Structure):
    _fields_ = [("base", _Extension), ("metadata", POINTER(_Metadata))]


class _ErrorArguments(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t),
        ("extension", c_void_p),
        ("message", c_char_p),
        ("code", c_int),
    ]


class _Api(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t),
        ("extension", c_void_p),
        ("version", _Version),
        ("internal", c_void_p),
        ("create_error", ctypes.CFUNCTYPE(c_void_p, POINTER(_ErrorArguments))),
    ]


class _Buffer(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t),
        ("extension", c_void_p),
        ("dtype", c_int),
        ("data", c_void_p),
        ("rank", c_int64),
        ("dims", POINTER(c_int64)),
    ]


class _Buffers(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t),
        ("extension", c_void_p),
        ("count", c_int64),
        ("types", c_void_p),
        ("items", POINTER(POINTER(_Buffer))),
    ]


class _Text(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("length", c_size_t)]


class _Attributes(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t),
        ("extension", c_void_p),
        ("count", c_int64),
        ("types", c_void_p),
        ("names", c_void_p),
        ("values", POINTER(POINTER(_Text))),
    ]


class _Frame(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t),
        ("extension", POINTER(_Extension)),
        ("api", POINTER(_Api)),
        ("context", c_void_p),
        ("stage", c_int),
        ("arguments", _Buffers),
        ("results", _Buffers),
        ("attributes", _Attributes),
    ]


_Handler = ctypes.CFUNCTYPE(c_void_p, POINTER(_Frame))
Work = Callable[[bytes, list[torch.Tensor], list[torch.Tensor]], None]


def handler(work: Work) -> Any:
    """A C function for custom calls with one attribute, a string, on a CPU.

    `work` is called with the string, the arguments and the results: tensors over XLA's own memory,
    only valid until it returns. What it raises becomes the error of XLA's execution. Keep the
    function alive for as long as the process may call it.
    """

    @_Handler
    def call(pointer: Any) -> int | None:
        frame = pointer.contents
        extension = frame.extension
        if extension and extension.contents.type == _METADATA:
            _tell_version(frame)
            return None
        try:
            text = frame.attributes.values[0].contents
            data = ctypes.string_at(text.data, text.length)
            work(data, _tensors(frame.arguments), _tensors(frame.results))
        except BaseException as error:  # nothing may pass into C
            return _error(frame, str(error) or type(error).__name__)
        return None

    return call


def _tell_version(frame: Any) -> None:
    ours = ctypes.cast(frame.extension, POINTER(_MetadataExtension)).contents.metadata.contents
    ours.version.major, ours.version.minor = 0, _minor_version()


@functools.cache
def _minor_version() -> int:
    """The interface's minor version, of jaxlib's own header: older ones do not tell it here."""
    header = Path(jax.ffi.include_dir(), "xla", "ffi", "api", "c_api.h").read_text()
    found = re.search(r"#define XLA_FFI_API_MINOR (\d+)", header)
    assert found is not None
    return int(found[1])


def _error(frame: Any, message: str) -> int | None:
    arguments = _ErrorArguments(
        ctypes.sizeof(_ErrorArguments), None, message.encode(errors="replace"), _INTERNAL
    )
    return frame.api.contents.create_error(ctypes.byref(arguments))


def _tensors(buffers: Any) -> list[torch.Tensor]:
    return [_tensor(buffers.items[i].contents) for i in range(buffers.count)]


def _tensor(buffer: Any) -> torch.Tensor:
    dtype, shape = DTYPES[buffer.dtype], buffer.dims[: buffer.rank]
    size = dtype.itemsize
    for length in shape:
        size *= length
    if not size:
        return torch.empty(shape, dtype=dtype, device="cpu")
    memory = (ctypes.c_char * size).from_address(buffer.data)
    return torch.frombuffer(memory, dtype=dtype).view(shape)
