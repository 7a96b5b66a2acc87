"""Small changes of our own code, one at a time: a comparison turned round, a condition negated, a call left out.

A changed function takes the place of the right one by its code object, so that every user of the function runs it.
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
        """Let the function run the changed code: every user of the function runs it from now on."""
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


_TURNED: dict[type[ast.AST], type[Any]] = {
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
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}


def _turned(node: ast.AST) -> ast.AST | None:
    """A node as a slip of the hand would have it: turned round, without its `not`, left out. None: it stays."""
    match node:
        case ast.Compare(ops=[op, *rest]) if type(op) in _TURNED:
            return ast.Compare(node.left, [_TURNED[type(op)](), *rest], node.comparators)
        case ast.BoolOp(op=op):
            return ast.BoolOp(_TURNED[type(op)](), node.values)
        case ast.BinOp(op=op) if type(op) in _TURNED:
            return ast.BinOp(node.left, _TURNED[type(op)](), node.right)
        case ast.UnaryOp(op=ast.Not()):
            return node.operand
        case ast.Expr(value=ast.Call() as call) | ast.Expr(value=ast.Await(value=ast.Call() as call)):
            return None if ast.unparse(call.func).startswith("log.") else ast.Expr(ast.Constant(None))
        case _:
            return None


class _Changer(ast.NodeTransformer):
    """Makes change number `site`, in the order in which a function is read."""

    def __init__(self, site: int) -> None:
        self._site = site
        self.count = 0
        self.line = 0
        self.told = ""

    def visit(self, node: ast.AST) -> Any:
        """Change what is inside, then this."""
        self.generic_visit(node)
        changed = _turned(node)
        if changed is None:
            return node
        self.count += 1
        if self.count - 1 != self._site:
            return node
        becomes = "left out" if isinstance(changed, ast.Expr) else ast.unparse(changed)
        self.line, self.told = getattr(node, "lineno", 0), f"{ast.unparse(node).partition(chr(10))[0]} -> {becomes}"
        return ast.copy_location(changed, node)


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
    chosen = random.Random(seed).sample(sites, min(count, len(sites)))
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
