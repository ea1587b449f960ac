"""Functions that PyTorch's `aot_compile` saves: what another process loads, and what it refuses."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.utils import counters

import xla_dynamo
from tests.backend.capture.aot_programs import switched
from xla_dynamo import versions

pytestmark = pytest.mark.usefixtures("aot_folder")

PROGRAM = """
import sys
import torch
from torch import nn
from torch._dynamo.utils import counters

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.second = nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 4)

    def forward(self, x):
        y = torch.dropout(self.norm(self.first(x)).relu(), 0.5, True)
        return self.second(y).square().mean()

torch.manual_seed(0)
model, x = Model(), torch.randn(3, 4)
file = sys.argv[2]
if sys.argv[1] == "save":
    compiled = torch.compile(model, backend="xla", fullgraph=True)
    saved = compiled.forward.aot_compile(((x,), {}))
    saved.save_compiled_function(file)
else:
    with open(file, "rb") as read:
        saved = torch.compiler.load_compiled_function(read)
torch.manual_seed(1)
loss = saved(model, x)
loss.backward()
print([loss.item(), *[p.grad.sum().item() for p in model.parameters()]])
import xla_dynamo
print(sum(counters["frames"].values()), "merge_equal" in xla_dynamo.passes())
"""


def in_a_process(file: Path, how: str) -> list[str]:
    command = [sys.executable, str(file), how, str(file.with_name("saved"))]
    done = subprocess.run(command, env=dict(os.environ), check=True, capture_output=True, text=True)
    return done.stdout.splitlines()


def test_another_process_loads_a_training_step_and_traces_nothing(tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    made = in_a_process(file, "save")
    assert made[1].endswith("True")
    assert in_a_process(file, "load") == [made[0], "0 False"]


def saved(function: Any, *arguments: Any, **options: Any) -> io.BytesIO:
    """What `function` is saved as, as a file."""
    compiled = torch.compile(function, backend="xla", fullgraph=True, options=options)
    with tempfile.NamedTemporaryFile() as file:
        compiled.aot_compile((arguments, {})).save_compiled_function(file.name)
        return io.BytesIO(Path(file.name).read_bytes())


def hypotenuse(x: Tensor, y: Tensor) -> Tensor:
    return (x * x + y * y).sqrt()


def factor(x: Tensor) -> Tensor:
    return torch.linalg.ldl_factor_ex(x + 1)[0]


GIVEN = torch.linspace(0, 1, 6), torch.linspace(-1, 1, 6)


def test_a_loaded_function_gives_what_eager_gives() -> None:
    loaded = torch.compiler.load_compiled_function(saved(hypotenuse, *GIVEN))
    torch.testing.assert_close(loaded(*GIVEN), hypotenuse(*GIVEN))


def test_other_sizes_are_refused_by_its_guards() -> None:
    loaded = torch.compiler.load_compiled_function(saved(hypotenuse, *GIVEN))
    with pytest.raises(RuntimeError, match="GuardManager check failed"):
        loaded(torch.ones(5), torch.ones(5))


def test_it_is_lowered_by_the_options_it_was_saved_with() -> None:
    file = saved(factor, torch.eye(3), fallback="cpu")
    with pytest.warns(xla_dynamo.FallbackWarning, match=r"test_made_for\.py:\d+"):
        results = torch.compiler.load_compiled_function(file)(torch.eye(3))
    torch.testing.assert_close(results, factor(torch.eye(3)))


def test_another_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    file = saved(hypotenuse, *GIVEN)
    usual = versions.installed
    other = {"xla_dynamo": "99.0"}
    monkeypatch.setattr(versions, "installed", lambda name: other.get(name) or usual(name))
    with pytest.raises(xla_dynamo.CompileError, match=r"saved for cpu by .* is cpu with 99\.0"):
        torch.compiler.load_compiled_function(file)


class Bias(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.ones(6))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda: x + self.bias, lambda: x - self.bias)


def test_what_cannot_be_kept_is_an_error_when_it_is_saved() -> None:
    compiled = torch.compile(Bias(), backend="xla", fullgraph=True)
    with pytest.raises(xla_dynamo.CompileError, match=r"cannot be saved.*control flow"):
        compiled.forward.aot_compile(((GIVEN[0],), {}))


def test_without_pytorchs_cache_nothing_is_saved() -> None:
    with switched(False), pytest.raises(xla_dynamo.CompileError, match="AUTOGRAD_CACHE=0"):
        saved(hypotenuse, *GIVEN)


def test_sizes_that_are_symbols_are_an_error_when_it_is_saved() -> None:
    compiled = torch.compile(hypotenuse, backend="xla", fullgraph=True, dynamic=True)
    with pytest.raises(xla_dynamo.CompileError, match="dynamic=False"):
        compiled.aot_compile((GIVEN, {}))


def test_a_usual_capture_beside_it_is_as_ever() -> None:
    saved(hypotenuse, *GIVEN)
    counters.clear()
    torch.compiler.reset()
    torch.testing.assert_close(torch.compile(hypotenuse, backend="xla")(*GIVEN), hypotenuse(*GIVEN))
    found = counters["aot_autograd"]
    assert (found["autograd_cache_hit"], found["autograd_cache_miss"]) == (0, 1)
