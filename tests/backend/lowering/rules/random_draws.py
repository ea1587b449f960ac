"""Runs a random rule with a given key, and the distribution tests that its draws must pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from scipy import stats

from tests.like_eager.rules import run
from xla_dynamo.backend.lowering import registry

KEY = torch.tensor([0x9E3779B9, 0x7F4A7C15], dtype=torch.uint32)
OTHER_KEY = torch.tensor([0x9E3779B9, 0x7F4A7C16], dtype=torch.uint32)


def draw(op: Any, *args: Any, key: torch.Tensor = KEY, **kwargs: Any) -> Any:
    """What the random rule of `op` draws with `key`."""
    assert registry.RULES[op].random
    return run(op, key, *args, **kwargs)


def assert_follows(sample: torch.Tensor, cdf: Callable[[np.ndarray], np.ndarray]) -> None:
    """A Kolmogorov-Smirnov test against a continuous distribution, at one in ten thousand."""
    values = sample.flatten().double().numpy()
    assert np.isfinite(values).all()
    assert stats.kstest(values, cdf).pvalue > 1e-4


def assert_frequencies(values: torch.Tensor, probabilities: np.ndarray) -> None:
    """A chi-square test of the values 0, 1, ... against their probabilities."""
    counts = np.bincount(values.flatten().long().numpy(), minlength=len(probabilities))
    assert len(counts) == len(probabilities)
    expected = probabilities * counts.sum()
    likely = expected >= 5
    assert counts[probabilities == 0].sum() == 0
    pooled = [*expected[likely], expected[~likely].sum()]
    observed = [*counts[likely], counts[~likely].sum()]
    statistic = sum((o - e) ** 2 / e for o, e in zip(observed, pooled, strict=True) if e > 0)
    assert stats.chi2.sf(statistic, max(int(likely.sum()) - 1, 1)) > 1e-4
