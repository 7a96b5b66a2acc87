"""Small changes of our own code, one at a time: a comparison turned round, a condition negated, a call left out.

A changed function takes the place of the right one by its code object, so that whoever has the function runs it.
"""

import ast
import contextlib
import copy
import importlib
import inspect
import random
import sys
import types
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_CODE = "code "  # how the name of a mutant begins
_INSIDE = (
    *("vdev.core.retention.", "vdev.core.inventory.", "vdev.core.allocation.", "vdev.core.health.", "vdev.plugin."),
    *("vdev.sockets.", "vdev.health.", "vdev.agent.inputs.", "vdev.agent.outputs.", "vdev.hostfs.watching."),
    *("vdev.dra.", "vdev.core.claims.", "vdev.core.slices."),
)
_MODULES = ("vdev.core.decide", "vdev.agent.reconcile", "vdev.agent.events", "vdev.agent.due", "vdev.agent.requests")


@dataclass(frozen=True, slots=True)
class CodeMutant:
    """The change number `site` of a function."""

    module: str
    function: str
    site: int

    @property
    def name(self) -> str:
        """By which it is applied again."""
        return f"{_CODE}{self.module}:{self.function}:{self.site}"

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """Let the function run the changed code: whoever has the function runs it from now on."""
        function = _function(self.module, self.function)
        before = function.__code__
        function.__code__ = self._code(before)
        try:
            yield
        finally:
            function.__code__ = before

    @property
    def package(self) -> str:
        """The package below vdev that it is in."""
        return self.module.split(".")[1]

    def described(self) -> str:
        """What was changed, as `file:line: before -> after`."""
        tree, changer = self._changed()
        del tree
        file = Path(sys.modules[self.module].__file__ or "").name
        return f"{self.module.removeprefix('vdev.')}.{self.function} ({file}:{changer.line}): {changer.told}"

    def _changed(self) -> tuple[ast.Module, "_Changer"]:
        tree = ast.parse(inspect.getsource(sys.modules[self.module]))
        node = _definitions(tree)[self.function]
        changer = _Changer(self.site)
        for number, statement in enumerate(node.body):
            node.body[number] = changer.visit(statement)
        return ast.fix_missing_locations(tree), changer

    def _code(self, before: types.CodeType) -> types.CodeType:
        tree, _ = self._changed()
        compiled = compile(tree, before.co_filename, "exec", dont_inherit=True)
        return next(
            code
            for code in _codes(compiled)
            if code.co_qualname == before.co_qualname and code.co_firstlineno == before.co_firstlineno
        )


_TURNED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.GtE,
    ast.GtE: ast.Lt,
    ast.Gt: ast.LtE,
    ast.LtE: ast.Gt,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}


class _Changer(ast.NodeTransformer):
    """Makes change number `site`, in the order in which a function is read."""

    def __init__(self, site: int) -> None:
        self._site = site
        self.count = 0
        self.line = 0
        self.told = ""

    def _is_it(self, node: ast.AST) -> bool:
        self.count += 1
        return self.count - 1 == self._site and bool(self._note(node))

    def _note(self, node: ast.AST) -> int:
        self.line, self.told = getattr(node, "lineno", 0), ast.unparse(node).partition("\n")[0]
        return 1

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        """Turn the first comparison round."""
        self.generic_visit(node)
        if type(node.ops[0]) in _TURNED and self._is_it(node):
            node.ops[0] = _TURNED[type(node.ops[0])]()
            self.told += f" -> {ast.unparse(node)}"
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        """`and` becomes `or`, and the reverse."""
        self.generic_visit(node)
        if self._is_it(node):
            node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
            self.told += f" -> {ast.unparse(node)}"
        return node

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        """`not` is left out."""
        self.generic_visit(node)
        if isinstance(node.op, ast.Not) and self._is_it(node):
            self.told += f" -> {ast.unparse(node.operand)}"
            return node.operand
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        """`+` becomes `-`, `|` becomes `&`, and the reverse."""
        self.generic_visit(node)
        turned: dict[type[ast.operator], type[ast.operator]] = {
            ast.Add: ast.Sub,
            ast.Sub: ast.Add,
            ast.BitOr: ast.BitAnd,
            ast.BitAnd: ast.BitOr,
        }
        if type(node.op) in turned and self._is_it(node):
            node.op = turned[type(node.op)]()
            self.told += f" -> {ast.unparse(node)}"
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        """A call is left out."""
        self.generic_visit(node)
        value = node.value.value if isinstance(node.value, ast.Await) else node.value
        logs = isinstance(value, ast.Call) and ast.unparse(value.func).startswith("log.")
        if isinstance(value, ast.Call) and not logs and self._is_it(node):
            self.told += " -> left out"
            return ast.copy_location(ast.Expr(ast.Constant(None)), node)
        return node


def drawn(ran: Sequence[types.CodeType], count: int, seed: int) -> list[str]:
    """The names of so many changes, drawn by the seed from the functions that ran."""
    known = {(code.co_filename, code.co_firstlineno) for code in ran}
    sites: list[CodeMutant] = []
    for module in sorted(_modules()):
        tree = ast.parse(inspect.getsource(sys.modules[module]))
        file = sys.modules[module].__file__
        for name, node in _definitions(tree).items():
            line = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            if (file, line) not in known:
                continue
            changer = _Changer(-1)
            for statement in copy.deepcopy(node.body):
                changer.visit(statement)
            sites += [CodeMutant(module, name, number) for number in range(changer.count)]
    chosen = random.Random(seed).sample(sites, min(count, len(sites)))  # noqa: S311 - it repeats on purpose
    return [each.name for each in chosen]


def _modules() -> list[str]:
    return [name for name in sys.modules if name in _MODULES or name.startswith(_INSIDE)]


def _definitions(tree: ast.Module) -> dict[str, ast.FunctionDef | ast.AsyncFunctionDef]:
    """The functions and methods of a module, by their qualified names."""
    found: dict[str, ast.FunctionDef | ast.AsyncFunctionDef] = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found[node.name] = node
        elif isinstance(node, ast.ClassDef):
            for each in node.body:
                if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and not each.decorator_list:
                    found[f"{node.name}.{each.name}"] = each
    return {name: node for name, node in found.items() if not node.decorator_list}


def _function(module: str, name: str) -> types.FunctionType:
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = vars(found)[part]
    assert isinstance(found, types.FunctionType)
    return found


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            yield from _codes(each)


def is_one(name: str) -> bool:
    """Whether it is the name of such a change."""
    return name.startswith(_CODE)


def mutant(name: str) -> CodeMutant:
    """The one of that name."""
    module, function, site = name.removeprefix(_CODE).split(":")
    return CodeMutant(module, function, int(site))
