"""Arrays that are split over several devices of a client."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from xla_dynamo.backend.jax_adapter import cpu_client
from xla_dynamo.backend.runtime import partitions, replica_arrays, shardings, transfers
from xla_dynamo.backend.runtime.partitions import Partitions
from xla_dynamo.backend.runtime.shardings import Grid, Sharding

DEVICES = tuple(cpu_client(asynchronous=True, devices=4).local_devices())
GRID = Grid((2, 2), ("data", "model"), (0, 1, 2, 3))


@pytest.mark.parametrize(
    ("sharding", "part"),
    [
        (Sharding(GRID, ((), ())), (5, 6)),
        (Sharding(GRID, ((), (1,))), (5, 3)),
        (Sharding(GRID, ((0, 1), ())), (2, 6)),
        (Sharding(Grid((4,), ("x",), (2, 0, 3, 1)), ((0,), ())), (2, 6)),
    ],
)
def test_there_and_back(sharding: Sharding, part: tuple[int, ...]) -> None:
    host = torch.arange(30.0).reshape(5, 6)
    array = transfers.upload(host, Partitions(DEVICES), sharding)
    assert partitions.sharding_of(array) == sharding
    assert {piece.shape for piece in replica_arrays.parts(array)} == {part}
    assert torch.equal(transfers.download(array, host.shape), host)
    for number, piece in partitions.local_parts(array, DEVICES).items():
        index, _ = sharding.places(host.shape)[number]
        own = np.asarray(piece)[tuple(slice(s.stop - s.start) for s in index)]
        assert np.array_equal(own, host.numpy()[index])


def test_what_is_replicated() -> None:
    scalar = transfers.put(np.array(3.0), Partitions(DEVICES))
    assert len(replica_arrays.parts(scalar)) == 4
    assert transfers.download(scalar).item() == 3.0
    assert partitions.sharding_of(transfers.put(np.array(3.0), DEVICES[0])) is None


def test_parts_become_an_array() -> None:
    sharding = Sharding(shardings.line(4), ((0,),))
    parts = [transfers.put(np.full(2, i), device) for i, device in enumerate(DEVICES)]
    whole = partitions.joined(parts, (8,), sharding, DEVICES)
    assert transfers.download(whole, (7,)).tolist() == [0, 0, 1, 1, 2, 2, 3]
