"""torch.compile's options and modes: what is legal, what is filled in, and the errors."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from xla_dynamo.backend import options
from xla_dynamo.backend.buckets import Buckets
from xla_dynamo.backend.options import Options, parse
from xla_dynamo.errors import OptionError

pytestmark = pytest.mark.spine


@pytest.fixture(autouse=True)
def settings(monkeypatch: pytest.MonkeyPatch) -> None:
    found = SimpleNamespace(
        max_executables=5,
        numerics="xla",
        cpu_kernels="xla",
        attention="kernel",
        random_bits="rbg",
        trial_compile="never",
        bucket="64",
    )
    monkeypatch.setattr(options, "config", lambda: found)


def test_settings_of_pytorch_and_of_the_environment_are_filled_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: "medium")
    monkeypatch.setattr(torch, "are_deterministic_algorithms_enabled", lambda: True)
    parsed = parse(None, None)
    assert parsed == Options(
        matmul_precision="medium",
        numerics="xla",
        cpu_kernels="xla",
        attention="kernel",
        random_bits="rbg",
        trial_compile="never",
        deterministic=True,
        max_executables=5,
        bucket=Buckets(64),
        compiler_options={},
    )


def test_what_is_given_goes_before_settings() -> None:
    given = {
        "platform": "tpu",
        "fallback": "error",
        "matmul_precision": "high",
        "convolution_precision": "medium",
        "numerics": "eager",
        "cpu_kernels": "torch",
        "attention": "xla",
        "random_bits": "threefry",
        "trial_compile": "always",
        "deterministic": True,
        "disk_cache": False,
        "bucket": Buckets(8),
        "max_executables": 2,
        "compiler_options": {"xla_x": 1},
    }
    assert parse(given, "max-autotune") == Options(**given)


def test_options_are_those_of_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    compiler_options = {"xla_x": 1}
    parsed = parse({"compiler_options": compiler_options}, None)
    compiler_options["xla_x"] = 2
    assert parsed.compiler_options == {"xla_x": 1}
    with pytest.raises(TypeError):
        parsed.compiler_options["xla_x"] = 3  # type: ignore[index]


ERRORS = {
    r"options\['falback'\] is unknown .* Did you mean 'fallback'\? Legal: platform,": {
        "falback": "cpu"
    },
    r"options\['zzz'\] is unknown to backend 'xla'\. Legal: platform, fallback,": {"zzz": 1},
    r"options\['fallback'\]='gpu' is not legal; legal: 'cpu', 'error'\.": {"fallback": "gpu"},
    r"'low' is not legal; legal: 'highest', 'high', 'medium'": {"matmul_precision": "low"},
    r"options\['numerics'\]='jax' is not legal; legal: 'eager', 'xla'": {"numerics": "jax"},
    r"options\['cpu_kernels'\]='mkl' is not legal; legal: 'torch', 'xla'": {"cpu_kernels": "mkl"},
    r"'trial_compile'\]=True is not legal; legal: 'unproved', 'always', 'never'": {
        "trial_compile": True
    },
    r"options\['disk_cache'\]='no' is not legal; legal: True, False": {"disk_cache": "no"},
    r"options\['deterministic'\]=2 is not legal": {"deterministic": 2},
    r"options\['bucket'\]='two' is not legal; legal: 'powers_of_two'": {"bucket": "two"},
    r"options\['max_executables'\]=0 is not >= 1": {"max_executables": 0},
    r"options\['max_executables'\]='many' is not >= 1": {"max_executables": "many"},
}


@pytest.mark.parametrize("text", ERRORS)
def test_errors_say_what_is_legal(text: str) -> None:
    with pytest.raises(OptionError, match=text):
        parse(ERRORS[text], None)


def test_modes() -> None:
    assert parse(None, "default") == parse(None, None) == parse({}, "reduce-overhead")
    with pytest.raises(OptionError, match="mode='fast' is unknown to backend 'xla'; legal: defau"):
        parse(None, "fast")


def test_deterministic_kernels_are_asked_of_gpus_only() -> None:
    given = Options(deterministic=True, compiler_options={"xla_x": 1})
    assert given.xla_overrides("cpu") == {"xla_x": 1}
    assert given.xla_overrides("cuda") == {"xla_x": 1, "xla_gpu_deterministic_ops": True}
    chosen = Options(deterministic=True, compiler_options={"xla_gpu_deterministic_ops": False})
    assert chosen.xla_overrides("cuda") == {"xla_gpu_deterministic_ops": False}
    assert Options().xla_overrides("cuda") == {}


def test_convolutions_on_a_gpu_are_as_precise_as_pytorchs(monkeypatch: pytest.MonkeyPatch) -> None:
    def on(platform: str, **given: str) -> str:
        return options.convolution_precision(parse(given, None), platform)

    assert on("cuda") == "medium"  # TF32
    assert on("cuda", matmul_precision="highest") == "highest"
    assert on("cuda", matmul_precision="high", convolution_precision="medium") == "medium"
    assert on("cpu") == on("tpu") == torch.get_float32_matmul_precision()
    for setting, precision in (("ieee", "highest"), ("none", "highest"), ("tf32", "medium")):
        given = SimpleNamespace(fp32_precision=setting)
        monkeypatch.setattr("torch.backends.cudnn.conv", given)
        assert on("cuda") == precision
