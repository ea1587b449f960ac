"""Shardings as numbers and as text: parts, padding, tiles, and back."""

from __future__ import annotations

import numpy as np
import pytest

from xla_dynamo.backend.runtime import shardings
from xla_dynamo.backend.runtime.shardings import Grid, Sharding

pytestmark = pytest.mark.spine
GRID = Grid((2, 2), ("data", "model"), (0, 1, 2, 3))
TURNED = Grid((2, 2), ("data", "model"), (3, 1, 2, 0))


@pytest.mark.parametrize(
    ("sharding", "hlo", "shardy"),
    [
        (Sharding(GRID, ((), ())), "{replicated}", "[{}, {}]"),
        (Sharding(GRID, ((0,), (1,))), "{devices=[2,2]0,1,2,3}", '[{"data"}, {"model"}]'),
        (Sharding(GRID, ((1, 0), ())), "{devices=[4,1]0,2,1,3}", '[{"model", "data"}, {}]'),
        (
            Sharding(GRID, ((), (1,))),
            "{devices=[1,2,2]0,2,1,3 last_tile_dim_replicate}",
            '[{}, {"model"}]',
        ),
    ],
)
def test_text(sharding: Sharding, hlo: str, shardy: str) -> None:
    assert sharding.text() == hlo
    attribute = sharding.attribute()
    assert attribute == f'#sdy.sharding<mesh<["data"=2, "model"=2]>, {shardy}>'
    assert shardings.parse(attribute) == sharding
    assert shardings.of_tiles(sharding.tiles, [GRID]).text() == hlo


def test_what_comes_second() -> None:
    attribute = Sharding(GRID, ((0,), ())).attribute(priority=1)
    assert attribute.endswith('[{"data"}p1, {}]>')


def test_devices_in_another_order() -> None:
    sharding = Sharding(TURNED, ((0,), ()))
    assert "device_ids=[3, 1, 2, 0]" in sharding.attribute()
    assert shardings.parse(sharding.attribute()) == sharding
    assert sharding.text() == "{devices=[2,1,2]3,1,2,0 last_tile_dim_replicate}"


def test_parts_of_what_does_not_divide() -> None:
    sharding = Sharding(shardings.line(4), ((0,), ()))
    assert (sharding.part((5, 3)), sharding.padded((5, 3))) == ((2, 3), (8, 3))
    rows = [(index[0].start, index[0].stop) for index, _ in sharding.places((5, 3))]
    assert rows == [(0, 2), (2, 4), (4, 5), (5, 5)]


def test_which_replica_of_a_part_a_device_has() -> None:
    places = Sharding(GRID, ((0,),)).places((4,))
    assert [(index[0].start, replica) for index, replica in places] == [
        (0, 0),
        (0, 1),
        (2, 0),
        (2, 1),
    ]


def test_tiles_that_no_mesh_has() -> None:
    tiles = np.array([0, 3, 1, 2]).reshape(4, 1)
    found = shardings.of_tiles(tiles, [GRID])
    assert found.grid not in (GRID, TURNED)
    assert np.array_equal(found.tiles, tiles)
    several = shardings.of_tiles(np.arange(4).reshape(2, 1, 2), [TURNED, GRID])
    assert several == Sharding(GRID, ((0,), ()))
