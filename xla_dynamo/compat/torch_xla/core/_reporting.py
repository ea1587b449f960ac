"""What training scripts print: rates, and the progress lines of the scripts of 2019."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

_SMOOTHING = 0.4


class RateTracker:
    """Counts per second: over the last interval, smoothed, and over all time.

    smooth_factor: weight of the earlier rate; by default RATE_TRACKER_SMOOTHING, or 0.4.
    """

    def __init__(self, smooth_factor: float | None = None) -> None:
        if smooth_factor is None:
            smooth_factor = float(os.environ.get("RATE_TRACKER_SMOOTHING", _SMOOTHING))
        self._smoothing = smooth_factor
        self._start = self._since = time.time()
        self._rate: float | None = None
        self._before = self._count = 0.0

    def add(self, count: float) -> None:
        """Count more."""
        self._count += count

    def rate(self) -> float:
        """The rate since the last call, smoothed with the earlier ones; starts a new interval."""
        now = time.time()
        if now <= self._since:
            return 0.0
        rate = self._count / (now - self._since)
        if self._rate is not None:
            rate = (1 - self._smoothing) * rate + self._smoothing * self._rate
        self._before += self._count
        self._count, self._since, self._rate = 0.0, now, rate
        return rate

    def global_rate(self) -> float:
        """The rate since the start."""
        elapsed = time.time() - self._start
        return (self._before + self._count) / elapsed if elapsed > 0 else 0.0


@dataclass(repr=False)
class _StepMetrics:
    """A line of text, and scalars for TensorBoard."""

    _line: str
    _scalars: dict[str, float]
    _step: int

    def write_summary(self, writer: Any) -> None:
        """Add the scalars to a TensorBoard writer, if there is one."""
        if writer:
            for name, value in self._scalars.items():
                writer.add_scalar(name, value, self._step)

    def __repr__(self) -> str:
        return self._line


class TrainStepMetrics(_StepMetrics):
    """The progress line of one training step."""

    LOG_FORMAT = (
        "Train Epoch: {epoch} [{samples}/{total} ({percent:.0f}%)]\t"
        "Loss: {loss:.6f}\tSamples/sec: {rate:.1f}"
    )

    def __init__(
        self,
        epoch: int,
        num_cores: int,
        batch_number: int,
        num_batches: int,
        batch_size: int,
        loss: Any,
        examples_per_sec: float,
        global_step: int,
    ) -> None:
        line = self.LOG_FORMAT.format(
            epoch=epoch,
            samples=num_cores * (batch_number + 1) * batch_size,
            total=num_batches * batch_size,
            percent=100.0 * batch_number * num_cores / num_batches,
            loss=float(loss),
            rate=examples_per_sec,
        )
        scalars = {"loss": float(loss), "global_step/sec": examples_per_sec / batch_size}
        super().__init__(line, scalars, global_step)


class TestStepMetrics(_StepMetrics):
    """The result line of an evaluation."""

    __test__ = False  # pytest takes the name for a test
    LOG_FORMAT = (
        "\nTest set: Average loss: {loss:.4f}, Accuracy: {correct}/{count} ({accuracy:.2f}%), "
        "Samples/sec: {rate:.1f}\n"
    )

    def __init__(
        self, loss: Any, correct: int, count: int, examples_per_sec: float, global_step: int
    ) -> None:
        accuracy = 100.0 * correct / count
        line = self.LOG_FORMAT.format(
            loss=float(loss),
            correct=correct,
            count=count,
            accuracy=accuracy,
            rate=examples_per_sec,
        )
        super().__init__(line, {"accuracy": accuracy}, global_step)


def get_log_fn(
    logdir: str | None = None, custom_log_fn: Callable[[Any], Any] = print
) -> Callable[[Any], None]:
    """A function that prints its argument, and writes step metrics to TensorBoard in `logdir`."""
    writer = summary_writer(logdir) if logdir else None

    def log(result: Any) -> None:
        if isinstance(result, _StepMetrics):
            result.write_summary(writer)
            result = str(result)
        custom_log_fn(result)

    return log


def summary_writer(logdir: str) -> Any:
    """A TensorBoard writer for a folder.

    Raises:
        ImportError: neither tensorboardX nor tensorboard is installed.
    """
    try:
        from tensorboardX import SummaryWriter  # type: ignore[import-not-found]
    except ImportError:
        from torch.utils.tensorboard import SummaryWriter
    return SummaryWriter(logdir)
