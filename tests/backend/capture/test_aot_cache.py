"""What a second process takes from AOTAutograd's cache, and what it makes of damage."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._functorch._aot_autograd import autograd_cache
from torch.utils.checkpoint import checkpoint

import xla_dynamo
from xla_dynamo.backend.capture import aot_cache

from .aot_programs import Program, assert_bitwise, outcome, scaled, switched

pytestmark = pytest.mark.usefixtures("aot_folder")


def trained(make: Callable[[], nn.Module], *shape: int, **how: Any) -> Program:
    """A program that trains a model for two steps, and returns all that came of it."""

    def program() -> list[Tensor]:
        model = make()
        compiled = torch.compile(model, backend="xla", **how)
        found = []
        for _ in range(2):
            x = torch.randn(*shape, requires_grad=True)
            results = compiled(x)
            results = results if isinstance(results, tuple) else (results,)
            sum(each.float().square().mean() for each in results).backward()  # type: ignore[union-attr]
            assert x.grad is not None
            found += [*(each.detach().clone() for each in results), x.grad]
        return [*found, *[p.grad for p in model.parameters()], *model.buffers()]  # type: ignore[list-item]

    return program


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3))


class Convnet(nn.Module):
    """Statistics that change, and results that are views of one another."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = torch.relu(self.norm(self.convolution(x)))
        return y, y.flatten(1)[:, 2:]


def transformer() -> nn.Module:
    return nn.TransformerEncoderLayer(8, 2, 16, dropout=0.25, batch_first=True)


class Checkpointed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        scale = torch.tensor([0.5, 2.0, 1.0, 1.0, 3.0, 0.25])  # a constant of the graph
        return self.second(checkpoint(lambda y: torch.tanh(self.first(y)), x * scale))  # type: ignore[arg-type]


def mixed_precision() -> list[Tensor]:
    model = mlp()
    with torch.autocast("cpu", torch.bfloat16):
        result = torch.compile(model, backend="xla")(torch.randn(4, 6))
    result.float().sum().backward()
    return [result, *[p.grad for p in model.parameters()]]  # type: ignore[list-item]


def inference() -> list[Tensor]:
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)).eval()
    with torch.no_grad():
        return [torch.compile(model, backend="xla")(torch.randn(4, 6))]


def changes_its_argument() -> list[Tensor]:
    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        x.mul_(2)
        return x.view(-1)[1:], x.sum()

    x = torch.randn(3, 4)
    view, total = torch.compile(function, backend="xla")(x)
    assert view._base is x or view.untyped_storage()._cdata == x.untyped_storage()._cdata
    return [x, view, total]


PROGRAMS: dict[str, Program] = {
    "mlp": trained(mlp, 4, 6),
    "convnet": trained(Convnet, 2, 3, 6, 6),
    "transformer": trained(transformer, 2, 5, 8),
    "checkpoint": trained(Checkpointed, 4, 6),
    "autocast": mixed_precision,
    "inference": inference,
    "mutation": changes_its_argument,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_hit_gives_what_a_miss_gave(name: str) -> None:
    program = PROGRAMS[name]
    with switched(False):
        expected, without = outcome(program)
    assert not any(without.values())
    cold, first = outcome(program)
    assert first == {"hit": 0, "miss": 1, "saved": 1, "bypass": 0}
    warm, second = outcome(program)
    assert second == {"hit": 1, "miss": 0, "saved": 0, "bypass": 0}
    assert_bitwise(cold, expected)
    assert_bitwise(warm, expected)


def test_a_hit_draws_new_random_numbers() -> None:
    def program() -> list[Tensor]:
        compiled = torch.compile(nn.Dropout(0.5), backend="xla")
        return [compiled(torch.ones(64)) for _ in range(2)]

    cold, _ = outcome(program)
    (first, second), counts = outcome(program)
    assert counts["hit"] == 1
    assert not torch.equal(first, second)
    assert_bitwise([first, second], cold)


def test_backward_runs_twice_if_asked_to() -> None:
    def program() -> Tensor:
        x = torch.ones(4, requires_grad=True)
        total = torch.compile(lambda x: (x.sin() * x).sum(), backend="xla")(x)
        total.backward(retain_graph=True)
        total.backward()
        assert x.grad is not None
        return x.grad

    cold, _ = outcome(program)
    warm, counts = outcome(program)
    assert counts["hit"] == 1
    assert_bitwise(warm, cold)


def test_no_pass_and_no_trace_runs_after_a_hit() -> None:
    program = trained(mlp, 4, 6)
    outcome(program)
    xla_dynamo.reset_metrics()
    _, counts = outcome(program)
    assert counts["hit"] == 1
    assert "functionalize_rng" not in xla_dynamo.passes()
    assert "lift_rng_keys" in xla_dynamo.passes()


def test_an_op_that_is_refused_is_the_same_error_after_a_hit() -> None:
    def program() -> str:
        factor = torch.compile(
            lambda x: torch.linalg.ldl_factor_ex(x + 1)[0],
            backend="xla",
            options={"fallback": "error"},
        )
        with pytest.raises(xla_dynamo.UnsupportedOp, match=r"test_aot_cache\.py:\d+") as raised:
            factor(torch.eye(3))
        return str(raised.value).partition("\n")[0]

    cold, _ = outcome(program)
    warm, counts = outcome(program)
    assert counts["hit"] == 1
    assert warm == cold


def test_other_captures_have_the_keys_that_they_always_had() -> None:
    """Our part is in PyTorch's keys only while we capture."""
    details = autograd_cache.AOTAutogradCacheDetails._init_fx_graph_hash_details  # pyright: ignore
    outcome(PROGRAMS["mlp"])
    assert autograd_cache.AOTAutogradCacheDetails._init_fx_graph_hash_details is details  # pyright: ignore


def test_a_damaged_entry_is_a_miss(aot_folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    expected, _ = outcome(scaled(2))
    (entry,) = [path for path in aot_folder.rglob("*") if path.is_file()]
    whole = entry.read_bytes()
    entry.write_bytes(whole[: len(whole) // 2])
    result, counts = outcome(scaled(2))
    assert counts["hit"] == 0
    assert_bitwise(result, expected)


def test_a_graph_that_is_damaged_is_a_miss(aot_folder: Path) -> None:
    expected, _ = outcome(scaled(2))
    (entry,) = [path for path in aot_folder.rglob("*") if path.is_file()]
    whole = entry.read_bytes()
    at = whole.index(b"_data") + 40  # within the compressed graph
    entry.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    result, counts = outcome(scaled(2))
    assert counts["hit"] == 0
    assert_bitwise(result, expected)


def test_a_folder_that_others_may_write_to_is_not_used(aot_folder: Path) -> None:
    aot_folder.mkdir(parents=True)
    aot_folder.chmod(0o777)
    _, counts = outcome(scaled(2))
    assert not any(counts.values())
    assert not list(aot_folder.iterdir())


def test_a_folder_that_cannot_be_made_is_not_used(aot_folder: Path) -> None:
    aot_folder.parent.mkdir()
    aot_folder.touch()
    result, counts = outcome(scaled(2))
    assert not any(counts.values())
    assert_bitwise(result, scaled(2)())


def test_a_link_to_another_folder_is_not_used(aot_folder: Path, tmp_path: Path) -> None:
    aot_folder.parent.mkdir()
    (tmp_path / "elsewhere").mkdir()
    aot_folder.symlink_to(tmp_path / "elsewhere")
    _, counts = outcome(scaled(2))
    assert not any(counts.values())


def test_a_pytorch_that_was_not_tested_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__version__", "2.99.0+cpu")
    aot_cache._is_there.cache_clear()
    try:
        _, counts = outcome(scaled(2))
    finally:
        aot_cache._is_there.cache_clear()
    assert not any(counts.values())


PROGRAM = """
import sys, warnings
import torch
from torch import nn
from torch._dynamo.utils import counters

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        y = torch.dropout(self.layer(x), 0.5, True)
        return torch.linalg.ldl_factor_ex(y @ y.t() + 9 * torch.eye(4))[0]

torch.manual_seed(int(sys.argv[1]))
model = Model()
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    with torch.no_grad():
        result = torch.compile(model, backend="xla")(torch.randn(4, 4))
print(result.tolist())
print(counters["aot_autograd"]["autograd_cache_hit"])
print([w.filename + str(w.message) for w in caught if "ldl" in str(w.message)])
"""


def in_a_process(file: Path, cache: str, seed: int = 0) -> list[str]:
    own = {"XLA_DYNAMO_CACHE_DIR": cache, "TORCHINDUCTOR_CACHE_DIR": str(file.parent / "torch")}
    command = [sys.executable, str(file), str(seed)]
    done = subprocess.run(
        command, env={**os.environ, **own}, check=True, capture_output=True, text=True
    )
    return done.stdout.splitlines()


def test_another_process_hits_and_names_the_lines_of_the_file_as_it_is(tmp_path: Path) -> None:
    file, disk = tmp_path / "program.py", str(tmp_path / "disk")
    file.write_text(PROGRAM)
    cold = in_a_process(file, disk)
    assert cold[1] == "0"
    assert "program.py:14" in cold[2]
    file.write_text("# one line more\n" + PROGRAM)
    warm = in_a_process(file, disk)
    assert warm[1] == "1"
    assert warm[0] == cold[0]
    assert "program.py:15" in warm[2]
    assert "program.py:14" not in warm[2]
    assert in_a_process(file, disk, seed=1)[0] != cold[0]


def test_without_a_disk_cache_there_are_no_files(tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    in_a_process(file, "0")
    assert not (tmp_path / "torch" / "aotautograd").exists()
