"""Keys that are known before lowering, and what they lead to on disk."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import jax
import numpy as np
import pytest
import torch

import xla_dynamo
from xla_dynamo.backend import options as compile_options
from xla_dynamo.backend.executable import known
from xla_dynamo.backend.executable.request import Request
from xla_dynamo.backend.lowering.registry import RULES, Rule
from xla_dynamo.backend.passes.contract import WayIn
from xla_dynamo.backend.runtime import cache, pjrt, transfers


def test_surroundings_are_in_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    device, options = pjrt.device("cpu"), compile_options.parse(None, None)
    keys = [known.key_of(["text"], options, device)]
    assert keys == [known.key_of(["text"], options, device)]
    for changed in (
        {"numerics": "xla"},
        {"matmul_precision": "medium"},
        {"cpu_kernels": "xla"},
        {"compiler_options": {"xla_cpu_enable_fast_math": True}},
    ):
        keys.append(known.key_of(["text"], dataclasses.replace(options, **changed), device))
    keys.append(known.key_of(["other text"], options, device))
    for module, name, value in (
        (known, "_code", lambda: "another version"),
        (known.jax_adapter, "settings", lambda: "other settings"),
        (torch, "get_default_dtype", lambda: torch.float64),
        (pjrt, "describe", lambda device: "another device"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(module, name, value)
            keys.append(known.key_of(["text"], options, device))
    monkeypatch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=2")
    keys.append(known.key_of(["text"], options, device))
    assert None not in keys
    assert len(set(keys)) == len(keys)


def test_there_is_no_key_where_none_would_tell_programs_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    device, options = pjrt.device("cpu"), compile_options.parse(None, None)
    assert known.key_of([], dataclasses.replace(options, disk_cache=False), device) is None
    with xla_dynamo.capture():
        assert known.key_of([], options, device) is None
    monkeypatch.setitem(RULES, "an op of the user's", Rule(lambda x: x))  # of this module
    assert known.key_of([], options, device) is None


def test_what_was_remembered_is_found_and_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known, "_disk", lambda: cache.DiskCache(tmp_path, 2**30))
    device = pjrt.device("cpu")
    executable = doubling(device)
    known._disk().put("e" * 64, executable.serialize())
    signature = [((3,), np.dtype("bfloat16"))]
    executable.origin = pjrt.Origin("e" * 64, signature, signature, ("bfloat16[3]",), 1)
    key = "a" * 64
    assert known.find(key) is None
    known.remember(key, [executable, executable], {"of": ["the way in"]})
    found = known.find(key)
    assert found is not None
    assert found.details == {"of": ["the way in"]}
    asked = Request(
        "a name", "a reason", frozenset(), 0, compile_options.parse(None, None), WayIn.LAZY
    )
    program, other = found.programs
    assert program == other
    loaded = known.load(program, asked, device, "train.py:3")
    assert loaded is not None
    assert loaded.origin == executable.origin
    (result,) = loaded(transfers.to_array(torch.ones(3, dtype=torch.bfloat16), device))
    assert transfers.download(result).tolist() == [2, 2, 2]
    (record,) = xla_dynamo.compiles()
    assert (record.graph, record.from_disk, record.location) == ("a name", True, "train.py:3")
    (tmp_path / ("e" * 64)).unlink()
    assert known.load(program, asked, device, "train.py:3") is None


def doubling(device: pjrt.Device) -> pjrt.Executable:
    x = np.ones(3, np.dtype("bfloat16"))
    module = jax.jit(lambda x: x + x).lower(x).compiler_ir("stablehlo")
    signature = [((3,), np.dtype("bfloat16"))]
    return pjrt.compile(module, device, signature, signature, {})


def test_an_executable_that_is_not_on_disk_is_not_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known, "_disk", lambda: cache.DiskCache(tmp_path, 2**30))
    known.remember("a" * 64, [doubling(pjrt.device("cpu"))], None)
    assert known.find("a" * 64) is None
