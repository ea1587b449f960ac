"""PyTorch's own backend "openxla" gets the passes over Dynamo's graph that "xla" has.

PyTorch hands over what AOTAutograd makes of a graph, in which an LSTM is unrolled already. So the
backend is wrapped when PyTorch imports it, which is when torch.compile first looks for one by name;
nn.LSTM, GRU and RNN are then traced for it as they are for "xla".
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType
from typing import TYPE_CHECKING, Any

from xla_dynamo.backend import options
from xla_dynamo.backend.passes.contract import Context, Stage, WayIn, target_of
from xla_dynamo.backend.runtime.platforms import default_platform
from xla_dynamo.lazily import lazily

if TYPE_CHECKING:
    from torch._dynamo.backends import registry

    from xla_dynamo.backend import pipeline
    from xla_dynamo.backend.capture import aot, recurrent_modules
else:  # Dynamo is not imported before a program needs it
    registry = lazily("torch._dynamo.backends.registry", globals())
    pipeline = lazily("xla_dynamo.backend.pipeline", globals())
    aot = lazily("xla_dynamo.backend.capture.aot", globals())
    recurrent_modules = lazily("xla_dynamo.backend.capture.recurrent_modules", globals())

_MODULE = "torch._dynamo.backends.torchxla"
_undo: list[Callable[[], object]] = []


class _Finder(MetaPathFinder):
    """Finds that one module, to wrap the backend when it is loaded."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path) if fullname == _MODULE else None
        if spec is not None and spec.origin is not None:
            spec.loader = _Loader(fullname, spec.origin)
        return spec


class _Loader(SourceFileLoader):
    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        _wrap(module)


def install() -> Callable[[], None]:
    """Wrap the backend, now or when it is imported; returns what undoes it."""
    if _MODULE in sys.modules:
        _wrap(sys.modules[_MODULE])
    else:
        finder = _Finder()
        sys.meta_path.insert(0, finder)
        _undo.append(lambda: sys.meta_path.remove(finder))
    return _uninstall


def _uninstall() -> None:
    while _undo:
        _undo.pop()()


def _wrap(module: ModuleType) -> None:
    original, known = module.openxla, registry._COMPILER_FNS
    wrapped = _with_passes(original)
    module.openxla = known["openxla"] = wrapped  # type: ignore[attr-defined]
    for backend in (wrapped, module.openxla_eval):  # whose graphs "xla" compiles
        _undo.append(recurrent_modules.allow(backend))
    _undo.append(lambda: known.update(openxla=original))
    _undo.append(lambda: setattr(module, "openxla", original))


def _with_passes(original: Callable[..., Any]) -> Callable[..., Any]:
    def openxla(gm: Any, example_inputs: Sequence[Any], **kwargs: Any) -> Any:
        target = target_of(options.parse(None, None), default_platform())
        context = Context(f"{aot.capture_name()} openxla", WayIn.BRIDGE, target)
        pipeline.run(Stage.DYNAMO, gm, context)
        return original(gm, example_inputs, **kwargs)

    openxla._tags = ()  # type: ignore[attr-defined]
    return openxla
