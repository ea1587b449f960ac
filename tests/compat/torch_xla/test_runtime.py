"""torch_xla's top level, torch_xla.runtime and torch.xla on one host."""

from __future__ import annotations

import pytest
import torch
import torch_xla
import torch_xla.runtime as xr
from torch.utils.checkpoint import checkpoint
from torch_xla import _XLAC
from torch_xla._internal import tpu

import xla_dynamo
from tests.programs import python
from xla_dynamo.compat.execution import settings, sync
from xla_dynamo.compat.reporting import metrics_report
from xla_dynamo.compat.values.values import value_of
from xla_dynamo.config import config
from xla_dynamo.errors import NotAvailable

XLA = torch.device("xla", 0)


def mark_steps() -> int:
    return metrics_report.counter_value("MarkStep") or 0


def test_devices():
    assert torch_xla.device() == XLA
    assert torch_xla.device(0) == XLA
    assert torch_xla.devices() == [XLA]
    assert torch_xla.real_devices() == ["CPU:0"]
    assert torch_xla.device_count() == 1
    with pytest.raises(IndexError, match=r"Device index 5 out of range in \['xla:0'\]"):
        torch_xla.device(5)


def test_one_process():
    assert xr.world_size() == xr.process_count() == xr.local_process_count() == 1
    assert xr.global_ordinal() == xr.local_ordinal() == xr.process_index() == xr.host_index() == 0
    assert xr.global_device_count() == xr.local_device_count() == xr.addressable_device_count() == 1
    assert xr.global_runtime_device_count() == xr.addressable_runtime_device_count() == 1
    assert xr.device_type() == "CPU"
    assert xr.global_runtime_device_attributes() == [{"name": "CPU:0"}]
    assert xr.is_bf16_supported()
    assert xr.using_pjrt()
    assert (tpu.num_available_devices(), tpu.version(), tpu.task_id()) == (1, 0, None)


def test_platform_cannot_change_once_a_device_is_used():
    torch.ones(1, device=XLA)
    xr.set_device_type("CPU")
    with pytest.raises(RuntimeError, match="Can't change device type after XLA runtime is init"):
        xr.set_device_type("TPU")
    assert python(LOOKED_UP, PJRT_DEVICE="CPU").splitlines() == ["True", "CPU xla:0"]


LOOKED_UP = """
import torch_xla.core.xla_model as xm, torch_xla.runtime as xr
xr.set_device_type("TPU")
xr.set_device_type("CPU")  # nothing is up yet
xm.xla_device()  # no tensor, and yet the platform is fixed
try:
    xr.set_device_type("TPU")
except RuntimeError as error:
    print("this process runs on CPU" in str(error) and "PJRT_DEVICE" in str(error))
print(xr.device_type(), xm.xla_device())
"""


def test_sync_and_step_are_barriers():
    start = mark_steps()
    x = torch.ones(2, device=XLA) + 1
    torch_xla.sync(wait=True)
    assert value_of(x).array.is_ready()
    assert mark_steps() == start + 1
    with torch_xla.step():
        y = x + 1
    assert value_of(y).array is not None
    assert mark_steps() == start + 3


def test_step_ends_also_when_it_raises():
    start = mark_steps()
    with pytest.raises(ZeroDivisionError), torch_xla.step():
        raise ZeroDivisionError
    assert mark_steps() == start + 2


@pytest.mark.parametrize("make", [torch_xla.compile, lambda f: torch_xla.compile()(f)])
def test_compiled_function_is_a_step(make):
    double = make(lambda x: x * 2)
    start = mark_steps()
    y = double(torch.ones(2, device=XLA))
    assert value_of(y).array is not None
    assert mark_steps() == start + 2
    assert y.tolist() == [2, 2]


def test_full_graph_forbids_a_launch_inside():
    @torch_xla.compile(full_graph=True)
    def read(x):
        return x * (x + 1).sum().item()

    x = torch.ones(2, device=XLA)
    with pytest.raises(RuntimeError, match="Unexpected execution happens inside the compiled"):
        read(x)
    assert settings.launches_allowed()
    assert (x + 1).tolist() == [2, 2]


def test_number_of_graphs_can_be_limited():
    double = torch_xla.compile(lambda x: x * 2, max_different_graphs=1)
    assert double(torch.ones(3, device=XLA)).tolist() == [2, 2, 2]
    with pytest.raises(RuntimeError, match=r"per function exceeded: 1\n.*float32\[4\]"):
        double(torch.ones(4, device=XLA))
    assert double(torch.ones(3, device=XLA)).tolist() == [2, 2, 2]


def test_compile_options_reach_xla_and_are_checked_by_it():
    torch_xla.set_custom_compile_options({"xla_no_such_option": True})
    x = torch.ones(11, device=XLA) * 3
    try:
        with pytest.warns(xla_dynamo.FallbackWarning, match="xla_no_such_option"):
            assert x.tolist() == [3] * 11
    finally:
        torch_xla.set_custom_compile_options({})
    assert settings.options() == {}


def test_matmul_precision_is_an_option():
    from torch_xla import backends

    assert backends.get_mat_mul_precision() == "highest"
    backends.set_mat_mul_precision("default")
    try:
        assert settings.options() == {"matmul_precision": "medium"}
        assert backends.get_mat_mul_precision() == "default"
    finally:
        sync.set_option("matmul_precision", None)


def test_matmul_precision_on_a_tpu_is_its_own(monkeypatch):
    """What torch_xla gives, unless the script or PyTorch is told otherwise."""
    from torch_xla import backends

    from xla_dynamo.compat.execution import recompile_reason

    monkeypatch.setattr(settings, "default_platform", lambda: "tpu")
    assert backends.get_mat_mul_precision() == "default"
    assert recompile_reason.compile_options().matmul_precision == "medium"
    torch.set_float32_matmul_precision("high")
    try:
        assert backends.get_mat_mul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision("highest")
    backends.set_mat_mul_precision("highest")
    try:
        assert backends.get_mat_mul_precision() == "highest"
        assert recompile_reason.compile_options().matmul_precision == "highest"
    finally:
        sync.set_option("matmul_precision", None)


def test_launch_calls_the_function_here(monkeypatch):
    calls = []
    torch_xla.launch(lambda index, a: calls.append((index, a)), args=("a",))
    assert calls == [(0, "a")]
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(NotAvailable, match="WORLD_SIZE is 4, and this process is the only"):
        torch_xla.launch(calls.append)


def test_spmd_over_one_device(monkeypatch):
    monkeypatch.setenv("XLA_USE_SPMD", "")  # deleting what is not there would not be undone
    import torch_xla.distributed.spmd as xs

    assert not xr.is_spmd()
    xr.use_spmd()
    assert xr.is_spmd()
    mesh = xs.get_1d_mesh("data")
    assert xs.mark_sharding(torch.ones(2, device=XLA), mesh, ("data",)).tolist() == [1.0, 1.0]


def test_cache_folder_is_set_once(monkeypatch, tmp_path):
    monkeypatch.setattr(xr, "_cache_paths", [])
    monkeypatch.setenv("XLA_DYNAMO_CACHE_DIR", "0")
    xr.initialize_cache(str(tmp_path))
    assert config().cache_dir == tmp_path
    with pytest.raises(AssertionError, match="already been initialized"):
        xr.initialize_cache(str(tmp_path))
    monkeypatch.undo()
    config.cache_clear()


def test_torch_seeds_the_device():
    torch.manual_seed(3)
    first = torch.rand(4, device=XLA)
    state = _XLAC._xla_get_rng_seed()
    torch.manual_seed(3)
    assert torch.equal(first.cpu(), torch.rand(4, device=XLA).cpu())
    assert _XLAC._xla_get_rng_seed() == state
    torch_xla.manual_seed(5)
    assert _XLAC._xla_get_rng_seed() == 5


def test_fork_rng_knows_the_device():
    torch.manual_seed(0)
    with torch.random.fork_rng(devices=[0], device_type="xla"):
        inside = torch.rand(3, device=XLA)
    assert torch.equal(inside.cpu(), torch.rand(3, device=XLA).cpu())


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_checkpoint_draws_the_same_dropout_again(use_reentrant):
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Dropout(0.5)).to(XLA)
    x = torch.ones(8, 3, device=XLA, requires_grad=True)

    def gradient(forward):
        torch.manual_seed(1)
        model.zero_grad()
        forward(x).sum().backward()
        return model[0].weight.grad.cpu()

    plain = gradient(model)
    again = gradient(lambda x: checkpoint(model, x, use_reentrant=use_reentrant))
    torch.testing.assert_close(again, plain)


def test_optimizers_take_lists_of_parameters():
    weights = [torch.ones(2, device=XLA, requires_grad=True) for _ in range(5)]
    optimizer = torch.optim.SGD(weights, lr=1.0)
    torch.stack([w.sum() for w in weights]).sum().backward()
    before = metrics_report.counter_value("xla::_foreach_add_") or 0
    torch_xla.sync()
    optimizer.step()
    ops = [str(state.op.func) for state in value_of(weights[0]).home.state.path()]
    torch_xla.sync()
    assert before == 0
    assert len(ops) < len(weights)
    assert [w.tolist() for w in weights] == [[0, 0]] * 5


@pytest.mark.parametrize(
    ("cls", "arguments"),
    [(torch.optim.AdamW, {}), (torch.optim.Adam, {}), (torch.optim.SGD, {"momentum": 0.9})],
)
def test_fused_optimizers_match_eager_ones(cls, arguments):
    results = []
    for device in ("cpu", "xla"):
        weight = torch.linspace(-1, 1, 6).to(device).requires_grad_()
        optimizer = cls([weight], lr=0.1, fused=True, **arguments)
        for _ in range(3):
            optimizer.zero_grad()
            weight.pow(3).sum().backward()
            optimizer.step()
            torch_xla.sync()
        results.append(weight.detach().cpu())
    torch.testing.assert_close(results[1], results[0])


def test_fsdp_of_one_replica_trains_and_keeps_names():
    from torch_xla.distributed.fsdp import XlaFullyShardedDataParallel as FSDP
    from torch_xla.distributed.fsdp import checkpoint_module

    inner = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2))
    names = list(inner.state_dict())
    inner[0] = FSDP(checkpoint_module(inner[0]))
    model = FSDP(inner, compute_dtype=torch.bfloat16)
    none = model.clip_grad_norm_(1.0)  # there are no gradients yet
    assert (none.device, none.item()) == (XLA, 0)
    assert list(model.state_dict()) == names
    model.load_state_dict({k: torch.ones_like(v) for k, v in model.state_dict().items()})
    output = model(torch.ones(1, 3, device=XLA))
    assert output.dtype == torch.bfloat16
    assert output.float().tolist() == [[17, 17]]
    output.sum().backward()
    assert model.clip_grad_norm_(1.0).item() > 1
    assert all(p.grad is not None for p in model.parameters())


def test_fsdp_by_shardings_knows_what_it_wraps():
    import torch_xla.distributed.spmd as xs
    from torch_xla.experimental.spmd_fully_sharded_data_parallel import (
        SpmdFullyShardedDataParallel as FSDPv2,
    )

    inner = torch.nn.Linear(3, 2)
    model = FSDPv2(inner, mesh=xs.Mesh([0], (1,), ("fsdp",)))
    assert model._orig_module is inner
    assert {p.device for p in model._orig_module.parameters()} == {XLA}


def test_scan_and_loops_match_python():
    from torch_xla.experimental.fori_loop import fori_loop, while_loop
    from torch_xla.experimental.scan import scan

    xs = torch.tensor([[1.0, 2.0], [3.0, 4.0]], device=XLA, requires_grad=True)
    carry, ys = scan(lambda c, x: (c + x, c * x), torch.ones(2, device=XLA), xs)
    assert carry.tolist() == [5, 7]
    assert ys.tolist() == [[1, 2], [6, 12]]
    ys.sum().backward()
    assert xs.grad is not None
    assert xs.grad.tolist() == [[4, 5], [2, 3]]
    with pytest.raises(ValueError, match=r"a function of \(carry, x\), got 1000"):
        scan(1000, torch.ones(2, device=XLA), xs)  # type: ignore[arg-type]
    (total,) = fori_loop(0, 3, lambda v: v + 2, torch.zeros((), device=XLA))
    assert total.item() == 6
    (count,) = while_loop(lambda v: v < 5, lambda v: (v + 2,), (torch.zeros((), device=XLA),))
    assert count.item() == 6


def test_flash_attention_is_attention():
    from torch_xla.experimental.custom_kernel import flash_attention

    q, k, v = torch.randn(3, 2, 2, 5, 4).unbind()
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.5)
    found = flash_attention(q.to(XLA), k.to(XLA), v.to(XLA), causal=True, sm_scale=0.5)
    torch.testing.assert_close(found.cpu(), expected)


def test_barriers_of_the_extension_take_the_names_of_their_arguments():
    x = torch.ones(2, device=XLA)
    for barrier in (
        lambda: _XLAC._xla_sync_multi([x], devices=[], wait=True, sync_xla_data=False),
        lambda: _XLAC._xla_step_marker(device=str(XLA), devices=[], wait=True),
        lambda: _XLAC._xla_sync_live_tensors(device=str(XLA), devices=[], wait=True),
        lambda: _XLAC._xla_warm_up_cache([x], devices=[]),
    ):
        x.add_(1)
        assert value_of(x).array is None
        barrier()
        assert value_of(x).array is not None
    assert x.tolist() == [5, 5]


@pytest.mark.parametrize("length", [3, 7, 12])
def test_repeats_are_cut_or_filled_with_the_last_value(length):
    from torch_xla.experimental.custom_kernel import repeat_with_fixed_output_size

    x, repeats = torch.tensor([5.0, 6.0, 7.0, 8.0]), torch.tensor([2, 0, 4, 1])
    whole = torch.cat([torch.repeat_interleave(x, repeats), torch.full((5,), 8.0)])
    found = repeat_with_fixed_output_size(x.to(XLA), repeats.to(XLA), length)
    assert found.tolist() == whole[:length].tolist()


def test_checkpoint_manager_keeps_the_last(tmp_path):
    from torch_xla.experimental.distributed_checkpoint import CheckpointManager

    manager = CheckpointManager(
        str(tmp_path), save_interval=2, max_to_keep=2, chkpt_on_preemption=False
    )
    weight = torch.zeros(2, device=XLA)
    for step in range(7):
        weight += 1
        assert manager.save_async(step, {"w": weight}) is (step % 2 == 0)
        manager.join()
    assert manager.all_steps() == [4, 6]
    manager.restore(4, {"w": weight})
    assert weight.tolist() == [5, 5]
    # The first to go is the one that was written first, not that of the lowest step.
    assert manager.save(2, {"w": weight})
    assert manager.all_steps() == [2, 6]


def test_jax_functions_take_tensors_of_the_device():
    import jax.numpy as jnp
    from torch_xla.core.xla_builder import call_jax

    x = torch.ones(2, 3, device=XLA)
    assert call_jax(lambda a, b: jnp.dot(a, b.T), (x, x + 1)).tolist() == [[6, 6], [6, 6]]


def test_loaders_have_what_the_wrapped_loader_has():
    from torch_xla.distributed.parallel_loader import MpDeviceLoader

    wrapped = MpDeviceLoader(torch.utils.data.DataLoader([1, 2, 3], batch_size=2), XLA)
    assert (wrapped.dataset, wrapped.batch_size, len(wrapped)) == ([1, 2, 3], 2, 2)
    with pytest.raises(AttributeError, match="nothing"):
        _ = wrapped.nothing
