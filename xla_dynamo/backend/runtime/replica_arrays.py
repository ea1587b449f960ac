# pyright: reportAttributeAccessIssue=false, reportPrivateImportUsage=false
# (jaxlib ships no type information for its native module.)
"""Stacks: the arrays of a program's replicas, one on each device, as one array for a launch.

Private API of jax met here, seen on 0.7.2 to 0.12.0: array.ArrayImpl, core.ShapedArray.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax._src import core
from jax._src.array import ArrayImpl

Device = Any
Array = Any


@functools.lru_cache(maxsize=256)
def sharding(devices: tuple[Device, ...], is_scalar: bool) -> Any:
    """Of an array on one device; of several, one for each replica, stacked along dimension 0.

    Scalars, which have none, are called copies of one another. PJRT looks at the buffers only.
    """
    if len(devices) == 1:
        return jax.sharding.SingleDeviceSharding(devices[0])
    mesh = jax.sharding.Mesh(np.array(devices), ("replica",))
    split = () if is_scalar else ("replica",)
    return jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*split))


@functools.lru_cache(maxsize=1024)
def stacked(replicas: int, shape: tuple[int, ...], dtype: np.dtype) -> Any:
    """What a stack of as many arrays of this shape is, to JAX."""
    if replicas > 1 and shape:
        shape = (replicas * shape[0], *shape[1:])
    return core.ShapedArray(shape, dtype)


def stack(arrays: Sequence[Array], devices: tuple[Device, ...]) -> Array:
    """The arrays of this process's replicas as one argument of a program on `devices`; no copy.

    arrays: one for each of `devices` that is of this process, in their order.
    """
    shape = arrays[0].shape
    aval, of = stacked(len(devices), shape, arrays[0].dtype), sharding(devices, not shape)
    return ArrayImpl(aval, of, list(arrays), committed=True, _skip_checks=True)


def parts(stack: Array) -> list[Array]:
    """The arrays of this process's replicas in a stack, or of its devices in a sharded array."""
    return stack._arrays


def run_together(
    run: Callable[..., Sequence[Array]],
    arguments: Sequence[Sequence[Array]],
    devices: tuple[Device, ...],
) -> list[list[Array]]:
    """What `run`, which takes and gives stacks, makes of each replica's arguments; by replica."""
    stacks = run(*[stack(each, devices) for each in zip(*arguments, strict=True)])
    results = [parts(each) for each in stacks]
    return [[of[i] for of in results] for i in range(len(arguments))]


def twin(array: Array) -> Array:
    """Another array of the same memory, and no owner of the first one: it may be donated."""
    return ArrayImpl(array.aval, array.sharding, array._arrays, committed=True, _skip_checks=True)
