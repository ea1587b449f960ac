"""The environment of the tests, and a clean slate around each.

pyproject.toml turns FallbackWarning into an error: a test that wants one uses pytest.warns.
"""

from __future__ import annotations

import gc
import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

from tests import codegen

# Before jax is imported, and before xla_dynamo reads its settings (at the first compile).
# Subprocesses of the tests inherit it.
_CACHE = tempfile.mkdtemp(prefix="xla_dynamo_tests_")
os.environ["XLA_DYNAMO_CACHE_DIR"] = _CACHE
os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.path.join(_CACHE, "torch")
# Every test traces what it compiles; the fixture `aot_folder` turns it on.
os.environ.setdefault("TORCHINDUCTOR_AUTOGRAD_CACHE", "0")
os.environ.setdefault("XLA_DYNAMO_STRICT", "1")  # a bug in a rule is an error, not a fallback
os.environ.setdefault("XLA_DYNAMO_COMPILE_NOTICE", "0")  # on a busy machine some are long
os.environ.setdefault("JAX_PLATFORMS", "cpu")
codegen.make_quick()

import pytest  # noqa: E402
import torch  # noqa: E402

import xla_dynamo  # noqa: E402
from tests import quick_torch  # noqa: E402
from xla_dynamo.backend.options import Options  # noqa: E402

torch.set_num_threads(2)
# pytest adds handlers to loggers that do not propagate, and with any PyTorch prints every graph.
logging.getLogger("torch.__trace").propagate = True
gc.set_threshold(20_000, 10, 50)  # a compile makes so many objects that Python looked at them often
quick_torch.make_quick()  # but see compat/conftest.py for its collections


# Files whose tests take long, the longest first: no process should end with one, alone.
_LONG = (
    "operators/test_sweep.py",
    "operators/test_gradients.py",
    "operators/test_lazy.py",
    "fuzz/test_fuzz.py",
    "tests/test_tpu.py",
    "models/test_training.py",
    "legacy/test_seeds.py",
    "namespace/test_activation.py",
    "legacy/test_scripts.py",
    "recording/test_trace.py",
    "tests/test_docs.py",
    "tests/test_examples.py",
    "dynamo/test_keep_interpolate.py",
)


@pytest.hookimpl(tryfirst=True)  # before `-m` picks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    rules = [item for item in items if item.path.parent.name == "rules"]
    for item in {item.path: item for item in reversed(rules)}.values():
        item.add_marker("spine")  # one test of each family

    def place(item: pytest.Item) -> int:
        return next((i for i, name in enumerate(_LONG) if name in item.nodeid), len(_LONG))

    items.sort(key=place)


def pytest_unconfigure() -> None:
    shutil.rmtree(_CACHE, ignore_errors=True)


@pytest.fixture(autouse=True, scope="module")
def young_heap() -> None:
    """What is alive stays, unlooked at: a whole collection took 1.5 s late in a run."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def machine_code(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """See `codegen`."""
    if codegen.is_optimized(request.path):
        usual = Options.xla_overrides

        def overrides(self: Options, platform: str) -> dict[str, Any]:
            return (codegen.optimized() if platform == "cpu" else {}) | usual(self, platform)

        monkeypatch.setattr(Options, "xla_overrides", overrides)


@pytest.fixture(autouse=True)
def clean_slate() -> Iterator[None]:
    """Nothing compiled, nothing counted, nothing warned of, and the same random numbers."""
    torch.manual_seed(0)
    yield
    torch.compiler.reset()
    xla_dynamo.reset_metrics()
    layout = sys.modules.get("xla_dynamo.backend.executable.padded_layout")
    if layout is not None:  # the doors of the sweep and the fuzzer spoil padding, and leave it so
        layout.poison = False  # type: ignore[attr-defined]
