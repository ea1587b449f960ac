"""The architecture as tests: import cycles, the order of folders, private APIs, bounded caches."""

from __future__ import annotations

import ast
import functools
import re
import sys
from collections.abc import Container, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "xla_dynamo"
MODULES = sorted(PACKAGE.rglob("*.py"))
pytestmark = pytest.mark.spine


@functools.cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


def name_of(path: Path) -> str:
    """The dotted name of a module of the package."""
    parts = ("xla_dynamo", *path.relative_to(PACKAGE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """(line, absolute dotted name) of everything that a module imports, at any depth in it."""
    here = ("xla_dynamo", *path.relative_to(PACKAGE).parent.parts)
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = here[: len(here) - node.level + 1] if node.level else ()
            module = ".".join((*base, *([node.module] if node.module else [])))
            yield from ((node.lineno, f"{module}.{alias.name}") for alias in node.names)


def module_of(imported: str, modules: Container[str]) -> str | None:
    """The module of the package that an imported name is, or comes from.

    `torch_xla.x` is compat's own: see namespace.finder. A submodule does not count as its package,
    from which no name is taken.
    """
    if imported.startswith(("torch_xla.", "torch_xla_py.")):
        imported = f"xla_dynamo.compat.{imported}"
    return next((m for m in (imported, imported.rpartition(".")[0]) if m in modules), None)


@functools.cache
def import_graph() -> dict[str, dict[str, int]]:
    """module -> {module that it imports: the line}."""
    graph: dict[str, dict[str, int]] = {name_of(path): {} for path in MODULES}
    for path in MODULES:
        for line, imported in imports(path):
            found = module_of(imported, graph)
            if found is not None and found != name_of(path):
                graph[name_of(path)].setdefault(found, line)
    return graph


def test_no_import_cycle():
    """Also counting imports inside functions and for type checkers."""
    left = {module: set(found) for module, found in import_graph().items()}
    while free := [module for module, found in left.items() if not found]:
        left = {module: found.difference(free) for module, found in left.items() if found}
    assert not left, "modules of cycles, or above them, and what they import of these"


# The order of folders: a module imports of its own level and of those before it alone.
COMPAT = "xla_dynamo.compat."
BACKEND = "xla_dynamo.backend."
ORDERS = {
    COMPAT: [
        ("values",),
        ("recording",),
        ("execution",),
        ("kernels",),
        ("device",),
        ("reporting",),
        ("namespace",),
        ("torch_xla", "torch_xla_py", "_XLAC"),
    ],
    BACKEND: [
        ("ops", "graph", "options", "buckets", "metrics", "observers"),
        ("cpu_threads", "jax_adapter"),
        ("runtime", "lowering"),
        ("decompositions",),
        ("passes",),
        ("pipeline",),
        ("capture", "executable"),
        ("__init__", "tpu_cost", "jax_functions", "training_step"),
    ],
}


def level(module: str, package: str) -> int | None:
    """The level of a module in its package's order; None for what has none."""
    if not f"{module}.".startswith(package):
        return None
    top = module.removeprefix(package.rstrip(".")).removeprefix(".").partition(".")[0] or "__init__"
    return next((i for i, names in enumerate(ORDERS[package]) if top in names), None)


@pytest.mark.parametrize("package", ORDERS)
def test_order_of_folders(package):
    graph = import_graph()
    without = [m for m in graph if m.startswith(package) and level(m, package) is None]
    assert not without, "not in the order"
    found = [
        f"{module}:{line} imports {imported}"
        for module, listed in graph.items()
        for imported, line in listed.items()
        if (own := level(module, package)) is not None
        and (other := level(imported, package)) is not None
        and own < other
    ]
    assert not found


# What compat imports inside a function, and why.
LATE = {
    ("torch_xla/core/_reporting.py", "tensorboardX"): "need not be installed",
    ("torch_xla/core/_reporting.py", "torch.utils.tensorboard"): "need not be installed",
    ("torch_xla/__init__.py", "xla_dynamo.compat.torch_xla"): "submodules load when used",
    ("torch_xla/__init__.py", "xla_dynamo.compat.torch_xla.distributed"): "the same",
    ("values/torch_private.py", "torch.distributed.tensor._dtensor_spec"): "takes a second",
    (
        "values/torch_private.py",
        "torch.testing._internal.distributed",
    ): "replicas in threads need it",
}


def test_compat_imports_at_the_top():
    found = set()
    for path in MODULES:
        tree = parsed(path)
        inside = [
            n
            for n in ast.walk(tree)
            if isinstance(n, ast.FunctionDef)
            or (
                isinstance(n, ast.If) and ast.unparse(n.test) != "TYPE_CHECKING"
            )  # xla_dynamo.lazily
        ]
        lines = {line for n in inside for line in range(n.lineno, (n.end_lineno or 0) + 1)}
        if path.is_relative_to(PACKAGE / "compat"):
            file = path.relative_to(PACKAGE / "compat").as_posix()
            for line, imported in imports(path):
                if line in lines:
                    module = imported if imported == "jax" else imported.rpartition(".")[0]
                    found.add((file, module or imported))
    assert found == LATE.keys()


# (what may not be imported, by which folder, except by these files): see CONTRIBUTING.md.
LAYERS = [
    (
        ("jax._src", "jaxlib"),
        "",
        (
            "backend/runtime/call_path.py",
            "backend/runtime/coordinator.py",
            "backend/runtime/partitions.py",
            "backend/runtime/pjrt.py",
            "backend/runtime/replica_arrays.py",
            "backend/runtime/topology.py",
            "backend/runtime/transfers.py",
            "backend/jax_adapter.py",
        ),
    ),
    (("torch_mlir",), "", ("backend/lowering/importer.py",)),
    (("xla_dynamo.backend.runtime",), "backend/lowering", ()),
    (("xla_dynamo.compat",), "backend", ()),
    (
        ("torch.fx", "xla_dynamo.backend.lowering.importer", "xla_dynamo.backend.lowering.linker"),
        "backend/lowering/rules",
        (),
    ),
    (("torch.fx", "xla_dynamo.backend.lowering"), "backend/runtime", ()),
]


@pytest.mark.parametrize(("names", "folder", "exempt"), LAYERS)
def test_layers(names, folder, exempt):
    inside = [path for path in MODULES if path.is_relative_to(PACKAGE / folder)]
    allowed = {PACKAGE / name for name in exempt}
    found = [
        f"{path.relative_to(ROOT)}:{line} imports {imported}"
        for path in inside
        if path not in allowed
        for line, imported in imports(path)
        if any(f"{imported}.".startswith(f"{name}.") for name in names)
    ]
    assert not found


def test_layers_see_relative_and_nested_imports(tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "PACKAGE", tmp_path)
    path = tmp_path / "backend" / "lowering" / "rule.py"
    path.parent.mkdir(parents=True)
    path.write_text("import jax._src.core\ndef f():\n    from ..runtime import pjrt\n")
    assert list(imports(path)) == [
        (1, "jax._src.core"),
        (3, "xla_dynamo.backend.runtime.pjrt"),
    ]


# What may be imported of the backend, by which of its folders.
REACH = {
    "lowering": ("lowering", "ops", "graph", "options", "metrics", "jax_adapter"),
    "lowering/rules": ("lowering", "ops", "graph", "jax_adapter"),
}


@pytest.mark.parametrize("folder", REACH)
def test_reach_of_lowering(folder):
    inside = PACKAGE / "backend" / folder
    names = {name_of(path) for path in MODULES if path.is_relative_to(inside)}
    found = [
        f"{module}:{line} imports {imported}"
        for module, listed in import_graph().items()
        if module in names
        for imported, line in listed.items()
        if imported.startswith(BACKEND) and imported.split(".")[2] not in REACH[folder]
    ]
    assert not found


def test_custom_ops_are_defined_in_one_folder():
    """A pass, or a rule, that imports an op registers it, and imports no other pass for that."""
    makers = {f"torch.library.{name}" for name in ("custom_op", "triton_op", "define")}
    found = {
        path.relative_to(PACKAGE).parent.as_posix()
        for path in MODULES
        if not makers.isdisjoint(map(dotted, ast.walk(parsed(path))))
        or not makers.isdisjoint(imported for _, imported in imports(path))
    }
    assert found == {"backend/ops"}


def dotted(node: ast.AST) -> str:
    """torch.x.y of an expression; "" for what is none."""
    if isinstance(node, ast.Name):
        return node.id
    base = dotted(node.value) if isinstance(node, ast.Attribute) else ""
    return f"{base}.{node.attr}" if base and isinstance(node, ast.Attribute) else ""


def private_names(path: Path) -> Iterator[tuple[int, str]]:
    """(line, name) of each private module or function of torch that a module names."""
    tree = parsed(path)
    named = [(n.lineno, dotted(n)) for n in ast.walk(tree) if isinstance(n, ast.expr)]
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and dotted(node.func).endswith("import_module"):
            named += [(c.lineno, str(c.value)) for c in node.args if isinstance(c, ast.Constant)]
    for line, name in [*imports(path), *named]:
        parts = name.split(".")
        private = any(part.startswith("_") and not part.startswith("__") for part in parts)
        if parts[0] == "torch" and private and not name.startswith(PUBLIC_ENOUGH):
            yield line, name


# Without a public substitute, stable for years, and named in PyTorch's own documentation.
PUBLIC_ENOUGH = (
    "torch.utils._pytree",  # nested arguments
    "torch._ops",  # the classes of torch.ops.aten.add.Tensor and torch.ops.higher_order.cond
    "torch.nn.modules.batchnorm._BatchNorm",  # the class of every batch normalisation
    "torch.ops.",  # ops whose names begin so
)
# The files that name private modules or functions of torch, and which.
PRIVATE = {
    "backend/capture/aot.py": "AOTAutograd and Dynamo: torch._dynamo, torch._functorch",
    "backend/capture/aot_cache.py": "AOTAutograd's cache: torch._functorch, torch._inductor",
    "backend/capture/aot_key.py": "what a key of it names: torch._inductor.config, torch._ops",
    "backend/capture/aot_entry.py": "what that keeps: torch._inductor, torch._guards",
    "backend/capture/optimizer_step.py": "torch.optim's step, and torch.compiler's flag",
    "backend/capture/own_errors.py": "Dynamo: torch._dynamo.exc",
    "backend/capture/recurrent_modules.py": "Dynamo: torch._dynamo.variables.builder",
    "backend/graph/torch_private.py": "what the backend uses, by one name each",
    "backend/runtime/transfers.py": "DLPack's entry points of the extension",
    "compat/values/torch_private.py": "what the lazy device uses, by one name each",
    "compat/device/openxla.py": "PyTorch's backend of that name, and where Dynamo keeps it",
    "compat/device/torch_patches.py": "functions of PyTorch that are replaced",
    "compat/torch_xla/distributed/_process_group.py": "torch.distributed's classes for a backend",
}


def test_private_names_of_torch_are_in_few_files():
    found = {
        f"{path.relative_to(ROOT)}:{line} {name}"
        for path in MODULES
        if path.relative_to(PACKAGE).as_posix() not in PRIVATE
        for line, name in private_names(path)
    }
    assert not found
    for file in PRIVATE:
        assert any(private_names(PACKAGE / file)), f"{file} names nothing that is private"


def test_private_names_are_seen(tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "PACKAGE", tmp_path)
    path = tmp_path / "module.py"
    path.write_text(
        "import torch\nfrom torch._decomp import core_aten_decompositions\n"
        "x = torch._C._nn.linear\ny = torch.ops.aten._softmax.default\n"
        "z = importlib.import_module('torch._guards')\n"
    )
    assert {line for line, _ in private_names(path)} == {2, 3, 5}


# Module-level caches and lists without a capacity, and what bounds them.
UNBOUNDED = {
    "backend.capture.own_errors._both": "one for each error class",
    "backend.capture.recurrent_modules._backends": "this project's backends, and openxla",
    "backend.lowering.registry.RULES": "filled at import: one for each op",
    "backend.ops.registration.COMPOSED": "filled at import: one for some ops",
    "backend.passes.padding.registry.RULES": "filled at import: one for each op",
    "backend.metrics._counters": "one for each name of a counter in the code",
    "backend.metrics._passes": "one for each pass",
    "backend.metrics._captures": "one for each open capture() of the user's",
    "backend.metrics._dumped": "one for each graph whose files the user asked for",
    "backend.observers.sources": "one: compat",
    "backend.runtime.buffers._residents": "one for each device",
    "backend.runtime.pjrt.device": "one for each device",
    "backend.jax_adapter._cpu_client": "two",
    "backend.runtime.resident.RESIDENCIES": "filled at import: one for each kind of device",
    "compat.device.autocast._libraries": "filled at install",
    "compat.device.openxla._undo": "filled at install",
    "compat.device.register._alive": "filled at install",
    "compat.kernels.redispatch._keys": "two for each op",
    "compat.kernels.redispatch.on_device": "one for each op",
    "compat.device.register._libraries": "filled at install",
    "compat.device.step_barrier._after_step": "filled at install",
    "compat.device.step_barrier._async_closures": "emptied at each step",
    "compat.device.step_barrier._at_exit": "one",
    "compat.device.step_barrier._closures": "emptied at each step",
    "compat.device.torch_patches._undo": "filled at install",
    "compat.execution.compiled_graphs.on_compile": "filled at install",
    "compat.execution.compiled_graphs.on_launch": "filled at install",
    "compat.execution.program_cache.on_compile": "filled at install",
    "compat.execution.settings._options": "one for each option",
    "compat.execution.sync.launched": "one for each device, of 64 launches",
    "compat.execution.sync.on_launch": "filled at install",
    "compat.kernels.inplace_views._bases": "weak references, left out when they are dead",
    "compat.kernels.mutable_ops._libraries": "one for each op of a library or script",
    "compat.namespace.operators._libraries": "filled at install",
    "compat.recording.devices._client_device": "one for each device",
    "compat.recording.metrics._watches": "two for each device",
    "compat.recording.metrics.counters": "one for each op, or name in the code",
    "compat.recording.metrics.launches": "summed up when there are 4096",
    "compat.recording.metrics.metrics": "one for each name in the code; samples have a capacity",
    "compat.recording.op_forms._forms": "one for each op",
    "compat.recording.op_forms.without_copy": "one for each op",
    "compat.recording.devices.before_use": "filled at install, and emptied by the first use",
    "compat.recording.replicas._members": "one for each device",
    "compat.recording.seeds._states": "one for each device",
    "compat.recording.pending._traces": "one for each device; its trie has a capacity",
    "compat.reporting.metrics_report._before": "one for each op",
    "compat.torch_xla.debug.graph_saver._numbers": "one for each name that the user gives files",
    "compat.torch_xla.debug.model_comparator._numbers": "one for each name of the user's a step",
    "compat.torch_xla.debug.profiler._ports": "one for each server that the user starts",
    "compat.torch_xla.distributed.xla_multiprocessing._say_fewer": "the user's nprocs",
    "compat.torch_xla.distributed.xla_multiprocessing._running": "those that run, and the last",
    "compat.torch_xla.runtime._cache_paths": "one",
    "compat.values.environment._at_first_use": "filled at install",
    "compat.values.environment._read": "one for each variable",
    "compat.values.op_table.HANDLERS": "filled at import: one for each op",
    "compat.values.op_table.OPS": "one for each op",
    "compat.values.trie._zero_dim": "one for each dtype",
}
_BOUNDED = ("Bounded", "WeakValueDictionary", "WeakKeyDictionary", "local", "Lock")


def growing(path: Path) -> Iterator[str]:
    """Names of a module's empty containers, and of its functions that remember every result."""
    for node in parsed(path).body:
        value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
        if isinstance(node, ast.Assign | ast.AnnAssign) and _is_unbounded(value):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            yield ast.unparse(target)
        if isinstance(node, ast.FunctionDef):
            for decorator in map(ast.unparse, node.decorator_list):
                takes = bool(node.args.args or node.args.kwonlyargs or node.args.vararg)
                if takes and decorator in ("functools.cache", "cache"):
                    yield node.name
                if "lru_cache" in decorator and not re.search(r"\d|_[A-Z]", decorator):
                    yield node.name


def _is_unbounded(value: ast.expr | None) -> bool:
    if isinstance(value, ast.Dict | ast.List):
        return not (value.keys if isinstance(value, ast.Dict) else value.elts)
    if not isinstance(value, ast.Call):
        return False
    maker = dotted(value.func).rpartition(".")[2]
    kinds = ("dict", "list", "set", "Counter", "OrderedDict", "defaultdict", "deque")
    sized = any(keyword.arg == "maxlen" for keyword in value.keywords)
    return maker in kinds and not value.args[1:] and not sized


def test_module_level_caches_have_a_capacity():
    found = {
        f"{name_of(path).removeprefix('xla_dynamo.')}.{name}"
        for path in MODULES
        for name in growing(path)
    }
    assert found - UNBOUNDED.keys() == set(), "use xla_dynamo.bounded, or say what bounds it"
    assert UNBOUNDED.keys() - found == set(), "not there any more"
