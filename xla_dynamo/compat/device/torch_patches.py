"""Functions of PyTorch that are replaced because of the device `xla`; all is undone by uninstall().

Private API of torch, seen on 2.13: torch._register_device_module, torch.random._seed_custom_device,
torch.utils._foreach_utils._get_foreach_kernels_supported_devices and
torch.optim.optimizer._get_capturable_supported_devices, with the modules that import them; devices
and functions of fused optimizers; torch._ops._OpNamespace; torch.serialization._package_registry;
torch._utils._rebuild_tensor; the nesting of torch._functorch.eager_transforms;
torch._nested_view_from_jagged and torch.nested._internal.nested_tensor.NestedTensor; the
_validate_device of torch.nn.attention.flex_attention.
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
from collections.abc import Callable
from typing import Any

import torch

from xla_dynamo.compat.kernels import inplace, mutable_ops
from xla_dynamo.compat.recording import devices, pending, seeds
from xla_dynamo.compat.values import storage
from xla_dynamo.config import config

from . import fused_optimizers, module_conversion, openxla, torch_xla_module

# Functions that name the devices of a form of optimizers, and the modules that have them: foreach
# takes a dozen recorded ops, not a dozen a parameter; capturable counts steps on the device.
_SUPPORTED = {
    "_get_foreach_kernels_supported_devices": (
        "torch.utils._foreach_utils",
        "torch.optim.optimizer",
        "torch.optim.swa_utils",
    ),
    "_get_capturable_supported_devices": tuple(
        f"torch.optim.{name}"
        for name in ("adadelta", "adam", "adamax", "asgd", "nadam", "radam", "rmsprop", "rprop")
    ),
    "_get_fused_kernels_supported_devices": ("torch.optim.optimizer",),
}
_undo: list[Callable[[], Any]] = []


def install() -> None:
    """Tell PyTorch; a second call does nothing."""
    if _undo:
        return
    _register_module()
    _seed_with_pytorch()
    _allow_every_form_of_optimizers()
    _fused_on_the_device()
    _backward_in_any_thread()
    _in_place_inside_transforms()
    _views_in_inference_mode()
    _no_host_addresses()
    _kernels_of_mutable_ops()
    _load_to_device()
    _invert_permutations_on_the_host()
    _no_jagged_tensors()
    _flex_attention_on_the_device()
    _norm_on_the_device()
    keeping = module_conversion.keeping_parameters(torch.nn.Module._apply)
    _replace(torch.nn.Module, "_apply", keeping)
    _undo.append(openxla.install())
    _default_platform()


def uninstall() -> None:
    """Undo install(), last first."""
    while _undo:
        _undo.pop()()


def _replace(owner: Any, name: str, value: Any) -> None:
    original = getattr(owner, name)
    setattr(owner, name, value)
    _undo.append(lambda: setattr(owner, name, original))


def _register_module() -> None:
    """torch.xla: what torch.utils.checkpoint and torch.random.fork_rng ask for the random state."""
    torch._register_device_module("xla", torch_xla_module)
    _undo.append(lambda: delattr(torch, "xla"))
    _undo.append(lambda: sys.modules.pop("torch.xla"))


def _seed_with_pytorch() -> None:
    """torch.manual_seed and torch.seed seed the xla devices too."""
    original = torch.random._seed_custom_device

    def seed(seed: int) -> None:
        original(seed)
        seeds.seed_all(seed)

    _replace(torch.random, "_seed_custom_device", seed)


def _allow_every_form_of_optimizers() -> None:
    """Optimizers on xla take the forms of _SUPPORTED."""
    for name, modules in _SUPPORTED.items():
        for module in modules:
            owner = importlib.import_module(module)
            if hasattr(owner, name):
                _replace(owner, name, _and_xla(getattr(owner, name)))


def _and_xla(original: Callable[..., list[str]]) -> Callable[..., list[str]]:
    @functools.wraps(original)
    def devices(*args: Any, **kwargs: Any) -> list[str]:
        return [*original(*args, **kwargs), "xla"]

    # TorchScript, which some libraries compile optimizers with on import, takes the original.
    vars(devices).update(__script_if_tracing_wrapper=True, __original_fn=original)
    return devices


def _fused_on_the_device() -> None:
    """fused=True, which trainers ask for by default, works on xla."""
    for owner, name, update in fused_optimizers.forms():
        _replace(owner, name, fused_optimizers.on_xla(update, getattr(owner, name)))


def _backward_in_any_thread() -> None:
    """A thread that only calls backward has not met the device before."""
    original = torch.autograd._engine_run_backward  # type: ignore[attr-defined]

    def run(*args: Any, **kwargs: Any) -> Any:
        pending.allow_backward()
        return original(*args, **kwargs)

    _replace(torch.autograd, "_engine_run_backward", run)


def _in_place_inside_transforms() -> None:
    """torch.func.grad and torch.func.jvp say when they begin and end."""
    owner = importlib.import_module("torch._functorch.eager_transforms")

    def first(tell: Callable[[], None], original: Callable[[], int]) -> Callable[[], int]:
        def nest() -> int:
            tell()
            return original()

        return nest

    for name, tell in (
        ("increment", inplace.enter_transform),
        ("decrement", inplace.leave_transform),
    ):
        for kind in ("grad", "jvp"):
            attribute = f"_{kind}_{name}_nesting"
            _replace(owner, attribute, first(tell, getattr(owner, attribute)))


def _views_in_inference_mode() -> None:
    """torch.inference_mode() turns gradients off, and no more.

    In that mode functionalization makes no view of a tensor from outside it, such as a parameter:
    "Cannot set version_counter for inference tensor".
    """

    def enter(self: Any) -> None:
        self._inference_mode_context = torch.no_grad() if self.mode else torch.enable_grad()
        self._inference_mode_context.__enter__()

    _replace(torch.inference_mode, "__enter__", enter)


def _no_host_addresses() -> None:
    """The address of device memory is 0, as for tensors: safetensors asks who shares memory."""
    original = torch.UntypedStorage.data_ptr

    def data_ptr(self: torch.UntypedStorage) -> int:
        return 0 if self.device.type == "xla" else original(self)

    _replace(torch.UntypedStorage, "data_ptr", data_ptr)


def _kernels_of_mutable_ops() -> None:
    """An op that writes to its arguments gets its kernel when it is first looked up."""
    original = torch._ops._OpNamespace.__getattr__

    def look_up(namespace: Any, name: str) -> Any:
        packet = original(namespace, name)
        mutable_ops.register(packet)
        return packet

    _replace(torch._ops._OpNamespace, "__getattr__", look_up)


def _load_to_device() -> None:
    """torch.load(file, map_location=xla): storages stay on the CPU until they become tensors."""
    utils = importlib.import_module("torch._utils")
    rebuild = utils._rebuild_tensor

    def claim(storage: Any, location: str) -> Any:
        if location.partition(":")[0] != "xla":
            return None
        storage.xla_location = location
        return storage

    def rebuild_tensor(storage: Any, *args: Any) -> torch.Tensor:
        made = rebuild(storage, *args)
        location = getattr(storage._untyped_storage, "xla_location", None)
        return made if location is None else made.to(location)

    torch.serialization.register_package(90, lambda storage: None, claim)
    registry: list[Any] = torch.serialization._package_registry
    entry = next(entry for entry in registry if entry[2] is claim)
    _undo.append(lambda: registry.remove(entry))
    _replace(utils, "_rebuild_tensor", rebuild_tensor)


def _invert_permutations_on_the_host() -> None:
    """Of a packed batch, which comes from the host: unpacking reads the inverse there."""
    owner = importlib.import_module("torch.nn.utils.rnn")
    original = owner.invert_permutation

    def invert(permutation: torch.Tensor | None) -> torch.Tensor | None:
        if permutation is None or permutation.device.type != "xla":
            return original(permutation)
        return original(permutation.cpu()).to(permutation.device)

    _replace(owner, "invert_permutation", invert)


def _no_jagged_tensors() -> None:
    """Refused where they are made or moved: their sizes are no numbers."""
    owner = importlib.import_module("torch.nested._internal.nested_tensor").NestedTensor
    for where, name, position in ((torch, "_nested_view_from_jagged", 0), (owner, "__new__", 1)):
        _replace(where, name, _refusing_xla(getattr(where, name), position))


def _refusing_xla(original: Callable[..., Any], position: int) -> Callable[..., Any]:
    def make(*args: Any, **kwargs: Any) -> Any:
        if len(args) > position and args[position].device.type == "xla":
            raise storage.refuse(torch.jagged, args[position].dtype)
        return original(*args, **kwargs)

    return make


def _flex_attention_on_the_device() -> None:
    """It takes devices by their names, xla not among them."""
    owner = importlib.import_module("torch.nn.attention.flex_attention")
    original = getattr(owner, "_validate_device", None)
    if original is None:
        return

    def validate(query: torch.Tensor, *others: torch.Tensor) -> None:
        if query.device.type != "xla":
            original(query, *others)

    _replace(owner, "_validate_device", validate)


def _norm_on_the_device() -> None:
    """clip_grad_norm_ of parameters without gradients gives a zero on their device."""
    original = torch.nn.utils.clip_grad_norm_

    @functools.wraps(original)
    def clip_grad_norm_(parameters: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
        given = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
        norm = original(given or parameters, *args, **kwargs)
        on_xla = bool(given) and given[0].device.type == "xla" and norm.device.type == "cpu"
        return norm.to(given[0].device) if on_xla else norm

    for module in (torch.nn.utils, torch.nn.utils.clip_grad):
        _replace(module, "clip_grad_norm_", clip_grad_norm_)


def _default_platform() -> None:
    """PJRT_DEVICE names the platform, as importing torch_xla leaves it."""
    if "PJRT_DEVICE" not in os.environ:
        set_variable("PJRT_DEVICE", devices.hardware())
        config.cache_clear()  # a script may still set it, until the first use of a device


def set_variable(name: str, value: str) -> None:
    """Set an environment variable that is not set, until uninstall()."""
    if _undo and name not in os.environ:
        os.environ[name] = value
        _undo.append(lambda: os.environ.pop(name, None))
