"""Serve the module names of torch_xla from the files of this package.

One meta-path finder serves `torch_xla.*`, `torch_xla_py.*` (2019) and `_XLAC` from the folder
`compat`, and the distribution metadata that libraries ask for. Nothing is on sys.path: without the
finder none of these names exists. A folder is a package, with or without an `__init__.py`; its
submodules are its attributes, each loaded when it is first used. Modules that torch_xla renamed,
and small ones that are one file here, are aliases.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.metadata
import importlib.util
import re
import sys
import warnings
from collections.abc import Iterable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

VERSION = "2.9.0+xla.dynamo"  # the last release of torch_xla, and whose it is

_HERE = Path(__file__).parents[1]
_ROOTS = {
    "torch_xla": _HERE / "torch_xla",
    "torch_xla_py": _HERE / "torch_xla_py",
    "_XLAC": _HERE,
    # Removed from PyTorch; scripts of 2019 use it.
    "torch._six": _HERE / "namespace" / "stubs" / "torch_six",
}
# Module names that stand for another module, as other versions of torch_xla had them.
_ALIASES = {
    "_XLAC": "torch_xla._XLAC",
    "torch_xla._dynamo.dynamo_backend2": "torch_xla.core.dynamo_bridge",
    "torch_xla._dynamo.dynamo_bridge": "torch_xla.core.dynamo_bridge",
    "torch_xla._internal.pjrt": "torch_xla.experimental.pjrt",
    "torch_xla._internal.utils": "torch_xla.core.xla_model",
    "torch_xla.amp.syncfree.adam": "torch_xla.amp.syncfree",
    "torch_xla.amp.syncfree.adamw": "torch_xla.amp.syncfree",
    "torch_xla.amp.syncfree.sgd": "torch_xla.amp.syncfree",
    "torch_xla.core.xla_op_registry": "torch_xla._absent",
    "torch_xla.debug.metrics": "xla_dynamo.compat.reporting.metrics_report",
    "torch_xla.debug.metrics_saver": "torch_xla.debug.graph_saver",
    "torch_xla.experimental.assume_pure": "torch_xla.experimental._hints",
    "torch_xla.experimental.eager": "torch_xla.experimental",
    "torch_xla.experimental.fori_loop": "torch_xla.experimental._loops",
    "torch_xla.experimental.gradient_accumulation": "torch_xla.experimental._loops",
    "torch_xla.experimental.gru": "torch.nn.modules.rnn",
    "torch_xla.experimental.mark_pattern_utils": "torch_xla.experimental._hints",
    "torch_xla.experimental.scan": "torch_xla.experimental._loops",
    "torch_xla.experimental.scan_layers": "torch_xla.experimental._loops",
    "torch_xla.experimental.splash_attention": "torch_xla.experimental.custom_kernel",
    "torch_xla.experimental.stablehlo_custom_call": "torch_xla._absent",
    "torch_xla.experimental.tpu": "torch_xla._internal.tpu",
    "torch_xla.experimental.xla_sharded_tensor": "torch_xla.distributed.spmd.xla_sharded_tensor",
    "torch_xla.experimental.xla_sharding": "torch_xla.distributed.spmd.xla_sharding",
    "torch_xla.tf_saved_model_integration": "torch_xla._absent",
    "torch_xla.utils.buffer_donor_context": "torch_xla.experimental._hints",
    "torch_xla.utils.closures": "xla_dynamo.compat.device.closures",
    "torch_xla.xm": "torch_xla.core.xla_model",
    "torch_xla.xmp": "torch_xla.distributed.xla_multiprocessing",
    "torch_xla.xr": "torch_xla.runtime",
    "torch_xla.xu": "torch_xla.utils.utils",
    "torch_xla_py.graph_saver": "torch_xla.debug.graph_saver",
    "torch_xla_py.keyd_queue": "torch_xla.utils.keyd_queue",
    "torch_xla_py.metrics_saver": "torch_xla.debug.graph_saver",
    "torch_xla_py.model_comparator": "torch_xla.debug.model_comparator",
    "torch_xla_py.parallel_loader": "torch_xla_py.data_parallel",
    "torch_xla_py.utils": "torch_xla.utils.utils",
    "torch_xla_py.xla_dist": "torch_xla.distributed.xla_dist",
    "torch_xla_py.xla_env_vars": "torch_xla.core.xla_env_vars",
    "torch_xla_py.xla_multiprocessing": "torch_xla.distributed.xla_multiprocessing",
}
_METADATA = f"""Metadata-Version: 2.1
Name: torch_xla
Version: {VERSION}
Summary: The torch_xla API on xla_dynamo
"""


class Finder(MetaPathFinder):
    """Finds the modules and the distribution `torch_xla`."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        place = _place(fullname)
        if place is None:
            return None
        if fullname in _ALIASES:
            return importlib.machinery.ModuleSpec(fullname, _Alias())
        if place.is_dir():
            package = str(place / "__init__.py")
            return importlib.util.spec_from_file_location(
                fullname,
                package,
                loader=_Package(fullname, package),
                submodule_search_locations=[str(place)],
            )
        module = place.with_name(place.name + ".py")
        if module.is_file():
            return importlib.util.spec_from_file_location(fullname, module)
        return None

    def find_distributions(self, context: Any = None) -> Iterable[importlib.metadata.Distribution]:
        name = getattr(context, "name", None)
        if name is None or re.sub(r"[-_.]+", "-", name).lower() == "torch-xla":
            yield _Distribution()


class _Package(SourceFileLoader):
    """Loads a package: what its file defines, if it has one, and every submodule by attribute."""

    def exec_module(self, module: ModuleType) -> None:
        def submodule(name: str) -> ModuleType:
            full = f"{module.__name__}.{name}"
            if name.startswith("__") or importlib.util.find_spec(full) is None:
                raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
            return importlib.import_module(full)

        module.__getattr__ = submodule
        if Path(self.path).exists():
            super().exec_module(module)


class _Alias(Loader):
    """Gives a name of _ALIASES the module that it stands for."""

    def exec_module(self, module: ModuleType) -> None:
        sys.modules[module.__name__] = importlib.import_module(_ALIASES[module.__name__])


class _Distribution(importlib.metadata.Distribution):
    """What importlib.metadata says of torch_xla."""

    def read_text(self, filename: str) -> str | None:
        if filename in ("METADATA", "PKG-INFO"):
            return _METADATA
        return "_XLAC\ntorch_xla\n" if filename == "top_level.txt" else None

    def locate_file(self, path: Any) -> Any:
        return _HERE / path


_finder = Finder()


def _place(fullname: str) -> Path | None:
    """Where a module would be, without suffix; None if the name is not ours."""
    for name, root in _ROOTS.items():
        if fullname == name:
            return root
        if fullname.startswith(name + "."):
            return root.joinpath(*fullname[len(name) + 1 :].split("."))
    return None


def add() -> None:
    """Make the names resolve, before anything that is installed.

    Raises:
        ImportError: a real torch_xla is imported already.
    """
    if _finder in sys.meta_path:
        return
    loaded = getattr(sys.modules.get("torch_xla"), "__file__", None)
    if loaded is not None and not Path(loaded).is_relative_to(_HERE):
        raise ImportError(
            f"torch_xla is imported already, from {loaded}, and its device cannot be replaced; "
            "import xla_dynamo.compat before torch_xla, or run `python -m xla_dynamo run`"
        )
    real = importlib.machinery.PathFinder.find_spec("torch_xla")
    if real is not None:
        warnings.warn(
            f"torch_xla is installed at {real.origin}; xla_dynamo takes its place in this process",
            stacklevel=4,
        )
    sys.meta_path.insert(0, _finder)


def remove() -> None:
    """Make the names not resolve any more, and forget the modules."""
    if _finder in sys.meta_path:
        sys.meta_path.remove(_finder)
        for name in [name for name in sys.modules if _place(name) is not None]:
            del sys.modules[name]
