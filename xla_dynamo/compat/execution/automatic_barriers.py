"""Barriers that no script asks for: after each op in eager mode, and where a trace grows too long.

recording.trace_bounds says where; importing this module tells it what happens there.
"""

from __future__ import annotations

import sys

from xla_dynamo.backend import metrics as backend_metrics
from xla_dynamo.bookkeeping import optional
from xla_dynamo.compat.recording import metrics
from xla_dynamo.compat.recording.trace import Trace
from xla_dynamo.compat.recording.trace_bounds import NEXT_LOOK, policy
from xla_dynamo.compat.values import describe
from xla_dynamo.compat.values.source_location import user_location

from . import settings, sync


def run_each_op(enable: bool) -> None:
    """Run every op when it is called, or record it, as usual."""
    policy.each_op = enable


def runs_each_op() -> bool:
    """Whether every op runs when it is called."""
    return policy.each_op


def _cut(trace: Trace) -> None:
    """End a trace that may grow no more, and say so once."""
    if not settings.launches_allowed():  # one program is wanted, however long
        trace.bound = sys.maxsize
        return
    metrics.count("TrimIrGraph")
    _warn(trace)
    sync.cut(trace)
    trace.bound, trace.follows = NEXT_LOOK, True


@optional(None)
def _warn(trace: Trace) -> None:
    location = user_location()
    backend_metrics.warn_once(
        "long trace",
        f"{len(trace.values)} results were recorded on {trace.device} and no barrier came; the "
        f"next op is at {describe.where(location)}. What is recorded runs now, as one program, and "
        "so do the parts that follow. Call torch_xla.sync(), or xm.mark_step(), at the end of each "
        "step of your loop: programs are smaller then, compile sooner, and memory is given back "
        "earlier. docs/legacy.md explains.",
        UserWarning,
    )


policy.after_op, policy.when_full = sync.cut, _cut
