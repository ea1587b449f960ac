"""Pixels of images as rows of a matrix."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from xla_dynamo.backend.lowering.rules.vision._regions import Regions


@pytest.mark.parametrize("has_channels", [True, False])
def test_a_row_has_the_channels_of_its_pixel(has_channels: bool) -> None:
    images = np.arange(2 * 12 * 4 * 5).reshape(2, 12, 4, 5)
    regions = Regions(jnp.array([1]), images.shape, (2, 3), has_channels)
    rows = regions.rows(jnp.asarray(images))
    assert np.array_equal(regions.images(rows), images)
    at = regions.row(jnp.array([[3, 2]]), jnp.array([[4, 0, 1]]))
    own = slice(5, None, 6) if has_channels else slice(None)  # of the last bin
    assert np.array_equal(rows[at[0, 1, 2]], images[1, own, 2, 1])


def test_an_image_that_there_is_not_gives_nan() -> None:
    regions = Regions(jnp.array([2]), (2, 1, 2, 2), (1, 1))
    at = regions.row(jnp.array([[0]]), jnp.array([[0]]))
    assert np.isnan(regions.gather(regions.rows(jnp.ones((2, 1, 2, 2))), at)).all()
