"""Forked processes: locks that another thread held at the fork are free in the child."""

from __future__ import annotations

from tests.programs import python


def test_a_child_records_ops_although_another_thread_held_every_lock() -> None:
    printed = python(
        """
        import os, signal, threading
        import torch
        from xla_dynamo.compat.kernels import inplace
        from xla_dynamo.compat.recording import metrics, pending, shape_inference
        from xla_dynamo.compat.values import values

        x = torch.ones(2, 3, device="xla:0")
        held, done = threading.Event(), threading.Event()

        def hold():
            with (
                metrics.lock, shape_inference.lock, values.naming, pending._lock,
                pending.trace(x.device).lock, inplace._withdrawn.lock,
            ):
                held.set()
                done.wait()

        threading.Thread(target=hold, daemon=True).start()
        held.wait()
        child = os.fork()
        if child == 0:
            signal.alarm(60)
            metrics.count("forked")
            y = torch.func.grad(lambda t: (t * x).sum())(torch.ones(2, 3, device="xla:0"))
            pending.forget()
            z = torch.ones(5, 7, device="xla:0") + 1
            os._exit(17 if y.shape == (2, 3) and z.shape == (5, 7) else 1)
        status = os.waitpid(child, 0)[1]
        done.set()
        print(os.waitstatus_to_exitcode(status))
        """,
        fresh=True,
    )
    assert printed.splitlines()[-1] == "17"
