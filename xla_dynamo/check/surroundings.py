"""What stands around torch_xla's names in a script: variables, other devices, steps that wait.

The tables say what is sure from the text alone.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from .findings import Finding, State, Verdict
from .names import constant
from .scan import Scan

_XRT = "It was XRT's, torch_xla's runtime before 2.1; nothing reads it."
_TPU = "PJRT_DEVICE=TPU chooses the TPU of this host"
_EAGER = "torch_xla.experimental.eager_mode(True) runs each op when it is called"
_NO = State.NO_EFFECT

# Environment variables that torch_xla reads and nothing here does; the others work.
VARIABLES = {
    "XRT_TPU_CONFIG": Verdict(_NO, _XRT, _TPU),
    "XRT_DEVICE_MAP": Verdict(_NO, _XRT, "PJRT_DEVICE=CPU, and CPU_NUM_DEVICES for several"),
    "XRT_WORKERS": Verdict(_NO, _XRT, "PJRT_DEVICE=CPU, and CPU_NUM_DEVICES for several"),
    "XRT_MESH_SERVICE_ADDRESS": Verdict(_NO, _XRT, "torchrun sets MASTER_ADDR and MASTER_PORT"),
    "XRT_SHARD_WORLD_SIZE": Verdict(_NO, _XRT, "torchrun and xmp.spawn say how many replicas"),
    "XRT_SHARD_ORDINAL": Verdict(_NO, _XRT, "torchrun and xmp.spawn say which replica"),
    "GPU_NUM_DEVICES": Verdict(
        _NO, "A GPU is one device here.", "PJRT_DEVICE=CUDA chooses it; CUDA_VISIBLE_DEVICES which"
    ),
    "XLA_TENSOR_ALLOCATOR_MAXSIZE": Verdict(_NO, "There is no such allocator.", "the line may go"),
    "XLA_PERSISTENT_CACHE_PATH": Verdict(
        _NO, "Programs are kept on disk by default.", "XLA_DYNAMO_CACHE_DIR names the folder"
    ),
    "XLA_COMPILATION_CACHE_SIZE": Verdict(
        _NO, "Programs are counted for each graph.", "XLA_DYNAMO_MAX_EXECUTABLES is the bound"
    ),
    "XLA_USE_EAGER_DEBUG_MODE": Verdict(_NO, "Nothing reads it.", _EAGER),
    "XLA_GET_TENSORS_OPBYOP": Verdict(_NO, "Nothing reads it.", _EAGER),
    "XLA_SYNC_TENSORS_OPBYOP": Verdict(_NO, "Nothing reads it.", _EAGER),
    "XLA_SYNC_WAIT": Verdict(_NO, "Nothing reads it.", "torch_xla.sync(wait=True) waits"),
    "XLA_EXPERIMENTAL": Verdict(
        _NO,
        "Ops whose shape depends on data run on the device without it.",
        "XLA_DYNAMO_BUCKET makes one program for many sizes",
    ),
    "XLA_DISABLE_FUNCTIONALIZATION": Verdict(
        _NO, "Views and writes in place are always PyTorch's.", "the line may go"
    ),
    "ALLREDUCE_GRADIENTS_BUCKET_SIZE_MB": Verdict(
        _NO, "XLA combines the reductions of a step.", "the line may go"
    ),
}
# Read by os.environ[...], these are a KeyError where they are not set.
_SET_BY_OTHERS = {
    "COLAB_TPU_ADDR": Verdict(
        State.NOTE,
        "Only Colab's TPU nodes of before 2024 set it; elsewhere this is a KeyError.",
        f"take the line out; {_TPU}",
    )
}

_GPU = "It is about PyTorch's GPUs, on which no xla tensor is."
# torch.cuda's functions that scripts call, and what is meant on an xla device.
CUDA = {
    "synchronize": "xm.wait_device_ops() waits",
    "manual_seed": "torch.manual_seed(...) seeds xla devices, too",
    "manual_seed_all": "torch.manual_seed(...) seeds xla devices, too",
    "amp.autocast": "torch.autocast('xla', dtype=torch.bfloat16)",
    "amp.GradScaler": "torch_xla.amp.GradScaler, for float16; bfloat16 needs none",
    "memory_allocated": "xm.get_memory_info(device)",
    "max_memory_allocated": "xm.get_memory_info(device)",
    "set_device": "xm.xla_device() is this replica's device",
    "empty_cache": "nothing is needed: memory of dead tensors is reused",
    "Event": "time.perf_counter() around torch_xla.core.xla_model.wait_device_ops()",
}
_ASKS = {"is_available", "device_count", "is_initialized"}
_ENVIRONMENT = {"os.environ", "os.environ.get", "os.environ.setdefault", "os.getenv", "os.putenv"}


def variables(found: Scan) -> Iterator[Finding]:
    """Environment variables that are set or read by a literal name, or by torch_xla's constant."""
    for node in ast.walk(found.tree):
        name = _variable(found, node)
        if not isinstance(node, ast.expr):
            continue
        if name in VARIABLES:
            yield _finding(node, name, VARIABLES[name])
        is_read = isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load)
        if name in _SET_BY_OTHERS and is_read:
            yield _finding(node, f'os.environ["{name}"]', _SET_BY_OTHERS[name])


def _variable(found: Scan, node: ast.AST) -> str:
    match node:
        case ast.Subscript(value=owner, slice=key) if found.name(owner) == "os.environ":
            pass
        case ast.Call(func=owner, args=[key, *_]) if found.name(owner) in _ENVIRONMENT:
            pass
        case _:
            return ""
    if isinstance(key, ast.Constant) and isinstance(key.value, str):
        return key.value
    return constant(found.name(key))


def other_devices(found: Scan) -> Iterator[Finding]:
    """torch.cuda and `.cuda()`, but where the script asks for CUDA first."""
    portable = set[int]()
    for node in ast.walk(found.tree):
        if isinstance(node, ast.If | ast.IfExp) and re.search(r"cuda|gpu", ast.unparse(node.test)):
            portable.update(id(inner) for inner in ast.walk(node))
    for node in ast.walk(found.tree):
        if not isinstance(node, ast.Call) or id(node) in portable:
            continue
        name = found.name(node.func)
        called = name.removeprefix("torch.cuda.")
        if called != name and called not in _ASKS:
            remedy = CUDA.get(called, "keep it behind `if torch.cuda.is_available():`")
            yield _finding(node, name, Verdict(State.NOTE, _GPU, remedy))
        elif isinstance(node.func, ast.Attribute) and node.func.attr == "cuda" and not name:
            verdict = Verdict(State.NOTE, "It goes to a GPU, not to xla.", ".to(device)")
            yield _finding(node, ".cuda()", verdict)


def _finding(node: ast.expr, name: str, verdict: Verdict) -> Finding:
    return Finding(node.lineno, node.col_offset + 1, name, verdict)
