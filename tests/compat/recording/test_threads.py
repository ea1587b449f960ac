"""Threads that record and compile at the same time, on two devices and on one."""

from __future__ import annotations

import pytest

from tests.programs import python


@pytest.mark.parametrize("devices", [["xla:0", "xla:1"], ["xla:0", "xla:0"]])
def test_two_threads_get_their_own_values(devices: list[str]) -> None:
    printed = python(
        f"""
        import sys, threading, torch
        sys.setswitchinterval(1e-5)
        def work(device, seed):
            generator = torch.Generator().manual_seed(seed)
            for step in range(20):
                x = torch.randn(2 + step % 3, 3, generator=generator)
                expected = x
                y = x.to(device)
                for _ in range(step % 4 + 1):
                    y = (y * 2 + seed).relu() - y.mean()
                    expected = (expected * 2 + seed).relu() - expected.mean()
                torch.testing.assert_close(y.cpu(), expected)
            print("done", flush=True)
        threads = [
            threading.Thread(target=work, args=item) for item in zip({devices}, (0, 1))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        """,
        CPU_NUM_DEVICES="2",
    )
    assert printed.count("done") == 2, printed
