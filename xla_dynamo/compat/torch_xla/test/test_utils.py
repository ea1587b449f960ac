"""Helpers that torch_xla's own training scripts print and log with."""

from __future__ import annotations

import multiprocessing
import time
import unittest
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from xla_dynamo.compat.reporting import metrics_report

from .. import runtime as xr
from ..core._reporting import summary_writer
from ..debug import metrics_compare_utils as mcu


def mp_test(func: Callable[..., Any]) -> Callable[..., int | None]:
    """A unittest method that runs in a process of its own; returns the exit code."""

    def wrapper(*args: Any, **kwargs: Any) -> int | None:
        context = multiprocessing.get_context("fork")
        process = context.Process(target=func, args=args, kwargs=kwargs)
        process.start()
        process.join()
        if args and isinstance(args[0], unittest.TestCase):
            args[0].assertEqual(process.exitcode, 0)  # noqa: PT009
        return process.exitcode

    return wrapper


def now(format: str = "%H:%M:%S") -> str:
    """The time of day."""
    return datetime.now().strftime(format)


def _print_line(*items: str | None) -> None:
    """In one piece: replicas are threads, and print side by side."""
    line = " ".join(item for item in ("|", *items) if item)
    print(f"{line}\n", end="", flush=True)


def _device(device: Any) -> str:
    return f"Device={device}/{xr.global_ordinal()}"


def print_training_update(
    device: Any,
    step: int,
    loss: Any,
    rate: float,
    global_rate: float,
    epoch: int | None = None,
    summary_writer: Any = None,
) -> None:
    """Print `| Training Device=xla:0/0 Epoch=1 Step=0 Loss=2.30626 Rate=23.89 ...`.

    Args:
        loss: a number, or a 0-d tensor (which is read from the device).
        rate, global_rate: samples per second, lately and since the start.
        summary_writer: is given the rates too.
    """
    _print_line(
        "Training",
        _device(device),
        None if epoch is None else f"Epoch={epoch}",
        f"Step={step}",
        f"Loss={float(loss):.5f}",
        f"Rate={rate:.2f}",
        f"GlobalRate={global_rate:.2f}",
        f"Time={now()}",
    )
    write_to_summary(
        summary_writer,
        dict_to_write={"examples/sec": rate, "average_examples/sec": global_rate},
    )


def print_test_update(
    device: Any, accuracy: float | None, epoch: int | None = None, step: int | None = None
) -> None:
    """Print `| Test Device=xla:0/0 Step=5 Epoch=1 Accuracy=97.50 Time=03:12:35`."""
    _print_line(
        "Test",
        _device(device),
        None if step is None else f"Step={step}",
        None if epoch is None else f"Epoch={epoch}",
        None if accuracy is None else f"Accuracy={accuracy:.2f}",
        f"Time={now()}",
    )


def get_summary_writer(logdir: str | None) -> Any:
    """A TensorBoard writer for a folder, or None without one.

    Raises:
        ImportError: neither tensorboardX nor tensorboard is installed.
    """
    if not logdir:
        return None
    writer = summary_writer(logdir)
    write_to_summary(writer, 0, dict_to_write={"TensorboardStartTimestamp": time.time()})
    return writer


def write_to_summary(
    summary_writer: Any,
    global_step: int | None = None,
    dict_to_write: Mapping[str, Any] | None = None,
    write_xla_metrics: bool = False,
) -> None:
    """Write scalars by name, and with `write_xla_metrics` the metrics report; None: do nothing."""
    if summary_writer is None:
        return
    values = dict(dict_to_write or {})
    if write_xla_metrics:
        metrics = mcu.parse_metrics_report(metrics_report.metrics_report())
        fallbacks = [value for name, value in metrics.items() if name.startswith("aten::")]
        values |= {**metrics, "aten_ops_sum": sum(fallbacks)}
    for name, value in values.items():
        summary_writer.add_scalar(name, value, global_step)


def close_summary_writer(summary_writer: Any) -> None:
    """Flush and close a writer, if there is one."""
    if summary_writer is not None:
        summary_writer.flush()
        summary_writer.close()
