"""Which test files of a torch_xla checkout are run, and what of the environment they ask for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

# In the order of the record. What a TPU or several devices make of spmd/ is not looked for here.
PATTERNS = (
    "test_operations.py",
    "dynamo/test_*.py",
    "test_metrics.py",
    "test_devices.py",
    "test_input_output_aliases.py",
    "test_inplace_update.py",
    "scan/test_*.py",
    "test_gradient_accumulation.py",
    "test_gru.py",
    "stablehlo/test_*.py",
    "pjrt/test_*.py",
    "eager/test_*.py",
    "spmd/test_*.py",
)
# Scripts that train on a data set, or that hold no tests by the names of tests.
LEFT_OUT = frozenset(
    {
        "dynamo/test_traceable_collectives.py",
        "eager/test_eager_all_reduce_in_place.py",
        "pjrt/test_train_hf_transformer.py",
        "spmd/test_sharding_strategies.py",
        "spmd/test_train_spmd_imagenet.py",
        "spmd/test_xla_sharding_base.py",
    }
)
# As the checkout's own run_tests.sh sets it.
ENVIRONMENT = {
    "PJRT_DEVICE": "CPU",
    "PYTORCH_TEST_WITH_SLOW": "1",
    "XLA_DYNAMO_CACHE_DIR": "0",
}
# Tests that take longer than others may: 14 TFLOP of matrix products.
SECONDS = {"spmd/test_train_spmd_linear_model.py": 1200.0}
TOO_LONG = 1  # the exit code of a process whose test took longer: faulthandler's
_HLO_DEBUG = {"XLA_IR_DEBUG": "1", "XLA_HLO_DEBUG": "1"}
_SAVE = {"XLA_SAVE_TENSORS_FILE": "save.txt", "XLA_SAVE_TENSORS_FMT": "text"}
_SAVE_HLO = _SAVE | {"XLA_SAVE_TENSORS_FMT": "hlo"}
OF_FILES: Mapping[str, Mapping[str, str]] = {
    "dynamo/test_dynamo_graph_dump.py": _SAVE,
    "scan/test_scan_debug.py": _HLO_DEBUG,
    "spmd/test_spmd_graph_dump.py": _SAVE,
    "spmd/test_spmd_lowering_context.py": _SAVE_HLO,
    "stablehlo/test_stablehlo_inference.py": _HLO_DEBUG,
    "stablehlo/test_stablehlo_save_load.py": _HLO_DEBUG,
}


@dataclass(frozen=True)
class Request:
    """A file of the checkout to be run.

    out: where its rows go.
    seconds: that a test may take.
    real: whether on torch_xla itself.
    """

    checkout: str
    file: str
    out: str
    seconds: float
    real: bool = False


def files_of(checkout: Path) -> list[str]:
    """The files, named from the checkout's folder `test`.

    Raises:
        FileNotFoundError: `checkout` is not one of torch_xla.
    """
    tests = checkout / "test"
    found = [str(path.relative_to(tests)) for glob in PATTERNS for path in sorted(tests.glob(glob))]
    if not found:
        raise FileNotFoundError(f"{tests} holds no test files of torch_xla")
    return [name for name in found if name not in LEFT_OUT]
