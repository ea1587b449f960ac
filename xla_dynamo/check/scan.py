"""Python text -> every use of a dotted name in it, with imports and aliases followed.

    import torch_xla.core.xla_model as xm
    make = xm.xla_device
    make()                      # Use("torch_xla.core.xla_model.xla_device", line 3, the call)

Nothing is imported. Names are looked up in the scope that they are in, as Python does; what a scope
binds otherwise (a parameter, a variable) is not followed.
"""

from __future__ import annotations

import ast
import builtins
from dataclasses import dataclass, field

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_IMPORTERS = {"importlib.import_module", "__import__"}


@dataclass(frozen=True)
class Use:
    """A dotted name at a place, and the call of it, if it is called there.

    is_guess: it is a bare name, and would come from `from module import *` if that has it.
    """

    name: str
    line: int
    column: int
    call: ast.Call | None = None
    is_guess: bool = False


@dataclass
class Scan:
    """uses: in the order of the text. names: what each Name, Attribute of an expression is called,
    by id of the node."""

    tree: ast.Module
    uses: list[Use] = field(default_factory=list)
    names: dict[int, str] = field(default_factory=dict)

    def name(self, node: ast.AST | None) -> str:
        """The dotted name that an expression is, or ""."""
        return self.names.get(id(node), "")


@dataclass
class _Scope:
    """Imported names, and expressions that variables stand for; None is what is not followed."""

    bound: dict[str, str | ast.expr | None] = field(default_factory=dict)
    stars: list[str] = field(default_factory=list)  # modules of `from module import *`


def scan(text: str) -> Scan:
    """Read a program.

    Raises:
        SyntaxError: it is not Python of this version.
    """
    found = Scan(ast.parse(text))
    _Visitor(found).visit(found.tree)
    return found


class _Visitor(ast.NodeVisitor):
    def __init__(self, found: Scan) -> None:
        self._found = found
        self._scopes = [_scope(found.tree.body)]

    def visit(self, node: ast.AST) -> None:
        if isinstance(node, _FUNCTIONS):
            self._visit_function(node)
        else:
            super().visit(node)

    def _visit_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> None:
        outside: list[ast.AST] = [*node.args.defaults, *(d for d in node.args.kw_defaults if d)]
        if not isinstance(node, ast.Lambda):
            outside += node.decorator_list
        for each in outside:
            self.visit(each)
        body = [node.body] if isinstance(node, ast.Lambda) else node.body
        scope = _scope(body)
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        arguments += [each for each in (node.args.vararg, node.args.kwarg) if each]
        for argument in arguments:
            scope.bound.setdefault(argument.arg, None)
        self._scopes.append(scope)
        for each in body:
            self.visit(each)
        self._scopes.pop()

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._use(alias.name, node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if node.module and not node.level:
            for alias in node.names:
                self._use(node.module + f".{alias.name}" * (alias.name != "*"), node)

    def visit_Name(self, node: ast.Name) -> None:
        self._expression(node, None)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self._expression(node, None)

    def visit_Call(self, node: ast.Call) -> None:
        self._expression(node.func, node)
        for each in (*node.args, *node.keywords):
            self.visit(each)
        name, first = self._found.name(node.func), node.args[0] if node.args else None
        if name in _IMPORTERS and isinstance(first, ast.Constant) and isinstance(first.value, str):
            self._use(first.value, node)

    def _expression(self, node: ast.expr, call: ast.Call | None) -> None:
        name, is_guess = self._resolve(node, 0)
        if name is None:
            if isinstance(node, ast.Attribute):
                self.visit(node.value)
            elif not isinstance(node, ast.Name):
                self.visit(node)
            return
        self._found.names[id(node)] = name
        if isinstance(getattr(node, "ctx", None), ast.Load) and "." in name:
            self._use(name, node, call, is_guess)

    def _use(
        self, name: str, node: ast.AST, call: ast.Call | None = None, is_guess: bool = False
    ) -> None:
        line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0) + 1
        self._found.uses.append(Use(name, line, column, call, is_guess))

    def _resolve(self, node: ast.expr, depth: int) -> tuple[str | None, bool]:
        """The dotted name that a chain is; None if what it begins with is not followed."""
        if isinstance(node, ast.Attribute):
            base, is_guess = self._resolve(node.value, depth)
            return (None if base is None else f"{base}.{node.attr}"), is_guess
        if not isinstance(node, ast.Name) or depth > 10:
            return None, False
        for scope in reversed(self._scopes):
            if node.id in scope.bound:
                bound = scope.bound[node.id]
                if isinstance(bound, ast.expr):
                    return self._resolve(bound, depth + 1)
                return bound, False
        if hasattr(builtins, node.id):
            return node.id, False
        star = next((m for scope in reversed(self._scopes) for m in scope.stars[::-1]), None)
        return (f"{star}.{node.id}", True) if star else (None, False)


def _scope(body: list[ast.stmt] | list[ast.expr]) -> _Scope:
    """What the statements of a scope bind, without those of functions in it."""
    scope, waiting = _Scope(), list[ast.AST](body)
    while waiting:
        node = waiting.pop(0)
        _bind(scope, node)
        if not isinstance(node, _FUNCTIONS):
            waiting += ast.iter_child_nodes(node)
    return scope


def _bind(scope: _Scope, node: ast.AST) -> None:
    match node:
        case ast.Import(names=names):
            for alias in names:
                top = alias.name.partition(".")[0]
                scope.bound[alias.asname or top] = alias.name if alias.asname else top
        case ast.ImportFrom(module=module, names=names, level=level):
            for alias in names:
                known = module is not None and not level
                if alias.name == "*":
                    scope.stars += [module] if module and known else []
                else:
                    scope.bound[alias.asname or alias.name] = (
                        f"{module}.{alias.name}" if known else None
                    )
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.Name() | ast.Attribute() as value):
            scope.bound.setdefault(name, value)
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            scope.bound.setdefault(name, None)
        case ast.Name(id=name, ctx=ast.Store()):
            scope.bound.setdefault(name, None)
