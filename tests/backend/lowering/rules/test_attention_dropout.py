"""Which weights attention's dropout keeps."""

from __future__ import annotations

import math
from typing import Any

import jax
import numpy as np
import pytest

from xla_dynamo.backend.jax_adapter import apart
from xla_dynamo.backend.lowering.rules import _attention_dropout, random_bits

SEED = np.uint32([0x13198A2E, 0x03707344])
HEADS = np.uint32([[[0]], [[1]], [[7]]])


def kept(first: tuple[int, int], shape: tuple[int, int], p: float = 0.1, heads: Any = HEADS) -> Any:
    with apart():
        return np.asarray(_attention_dropout.kept(tuple(SEED), heads, first, shape, p))


@pytest.mark.parametrize(
    ("key", "counter", "words"),
    [
        ((0, 0), (0, 0), (0x9D1C5EC6, 0x8BD50731)),
        ((2**32 - 1,) * 2, (2**32 - 1,) * 2, (0xFD36D048, 0x2D17272C)),
        ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xBA3E4725, 0xF27D669E)),
    ],
)
def test_known_answers_of_13_rounds(key: Any, counter: Any, words: Any) -> None:
    """From the test vectors of Random123, the generator's reference implementation."""
    with apart():
        drawn = random_bits.threefry(*map(jax.numpy.uint32, (*key, *counter)), rounds=13)
    assert tuple(map(int, drawn)) == words


def test_a_position_has_its_bits_in_every_block() -> None:
    whole = kept((0, 0), (512, 300))
    np.testing.assert_array_equal(kept((128, 40), (256, 200)), whole[:, 128:384, 40:240])
    one = kept((0, 0), (512, 300), heads=HEADS[2, 0, 0])
    np.testing.assert_array_equal(one, whole[2])


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_each_weight_is_kept_with_the_same_chance(p: float) -> None:
    """In all, in each row, and in each column; neighbours know nothing of each other."""
    keep, count = kept((0, 0), (512, 512), p), 3 * 512 * 512
    sigma = math.sqrt(p * (1 - p))
    assert abs(keep.mean() - (1 - p)) < 5 * sigma / math.sqrt(count)
    for axis in (1, 2):
        assert abs(keep.mean(axis) - (1 - p)).max() < 6 * sigma / math.sqrt(512)
    off = (keep - (1 - p)) / sigma
    for pair in ((off[:, 1:], off[:, :-1]), (off[:, :, 1:], off[:, :, :-1]), (off[1:], off[:-1])):
        assert abs((pair[0] * pair[1]).mean()) < 5 / math.sqrt(pair[0].size)
    assert abs((off[:, 32:] * off[:, :-32]).mean()) < 5 / math.sqrt(count)
