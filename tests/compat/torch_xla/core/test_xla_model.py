"""torch_xla.core.xla_model with one replica does what its documentation says."""

from __future__ import annotations

import io
import threading
from collections import OrderedDict

import pytest
import torch
import torch_xla.core.functions as xf
import torch_xla.core.xla_model as xm
import torch_xla.utils.utils as xu
from torch_xla.core import dynamo_bridge

from tests.programs import python
from xla_dynamo.compat.device import step_barrier
from xla_dynamo.compat.reporting import metrics_report
from xla_dynamo.compat.values.values import value_of
from xla_dynamo.errors import NotAvailable

XLA = torch.device("xla", 0)


def pending(tensor: torch.Tensor) -> bool:
    return value_of(tensor).array is None


def test_devices_of_one_host():
    assert xm.xla_device() == XLA
    assert xm.xla_device(0) == XLA
    assert xm.get_xla_supported_devices() == ["xla:0"]
    assert xm.get_xla_supported_devices("CPU") == ["xla:0"]
    assert xm.get_xla_supported_devices(["TPU", "CPU"], max_devices=4) == ["xla:0"]
    assert xm.get_xla_supported_devices(max_devices=1) == ["xla:0"]
    assert xm.get_xla_supported_devices(1) == ["xla:0"]
    assert xm.get_xla_supported_devices("TPU") is None
    assert xm.xla_real_devices([XLA]) == xm.xla_real_devices() == ["CPU:0"]
    assert xm.xla_device_hw(XLA) == "CPU"
    assert xm.xla_device_kind() == "cpu"
    assert xm.xla_replication_devices(["xla:0"]) == ["CPU:0"]
    assert xm.parse_xla_device("CPU:0") == ("CPU", 0)
    assert xm.parse_xla_device("cuda:0") is None


@pytest.mark.parametrize("arguments", [(2, "TPU"), (1,)])
def test_device_numbers_of_bigger_hosts_are_folded(arguments):
    with pytest.warns(UserWarning, match=r"xla_device\(n=\d\) is xla:0 here: this host has 1"):
        assert xm.xla_device(*arguments) == XLA


def test_first_tpu_core_of_an_old_host_is_the_first_device():
    assert xm.xla_device(n=1, devkind="TPU") == XLA


def test_one_replica():
    assert (xm.xrt_world_size(), xm.get_ordinal(), xm.get_local_ordinal()) == (1, 0, 0)
    assert xm.is_master_ordinal()
    assert xm.is_master_ordinal(local=False)
    with pytest.raises(RuntimeError, match=r"number of devices \(2\) is different from 1"):
        xm.xla_replication_devices(["xla:0", "xla:1"])


def test_master_print_of_every_era(capsys):
    stream = io.StringIO()
    xm.master_print("a", 1)
    xm.master_print("b", stream)
    xm.master_print("c", fd=stream, flush=True)
    assert capsys.readouterr().out == "a 1\n"
    assert stream.getvalue() == "b\nc\n"


def test_mark_step_launches_and_counts():
    x = torch.ones(3, device=XLA) + 1
    assert pending(x)
    before = metrics_report.counter_value("MarkStep") or 0
    xm.mark_step()
    assert not pending(x)
    assert metrics_report.counter_value("MarkStep") == before + 1


def test_step_closures_run_in_order_after_the_barrier():
    seen = []
    x = torch.ones(2, device=XLA).sum()
    xm.add_step_closure(lambda v, name: seen.append((name, pending(v), v.item())), args=(x, "a"))
    xm.add_step_closure(lambda: seen.append("b"))
    assert seen == []
    xm.mark_step()
    assert seen == [("a", False, 2.0), "b"]
    xm.mark_step()
    assert len(seen) == 2


def test_asynchronous_closures_run_elsewhere_and_fail_at_a_later_barrier():
    threads, done = [], threading.Event()

    def fail():
        threads.append(threading.current_thread())
        done.set()
        raise ValueError("in a closure")

    xm.add_step_closure(fail, run_async=True)
    xm.mark_step()
    assert done.wait(30)
    step_barrier._worker.join()
    with pytest.raises(ValueError, match="in a closure"):
        xm.mark_step()
    assert threads != [threading.current_thread()]
    xm.mark_step()


@pytest.mark.parametrize("ends", [False, True])
def test_optimizer_step_updates_and_ends_the_step_if_asked(ends):
    model = torch.nn.Linear(3, 1, bias=False)
    expected = model.weight.detach().clone() - 0.5 * torch.ones(1, 3)
    model.to(XLA)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    xm.mark_step()
    model(torch.ones(1, 3, device=XLA)).sum().backward()
    assert [g.shape for g in xm._fetch_gradients(optimizer)] == [(1, 3)]
    assert xm.optimizer_step(optimizer, barrier=ends) is None
    assert pending(model.weight) is not ends
    torch.testing.assert_close(model.weight.detach().cpu(), expected)


def test_optimizer_step_with_the_closure_of_2019_ends_the_step():
    weight = torch.ones(2, device=XLA, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.5)

    def closure():
        optimizer.zero_grad()
        loss = (weight * 3).sum()
        loss.backward()
        return loss

    assert xm.optimizer_step(optimizer, closure).item() == 6.0
    assert not pending(weight)
    assert xm.optimizer_step(optimizer, optimizer_args={"closure": closure}).item() == -3.0


def test_collectives_of_one_replica():
    x = torch.arange(4.0, device=XLA)
    reduced = xm.all_reduce(xm.REDUCE_SUM, x, scale=0.5)
    assert reduced is not x
    assert reduced.tolist() == [0, 0.5, 1, 1.5]  # as documented; torch_xla does not for one replica
    assert xm.all_reduce(xm.REDUCE_SUM, x).tolist() == x.tolist() == [0, 1, 2, 3]
    listed = [x.clone(), torch.ones((), device=XLA, requires_grad=True)]
    assert xm.all_reduce("sum", listed) is listed
    assert xm.all_reduce("sum", listed, scale=0.5) is listed
    assert [t.tolist() for t in listed] == [[0, 0.5, 1, 1.5], 0.5]
    assert xm.all_gather(x).tolist() == x.tolist()
    output = torch.zeros(4, device=XLA)
    assert xm.all_gather(x, output=output) is output
    assert output.tolist() == [0, 1, 2, 3]
    assert xm.all_to_all(x, 0, 0, 1).tolist() == x.tolist()
    assert xm.reduce_scatter("sum", x, 0.5, 0, 1).tolist() == [0, 0.5, 1, 1.5]
    assert xm.collective_permute(x, [[0, 0]]).tolist() == x.tolist()
    assert xm.collective_permute(x, []).tolist() == [0, 0, 0, 0]
    assert xm.collective_broadcast([x]) is None
    weight = x.clone().requires_grad_()
    xf.all_reduce("sum", xf.all_gather(weight)).sum().backward()
    assert weight.grad is not None
    assert weight.grad.tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda x: xm.send(x, 1), "no other replica to send to"),
        (lambda x: xm.recv(x, 1), "no other replica"),
        (lambda x: xm.all_to_all(x, 0, 0, 2), "split_count=2 needs 2 replicas"),
        (lambda x: xm.reduce_scatter("sum", x, 1.0, 0, 4), "pass shard_count=xr.world_size"),
        (lambda x: xm.collective_permute(x, [[0, 1]]), r"replicas \[1\]"),
        (lambda x: xm.collective_broadcast([x], root_ordinal=3), "from replica 3"),
    ],
)
def test_what_needs_a_second_replica_says_so(call, says):
    with pytest.raises(NotAvailable, match=says):
        call(torch.ones(4, device=XLA))


@pytest.mark.parametrize("given", [None, "3"])
def test_accelerate_reads_that_this_process_may_print(given):
    printed = python(
        """
        import os
        import xla_dynamo.compat
        import torch_xla.core.xla_model as xm
        xm.set_replication(xm.xla_device(), xm.get_xla_supported_devices())
        print(os.environ["LOCAL_RANK"])
        xla_dynamo.compat.uninstall()
        print(os.environ.get("LOCAL_RANK"))
        """,
        **({"LOCAL_RANK": given} if given else {}),
    )
    assert printed.split() == (["3", "3"] if given else ["0", "None"])


def test_unknown_reduction_is_an_error():
    with pytest.raises(ValueError, match="'mean' is not one of sum, mul"):
        xm.all_reduce("mean", torch.ones(2, device=XLA))


def test_rendezvous_and_mesh_reduce():
    assert xm.rendezvous("x") == [b""]
    assert xm.rendezvous("x", b"abc", [0]) == [b"abc"]
    with pytest.raises(TypeError, match="`payload` must be bytes, not <class 'str'>"):
        xm.rendezvous("x", "abc")  # type: ignore[arg-type]
    assert xm.mesh_reduce("t", 3.0, sum) == 3.0
    (inside,) = xm.mesh_reduce("t", {"a": torch.ones(2, device=XLA)}, list)
    assert inside["a"].device.type == "cpu"
    assert xm.do_on_ordinals(lambda t: t.device.type, (torch.ones(1, device=XLA),)) == "cpu"
    assert xm.do_on_ordinals(lambda: 1, ordinals=[3]) is None


def test_to_cpu_keeps_structure_and_leaves_parameters():
    x = torch.ones(2, device=XLA)
    state = torch.nn.Linear(2, 2).to(XLA).state_dict()
    data = {"a": [x, (x, 2)], "s": state, "p": torch.nn.Parameter(x)}
    moved = xm._maybe_convert_to_cpu(data)
    assert moved["a"][0] is moved["a"][1][0]
    assert moved["a"][0].device.type == "cpu"
    assert moved["a"][1][1] == 2
    assert isinstance(moved["s"], OrderedDict)
    assert moved["s"]._metadata == state._metadata
    assert moved["p"].device == XLA
    assert xm._maybe_convert_to_cpu(x, convert=False) is x


def test_to_device_wraps_a_bare_tensor():
    (moved,) = xm.send_cpu_data_to_device(torch.ones(2), XLA)
    assert moved.device == XLA
    nested = xm.send_cpu_data_to_device([{"a": torch.ones(2)}, "text"], "xla:0")
    assert nested[0]["a"].device == XLA
    assert nested[1] == "text"


class Pair(xu.DataWrapper):
    """Two tensors, one of which stays where it is."""

    def __init__(self, sent, kept):
        self.sent, self.kept = sent, kept

    def get_tensors(self):
        return [self.sent]

    def from_tensors(self, tensors):
        return Pair(tensors[0], self.kept)


def test_to_device_asks_wrappers_for_their_tensors():
    shared = torch.ones(2)
    first, (pair,), last = xm.send_cpu_data_to_device(
        [torch.zeros(1), (Pair(shared, torch.ones(1)),), shared], XLA
    )
    assert pair.sent is last  # what is shared stays shared
    assert (first.device, pair.sent.device, pair.kept.device.type) == (XLA, XLA, "cpu")
    assert pair.sent.tolist() == [1.0, 1.0]


def test_save_writes_cpu_tensors(tmp_path):
    model = torch.nn.Linear(2, 2).to(XLA)
    xm.save(model.state_dict(), tmp_path / "model.pt")
    loaded = torch.load(tmp_path / "model.pt")
    assert {t.device.type for t in loaded.values()} == {"cpu"}
    torch.testing.assert_close(loaded["weight"], model.weight.detach().cpu())


def test_random_state_is_a_number_per_device():
    xm.set_rng_state(7)
    first = torch.rand(3, device=XLA)
    xm.set_rng_state(7, "xla:0")
    assert xm.get_rng_state() == 7
    assert torch.equal(first.cpu(), torch.rand(3, device=XLA).cpu())
    with xm.fork_rng():
        torch.rand(3, device=XLA)
    state = xm.get_rng_state()
    with xm.fork_rng():
        torch.rand(3, device=XLA)
    assert xm.get_rng_state() == state


def test_memory_info_of_every_era():
    info = xm.get_memory_info(XLA)
    assert 0 <= info["bytes_used"] <= info["bytes_limit"]
    assert info["kb_total"] == info["bytes_limit"] // 1024


def test_view_sharing_is_found():
    x = torch.ones(4, device=XLA)
    xm.check_view_sharing([x, torch.ones(4, device=XLA)])
    with pytest.raises(RuntimeError, match="sharing a view"):
        xm.check_view_sharing({"a": x, "b": x.view(2, 2)})


def test_rate_tracker_smooths(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("time.time", lambda: now[0])
    tracker = xm.RateTracker(smooth_factor=0.5)
    tracker.add(10)
    now[0] += 1
    assert tracker.rate() == 10
    tracker.add(30)
    now[0] += 1
    assert tracker.rate() == 20  # half of 30, half of 10
    assert tracker.global_rate() == 20


def test_step_lines_of_2019(capsys):
    log = xm.get_log_fn()
    log(xm.TrainStepMetrics(1, 2, 4, 100, 8, torch.tensor(0.5), 12.34, 4))
    log(xm.TestStepMetrics(0.25, 9, 10, 5.0, 4))
    assert capsys.readouterr().out == (
        "Train Epoch: 1 [80/800 (8%)]\tLoss: 0.500000\tSamples/sec: 12.3\n"
        "\nTest set: Average loss: 0.2500, Accuracy: 9/10 (90.00%), Samples/sec: 5.0\n\n"
    )


def test_stablehlo_of_pending_tensors():
    x = torch.ones(2, 2, device=XLA)
    assert "func.func @main" in xm.get_stablehlo([x @ x])
    assert xm.get_stablehlo_bytecode([x @ x]).startswith(b"ML\xefR")


def test_bridge_compiles_an_fx_graph():
    graph = torch.fx.symbolic_trace(lambda x: (torch.sin(x) + 1,))
    x = torch.randn(3)
    (result,) = dynamo_bridge.extract_compiled_graph(graph, [x])(x)
    torch.testing.assert_close(result, torch.sin(x) + 1)
    bare = torch.fx.symbolic_trace(lambda x: torch.sin(x) + 1)
    result = dynamo_bridge.extract_compiled_graph(bare, [x.to(XLA)])(x.to(XLA))
    torch.testing.assert_close(result.cpu(), torch.sin(x) + 1)


def test_2019_optimizer_step_is_the_barrier():
    import torch_xla_py.xla_model as old

    weight = torch.ones(2, device=old.xla_device(), requires_grad=True)
    weight.sum().backward()
    old.optimizer_step(torch.optim.SGD([weight], lr=1.0))
    assert not pending(weight)
    assert weight.tolist() == [0, 0]


@pytest.mark.parametrize("backend", ["xla", "openxla"])
def test_torch_compile_trains_tensors_of_the_device(backend):
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    model.to(XLA)
    x = torch.randn(5, 3).to(XLA)
    torch.compile(model, backend=backend)(x).square().sum().backward()
    compiled = [p.grad.cpu() for p in model.parameters() if p.grad is not None]
    model.zero_grad()
    model(x).square().sum().backward()
    lazy = [p.grad.cpu() for p in model.parameters() if p.grad is not None]
    assert len(compiled) == 4
    torch.testing.assert_close(compiled, lazy)
