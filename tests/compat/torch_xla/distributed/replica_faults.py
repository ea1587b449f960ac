"""One replica does what it should not: all end soon, with an error that names it and the cause.

python -m tests.compat.torch_xla.distributed.replica_faults fork killed
"""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any

import torch
from torch import nn

PATIENCE = 3


def steps(rank: int, count: int, fault: str, bad: int = -1) -> None:
    """Five steps with a collective; the last replica, or `bad`, has a fault in the third."""
    import torch_xla.core.xla_model as xm

    total = torch.zeros(4, device=xm.xla_device())
    for step in range(5):
        x = torch.full((4,), float(rank)).to(total.device)
        kind = "sum"
        if rank == bad % count and step == 2:
            if fault == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            elif fault == "raises":
                raise ZeroDivisionError("only here")
            elif fault == "ends":
                return
            elif fault == "hangs":
                time.sleep(60 if "fork" in sys.argv else PATIENCE + 2)
            elif fault == "shape":
                x = torch.full((8,), float(rank)).to(total.device)
            elif fault == "op":
                kind = "max"
            elif fault == "rendezvous":
                xm.rendezvous("alone")
            elif fault == "receives":
                xm.recv(torch.zeros(4, device=total.device), 5)
        total = total + xm.all_reduce(kind, x)[:4]
        xm.mark_step()
    assert total.tolist() == [5.0 * sum(range(count))] * 4


def in_threads(fault: str) -> None:
    import torch_xla.core.xla_model as xm
    import torch_xla.distributed.data_parallel as dp

    def loop(model: Any, loader: Any, device: Any, context: Any) -> None:
        steps(xm.get_ordinal(), 2, fault)

    dp.DataParallel(nn.Linear(1, 1))(loop, [torch.ones(1)] * 2)


def main(kind: str, *faults: str) -> None:
    os.environ.setdefault("XLA_DYNAMO_PATIENCE", str(PATIENCE))
    os.environ["CPU_NUM_DEVICES"] = "2" if kind == "threads" else "1"
    import xla_dynamo.compat  # noqa: F401  # isort: skip
    import torch_xla
    import torch_xla.distributed.xla_multiprocessing as xmp

    if kind == "launch":  # in processes that were started, of which the second argument fails
        torch_xla.launch(steps, (2, faults[0], int(faults[1])))
        return
    for fault in faults:
        start = time.monotonic()
        try:
            if kind == "threads":
                in_threads(fault)
            else:
                xmp.spawn(steps, (2, fault), 2, start_method=kind)
            text = "nothing was raised"
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
        print(f"<{fault}> {text.strip()} </{fault}> after {time.monotonic() - start:.0f} s")


if __name__ == "__main__":
    main(*sys.argv[1:])
