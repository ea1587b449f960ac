"""AOTAutograd's cache: what a second process takes from it, and when it does not."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.utils import counters
from torch._functorch import config as functorch_config
from torch.utils.checkpoint import checkpoint

import xla_dynamo
from xla_dynamo.backend.capture import aot_cache

Program = Callable[[], Any]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache of the test's own: the suite's environment turns it off."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "torch"))
    monkeypatch.setenv("TORCHINDUCTOR_AUTOGRAD_CACHE", "1")  # of child processes
    with switched(True):
        yield tmp_path / "torch" / "aotautograd"


@contextlib.contextmanager
def switched(on: bool) -> Iterator[None]:
    """As TORCHINDUCTOR_AUTOGRAD_CACHE does, which PyTorch reads when it is imported."""
    setting = functorch_config._config["enable_autograd_cache"]  # pyright: ignore
    before, setting.env_value_force = setting.env_value_force, on
    try:
        yield
    finally:
        setting.env_value_force = before


def outcome(program: Program) -> tuple[Any, dict[str, int]]:
    """What a program gives in what is like a new process, and what the cache did."""
    torch.compiler.reset()
    counters.clear()
    torch.manual_seed(3)
    result = program()
    names = ("hit", "miss", "saved", "bypass")
    return result, {n: counters["aot_autograd"][f"autograd_cache_{n}"] for n in names}


def assert_bitwise(actual: Any, expected: Any) -> None:
    torch.testing.assert_close(actual, expected, rtol=0, atol=0, equal_nan=True)


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


def scaled(by: float, **how: Any) -> Program:
    x = torch.linspace(-1, 1, 8)
    return lambda: torch.compile(lambda x: torch.sin(x * by), backend="xla", **how)(x)


def of_argument(x: Tensor) -> Program:
    return lambda: torch.compile(lambda x: (x + 1) * x, backend="xla")(x).sum()


def cast_to(dtype: torch.dtype) -> Program:
    def program() -> Tensor:
        with torch.autocast("cpu", dtype):
            return torch.compile(lambda x: x @ x, backend="xla")(torch.eye(4) / 3)

    return program


def flash(on: bool) -> Program:
    def program() -> Tensor:
        q = torch.randn(1, 2, 4, 8)
        attention = torch.compile(nn.functional.scaled_dot_product_attention, backend="xla")
        before = torch.backends.cuda.flash_sdp_enabled()
        torch.backends.cuda.enable_flash_sdp(on)
        try:
            return attention(q, q, q)
        finally:
            torch.backends.cuda.enable_flash_sdp(before)

    return program


SIXTEEN = torch.linspace(0, 1, 16)
DIFFERENT: dict[str, tuple[Program, Program]] = {
    "a constant": (scaled(2), scaled(3)),
    "an option": (scaled(2), scaled(2, options={"numerics": "xla"})),
    "a gradient": (of_argument(torch.ones(4)), of_argument(torch.ones(4, requires_grad=True))),
    "a dtype": (of_argument(torch.ones(4)), of_argument(torch.ones(4, dtype=torch.float64))),
    "a size": (of_argument(torch.ones(4)), of_argument(torch.ones(5))),
    "strides": (of_argument(torch.ones(3, 4)), of_argument(torch.ones(4, 3).t())),
    "memory": (of_argument(SIXTEEN[:8]), of_argument(SIXTEEN[4:12])),
    "autocast": (cast_to(torch.bfloat16), cast_to(torch.float16)),
    "a switch of PyTorch's": (flash(True), flash(False)),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_what_differs_is_not_hit(name: str) -> None:
    first, second = DIFFERENT[name]
    outcome(first)
    result, counts = outcome(second)
    assert counts == {"hit": 0, "miss": 1, "saved": 1, "bypass": 0}
    with switched(False):
        expected, _ = outcome(second)
    assert_bitwise(result, expected)


class Squares(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
        return grad * 7


@torch.library.custom_op("xla_dynamo_test::thrice", mutates_args=())
def thrice(x: Tensor) -> Tensor:
    return x * 3


thrice.register_fake(lambda x: torch.empty_like(x))


def compiled_call(function: Callable[..., Any], *arguments: Any, **how: Any) -> Program:
    return lambda: torch.compile(function, backend="xla", **how)(*arguments)


DECLINED: dict[str, Program] = {
    "sizes that are symbols": compiled_call(torch.sin, torch.ones(4), dynamic=True),
    "arguments that share memory": compiled_call(torch.add, SIXTEEN[:8], SIXTEEN[8:]),
    "a function of autograd's": compiled_call(Squares.apply, torch.ones(4, requires_grad=True)),
    "control flow": compiled_call(
        lambda x: torch.cond(x.sum() > 3, torch.sin, torch.cos, (x,)), torch.ones(4)
    ),
    "no disk cache": compiled_call(torch.sin, torch.ones(4), options={"disk_cache": False}),
}


@pytest.mark.parametrize("name", DECLINED)
@pytest.mark.filterwarnings("ignore::xla_dynamo.FallbackWarning")
def test_what_no_key_tells_apart_is_not_kept(name: str, folder: Path) -> None:
    results = [outcome(DECLINED[name]) for _ in range(2)]
    assert not any(any(counts.values()) for _, counts in results)
    assert_bitwise(results[0][0], results[1][0])
    assert not folder.exists() or not list(folder.iterdir())


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


@pytest.mark.filterwarnings("ignore::xla_dynamo.FallbackWarning")
def test_an_op_of_the_users_is_not_kept(folder: Path) -> None:
    _, counts = outcome(compiled_call(lambda x: thrice(x) + 1, torch.ones(4)))
    assert not any(counts.values())
    assert not folder.exists() or not list(folder.iterdir())


def test_stages_are_shown_of_all_passes() -> None:
    outcome(scaled(2))
    with xla_dynamo.capture() as captured:
        _, counts = outcome(scaled(2))
    assert not any(counts.values())
    assert captured


def test_a_damaged_entry_is_a_miss(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    expected, _ = outcome(scaled(2))
    (entry,) = [path for path in folder.rglob("*") if path.is_file()]
    whole = entry.read_bytes()
    entry.write_bytes(whole[: len(whole) // 2])
    result, counts = outcome(scaled(2))
    assert counts["hit"] == 0
    assert_bitwise(result, expected)


def test_a_graph_that_is_damaged_is_a_miss(folder: Path) -> None:
    expected, _ = outcome(scaled(2))
    (entry,) = [path for path in folder.rglob("*") if path.is_file()]
    whole = entry.read_bytes()
    at = whole.index(b"_data") + 40  # within the compressed graph
    entry.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    result, counts = outcome(scaled(2))
    assert counts["hit"] == 0
    assert_bitwise(result, expected)


def test_a_folder_that_others_may_write_to_is_not_used(folder: Path) -> None:
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    _, counts = outcome(scaled(2))
    assert not any(counts.values())
    assert not list(folder.iterdir())


def test_a_folder_that_cannot_be_made_is_not_used(folder: Path) -> None:
    folder.parent.mkdir()
    folder.touch()
    result, counts = outcome(scaled(2))
    assert not any(counts.values())
    assert_bitwise(result, scaled(2)())


def test_a_link_to_another_folder_is_not_used(folder: Path, tmp_path: Path) -> None:
    folder.parent.mkdir()
    (tmp_path / "elsewhere").mkdir()
    folder.symlink_to(tmp_path / "elsewhere")
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
