# pyright: reportAttributeAccessIssue=false, reportPrivateImportUsage=false
# (jaxlib ships no type information for its native module.)
"""torch tensors as arrays of PJRT devices, and back.

Private API of jaxlib met here, seen on 0.7.2 to 0.12.0: dlpack_managed_tensor_to_buffer,
buffer_to_dlpack_managed_tensor, batched_device_put, batched_block_until_ready, core.ShapedArray,
batched_copy_array_to_devices_with_sharding, ArrayCopySemantics, DeviceList.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
import torch
from jax._src import core
from jax._src.lib import _jax
from jax._src.lib import xla_client as xc

from xla_dynamo.backend import metrics
from xla_dynamo.backend.jax_adapter import dlpack_importer

from . import gpu_order, partitions
from .partitions import Partitions
from .pjrt import Array, Device
from .shardings import Sharding

_TORCH_DEVICE_TYPE = {"cpu": "cpu", "cuda": "cuda", "gpu": "cuda", "rocm": "cuda"}


def is_apart(device: Device) -> bool:
    """Whether the device has memory of its own: CPU tensors are copied there and back."""
    return device.platform != "cpu"


def shares_memory(of: Device, tensor: torch.Tensor) -> bool:
    """Whether the device can read this tensor's memory as it stands."""
    if tensor.device.type == "cpu":
        return not is_apart(of)
    return _TORCH_DEVICE_TYPE.get(of.platform) == tensor.device.type


def to_array(tensor: torch.Tensor, on: Device, *, ordered: bool = True) -> Array:
    """A dense row-major tensor as an array on the device: zero-copy where memory is shared.

    The array keeps the tensor's storage alive. XLA never writes to it. On a GPU the array is ready
    when what PyTorch has queued so far is done (see `gpu_order`), or at once: not `ordered`.
    """
    if not is_apart(on) and tensor.numel() > 0:
        try:
            # 5 us, nearly all of it in the two conversions: this line is on the path of every call.
            return _dlpack_in(_torch_dlpack_out(tensor), on, None, None, _DLPACK_CPU)
        except BufferError:  # float8 in torch 2.9
            return put(_to_numpy(tensor), on)
    if tensor.device.type == "cpu" and is_apart(on):
        metrics.count_transfer(tensor.nbytes, to_device=True)
    if gpu_order.shared_with(on) and tensor.numel() > 0:
        there = tensor.to(gpu_order.home(on))
        stream = gpu_order.after_torch(on) if ordered else None
        return _dlpack_in(_torch_dlpack_out(there), on, stream, None, _DLPACK_CUDA)
    return put(_to_numpy(tensor), on)


def put(host: np.ndarray, on: Device | Partitions, **semantics: Any) -> Array:
    """A NumPy array copied to the device, at its own width (no 64-bit truncation).

    With several devices, each gets all of it.
    """
    if isinstance(on, Partitions):
        return partitions.put(host, on.replicated(host.ndim), on.devices, **semantics)
    aval = core.ShapedArray(host.shape, host.dtype)
    sharding = jax.sharding.SingleDeviceSharding(on)
    return xc.batched_device_put(aval, sharding, [host], [on], enable_x64=True, **semantics)


def upload(
    tensor: torch.Tensor, on: Device | Partitions, sharding: Sharding | None = None
) -> Array:
    """A CPU tensor copied to the device; the tensor may change as soon as this returns.

    sharding: what each of several devices gets; default: all of it.
    """
    host = _to_numpy(tensor.resolve_conj().resolve_neg())
    during_call = xc.HostBufferSemantics.IMMUTABLE_ONLY_DURING_CALL
    if sharding is None:
        return put(host, on, host_buffer_semantics=during_call)
    return partitions.put(host, sharding, on.devices, host_buffer_semantics=during_call)


def copied(array: Array) -> Array:
    """A copy of an array, on its device, or of its parts, on theirs."""
    devices = _jax.DeviceList(partitions.devices_of(array))
    copy = xc.ArrayCopySemantics.ALWAYS_COPY
    return xc.batched_copy_array_to_devices_with_sharding(
        [array], [devices], [array.sharding], [copy]
    )[0]


def download(array: Array, shape: Sequence[int] | None = None) -> torch.Tensor:
    """An array of any device copied to a new CPU tensor, once it is computed.

    shape: without the padding of parts; default: the array's.

    Raises:
        Whatever the program that computes it failed with on the device.
    """
    if partitions.sharding_of(array) is None:
        return _from_numpy(np.array(array))
    return _from_numpy(partitions.whole(array, array.shape if shape is None else shape))


def to_tensors(arrays: Sequence[Array], on: Device, host: bool) -> list[torch.Tensor]:
    """Arrays of the device as torch tensors.

    With `host` they become CPU tensors, else tensors on the device; zero-copy if that is where
    they are. On a GPU PyTorch's current stream waits for them, elsewhere the caller.

    Raises:
        Whatever the program that computes them failed with on the device.
    """
    if gpu_order.shared_with(on) and not host:
        stream = gpu_order.torch_stream(on)
        return [_torch_dlpack_in(_dlpack_out(array, stream)) for array in arrays]
    wait(arrays)
    if not (host and is_apart(on)):
        try:
            return [_torch_dlpack_in(_dlpack_out(array)) for array in arrays]
        except (BufferError, RuntimeError):  # float8 in jaxlib 0.7 or torch 2.9
            if on.platform != "cpu":
                raise
    if is_apart(on):
        for array in arrays:
            metrics.count_transfer(array.nbytes, to_device=False)
    return [_from_numpy(np.array(array)) for array in arrays]


def computed(arrays: Sequence[Array]) -> list[torch.Tensor]:
    """Arrays of the CPU as tensors, from a program that is done: `to_tensors` without a wait.

    Raises:
        What `to_tensors` does.
    """
    try:
        return [_torch_dlpack_in(_dlpack_out(array)) for array in arrays]
    except (BufferError, RuntimeError):  # that of a program that failed is another one, too
        return to_tensors(arrays, arrays[0].device, host=True)


def wait(arrays: Sequence[Array]) -> None:
    """Return when the arrays are computed; other threads run meanwhile.

    Raises:
        Whatever the program that computes them failed with on the device.
    """
    _jax.batched_block_until_ready(arrays)


def pointer(array: Array) -> int:
    """The address of the array's memory on its device."""
    return array.unsafe_buffer_pointer()


# Device types of the DLPack standard.
_DLPACK_CPU, _DLPACK_CUDA = 1, 2
_torch_dlpack_out: Callable[[torch.Tensor], Any] = torch._C._to_dlpack  # type: ignore[attr-defined]
_torch_dlpack_in: Callable[[Any], torch.Tensor] = torch._C._from_dlpack  # type: ignore[attr-defined]
_dlpack_in = dlpack_importer(_jax.dlpack_managed_tensor_to_buffer)
_dlpack_out = _jax.buffer_to_dlpack_managed_tensor


def _to_numpy(tensor: torch.Tensor) -> np.ndarray:
    tensor = tensor.cpu()
    if tensor.dtype in _VIEWED:
        integers, viewed = _VIEWED[tensor.dtype]
        return tensor.view(integers).numpy().view(viewed)
    return tensor.numpy()


def _from_numpy(host: np.ndarray) -> torch.Tensor:
    for dtype, (integers, viewed) in _VIEWED.items():
        if host.dtype == viewed:
            plain = np.dtype(str(integers).removeprefix("torch."))
            memory = torch.from_numpy(host.view(plain))
            # Not a view: autograd refuses in-place ops on some.
            tensor = torch.empty(0, dtype=dtype, device="cpu")
            return tensor.set_(memory.untyped_storage(), 0, memory.shape, memory.stride())
    return torch.from_numpy(host)


_VIEWED = {
    torch.bfloat16: (torch.int16, jax.numpy.bfloat16.dtype),
    torch.float8_e4m3fn: (torch.int8, jax.numpy.float8_e4m3fn.dtype),
    torch.float8_e5m2: (torch.int8, jax.numpy.float8_e5m2.dtype),
}
