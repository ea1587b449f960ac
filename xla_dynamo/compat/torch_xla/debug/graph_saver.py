"""torch_xla.debug.graph_saver, metrics_saver: pending programs and metrics reports, in files."""

from __future__ import annotations

import collections
import itertools
import os
import threading
from collections.abc import Sequence
from pathlib import Path

import torch

from xla_dynamo.compat.reporting import debugging, ir_text

_FORMATS = {"text": ir_text.text, "dot": ir_text.dot, "hlo": ir_text.hlo}
_numbers: collections.defaultdict[tuple[int, str], itertools.count[int]] = collections.defaultdict(
    itertools.count
)
_steps = itertools.count()


def save_tensors_graph(
    save_dir: str | os.PathLike[str], name: str, tensors: Sequence[torch.Tensor]
) -> None:
    """Write "NAME-THREAD-NUMBER.FORMAT" into a folder; SAVE_GRAPH_FMT is text, dot or hlo.

    Raises:
        RuntimeError: the format is unknown.
    """
    kind = os.environ.get("SAVE_GRAPH_FMT", "text")
    if kind not in _FORMATS:
        raise RuntimeError(f"Invalid save graph format: {kind}; legal: {', '.join(_FORMATS)}")
    thread = threading.get_ident()
    number = next(_numbers[thread, name])
    path = Path(save_dir) / f"{name}-{thread}-{number}.{kind}"
    path.write_text(_FORMATS[kind](tensors))


def save_metrics(metrics_file: str | None = None) -> None:
    """Append the report to a file (default: XLA_METRICS_FILE; without it, do nothing)."""
    target = metrics_file or os.environ.get("XLA_METRICS_FILE")
    if target:
        debugging.write_metrics(target, _steps)
