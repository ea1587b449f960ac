"""Settings from environment variables: legal values, and errors that list them."""

from __future__ import annotations

import pytest

from tests.programs import python
from xla_dynamo.config import from_environment
from xla_dynamo.errors import OptionError


def test_platforms_have_the_spellings_of_torch_xla_and_of_jax() -> None:
    assert from_environment({"PJRT_DEVICE": "TPU"}).platform == "tpu"
    assert from_environment({"PJRT_DEVICE": "GPU"}).platform == "cuda"
    both = {"PJRT_DEVICE": "CPU", "XLA_DYNAMO_PLATFORM": "tpu"}
    assert from_environment(both).platform == "tpu"


@pytest.mark.parametrize(("text", "strict"), [("", False), ("0", False), ("1", True)])
def test_strict_is_a_switch(text: str, strict: bool) -> None:
    assert from_environment({"XLA_DYNAMO_STRICT": text}).strict is strict


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("XLA_DYNAMO_STRICT", "yes", "'yes' is neither 0 nor 1"),
        ("XLA_DYNAMO_NUMERICS", "jax", "'jax' is neither 'eager' nor 'xla'"),
        ("XLA_DYNAMO_CPU_TENSORS", "yes", "'yes' is neither 'error' nor 'torch_xla'"),
        ("XLA_DYNAMO_MAX_EXECUTABLES", "0", "'0' is not a positive integer; unset it for 64"),
    ],
)
def test_wrong_values_are_errors(name: str, value: str, message: str) -> None:
    with pytest.raises(OptionError, match=f"{name}={message}"):
        from_environment({name: value})


def test_an_import_reads_nothing() -> None:
    """A script may set variables after it."""
    told = "from xla_dynamo.config import config; print(config.cache_info().currsize)"
    assert python(told, XLA_DYNAMO_NUMERICS="xla") == "0\n"
