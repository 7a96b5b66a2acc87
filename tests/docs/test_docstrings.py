"""Docstrings name what exists: a parameter that was renamed or a module that moved is renamed in its docstring too.

A name in single backticks must occur in the code of the same module, be a module of the same package or a class, or be
a word of the configuration file or of the kubelet's API. `module.name` and `Class.name` must be known there.

A function's docstring may use of its module what the function sees: its parameters and all else that is named in it or
in a function around it, the members of its class and of that one's bases, and the names of the module itself. A string
counts everywhere in its module if it is the name and nothing else: a key, a value of an enum, a literal of a type.

A class's or a module's docstring may use every name and every word of a string in the module. There the check misses
a stale name that the module still uses for something else.
"""

import ast
import builtins
import json
import keyword
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "vdev"

OTHERS = frozenset(
    {
        # The kernel's subsystems, links and device names.
        *("drm", "driver", "hidraw", "iommu_group", "net", "tty", "ttyUSB10", "ttyUSB2", "vfio", "video0", "video2"),
        "video4linux",
        # The kubelet's files, functions, reasons, policies and resources; Go's and ROCm's names; HTTP's; units.
        *("CreateContainerConfigError", "IsExtendedResourceName", "allocatedResourcesStatus", "cpu", "none"),
        *("kubelet_internal_checkpoint", "resolve.go", "spx_nps1", "Host", "GB", "GiB"),
        # Examples of values; the standard library's, and a base class's from another project.
        *("ACME_DEV_NPU_VISIBLE_DEVICES", "acme.dev", "npu", "asyncio", "to_thread", "should_exit"),
        *("v1beta1", "vdev"),
    }
)
"""Names that are somebody else's, which no code here need contain. Write a path or a value in full (`/dev/video0`)
before you add one."""

_NAME = re.compile(r"(?<!`)`([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)(?:\(\))?`(?!`)")
_WORD = re.compile(r"[A-Za-z_]\w*")
_SHORT = 2  # letters, permissions, variables of a formula
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class Docstring:
    """A `text` at a `line`, and what it may use of its module: `seen` is None for all, `owner` the class it is in."""

    line: int
    text: str
    seen: frozenset[str] | None = None
    owner: str = ""


class Module:
    """A module's parts: the names in its `code`, its `docstrings`, its `classes`, and what it `imports`.

    `own` are the names that the module itself has, and the strings in it that are names. `members` are those of each
    class, and `bases` the classes that it names as its bases.
    """

    def __init__(self, text: str) -> None:
        tree = ast.parse(text)
        nodes = [*ast.walk(tree)]
        self._prose = docstrings(nodes)
        self.code = names_in_code(nodes, self._prose.keys())
        self.classes = [node.name for node in nodes if isinstance(node, ast.ClassDef)]
        imports = [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]
        self.imports = {each.asname or each.name for node in imports for each in node.names}
        self.own = names_of_scope(tree) | {
            node.value
            for node in nodes
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier()
        }
        self.members: dict[str, set[str]] = {}
        self.bases: dict[str, set[str]] = {}
        self.docstrings = [*self._found(tree, None, "")]

    def _found(self, node: ast.AST, seen: frozenset[str] | None, owner: str) -> Iterator[Docstring]:
        """The docstrings in a node, each with what the innermost function around it sees."""
        for child in ast.iter_child_nodes(node):
            if id(child) in self._prose:
                yield Docstring(child.lineno, str(self._prose[id(child)].value), seen, owner)
            elif isinstance(child, ast.ClassDef):
                self.members.setdefault(child.name, set()).update(members_of(child))
                self.bases.setdefault(child.name, set()).update(names_in_code(child.bases, ()))
                yield from self._found(child, seen, child.name)
            elif isinstance(child, _FUNCTIONS):
                inside = names_in_code([each for each in ast.walk(child) if not isinstance(each, ast.Constant)], ())
                yield from self._found(child, frozenset(inside | (seen or set())), owner)
            else:
                yield from self._found(child, seen, owner)


def names_of_scope(scope: ast.AST) -> set[str]:
    """What a module or a class has by name: assigned, defined and imported, under conditions too."""
    found: set[str] = set()
    for node in ast.iter_child_nodes(scope):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                found.add(name)
            case ast.alias(name=name, asname=other):
                found.add(other or name.partition(".")[0])
            case ast.Name(id=name, ctx=ast.Store()):
                found.add(name)
            case _:
                found |= names_of_scope(node)
    return found


def members_of(node: ast.ClassDef) -> set[str]:
    """The names in a class's body, and the attributes that its methods give to `self`."""
    given = [each for each in ast.walk(node) if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store)]
    return names_of_scope(node) | {
        each.attr for each in given if isinstance(each.value, ast.Name) and each.value.id == "self"
    }


def docstrings(nodes: Sequence[ast.AST]) -> dict[int, ast.Constant]:
    """Every string that stands as a statement, by identity: docstrings, and the lines below a constant or a field."""
    return {
        id(node.value): node.value
        for node in nodes
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    }


def names_in_code(nodes: Sequence[ast.AST], prose: Collection[int]) -> set[str]:
    """Every identifier of a module outside its docstrings, and every word of its strings."""
    found: set[str] = set()
    for node in nodes:
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name) | ast.keyword(arg=str(name)):
                found.add(name)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                found.add(name)
            case ast.alias(name=name, asname=other):
                found.add(other or name.partition(".")[0])
            case ast.Constant(value=str(text)) if id(node) not in prose:
                found |= set(_WORD.findall(text))
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                found.add(name)
    return found


def own_names(path: Path, code: set[str], module: Module) -> set[str]:
    """What a module gives to others: what it only imports is not its own, unless it is a package's face."""
    return code if path.stem == "__init__" else code - module.imports


def vocabulary(schema: object) -> Iterator[str]:
    """The keys and the fixed values of a JSON schema, word by word."""
    match schema:
        case {**members}:
            yield from members.get("properties", {})
            fixed = [*members.get("enum", []), members.get("const")]
            yield from (word for each in fixed if isinstance(each, str) for word in _WORD.findall(each))
            for each in members.values():
                yield from vocabulary(each)
        case [*members]:
            for each in members:
                yield from vocabulary(each)


class Known:
    """What the code knows: `homes` are the names in each module, by its name and by those of its classes."""

    def __init__(self, modules: Mapping[Path, Module], words: frozenset[str]) -> None:
        self.words = words | set(dir(builtins)) | set(keyword.kwlist)
        self.homes: dict[str, set[str]] = {}
        self.classes: set[str] = set()
        self.code = {path: {*module.code} for path, module in modules.items()}
        self.own = {path: module.own for path, module in modules.items()}
        self.members: dict[str, set[str]] = {}
        self.bases: dict[str, set[str]] = {}
        for module in modules.values():
            for name in module.classes:
                self.members.setdefault(name, set()).update(module.members[name])
                self.bases.setdefault(name, set()).update(module.bases[name])
        for face in [path for path in self.code if path.stem == "__init__"]:  # it speaks of its whole room
            self.code[face].update(*(code for path, code in self.code.items() if path.parent == face.parent))
        for path, module in modules.items():
            code = own_names(path, self.code[path], module)
            for name in path.parts[:-1]:
                self.homes.setdefault(name, set()).update([path.stem, *path.parts])
            self.classes.update(module.classes)
            for name in [path.parent.name if path.stem == "__init__" else path.stem, *module.classes]:
                self.homes.setdefault(name, set()).update(code)

    def stale(self, path: Path, docstring: Docstring, name: str) -> bool:
        """Whether a docstring of the module at `path` names what does not exist, or what its function does not see."""
        first, *rest = name.split(".")
        if len(first) <= _SHORT or name in self.words:
            return False
        if first in (self.code[path] if rest else self._seen(path, docstring)):
            return False
        if rest and first in self.homes:
            return rest[0] not in self.homes[first]
        return first not in self.words | self.classes | self._reachable(path)

    def _seen(self, path: Path, docstring: Docstring) -> set[str]:
        if docstring.seen is None:
            return self.code[path]
        return docstring.seen | self.own[path] | self._members(docstring.owner)

    def _members(self, owner: str) -> set[str]:
        """The members of a class and of all its bases, as far as they are ours."""
        found, left = set(), [owner]
        while left:
            name = left.pop()
            if name not in found:
                found.add(name)
                left += self.bases.get(name, ())
        return {member for name in found for member in self.members.get(name, ())}

    def _reachable(self, path: Path) -> set[str]:
        """The modules and folders of the module's own room, and the top of the package."""
        rooms = [other.with_suffix("").parts for other in self.code if other.parts[0] == path.parts[0]]
        return {part for room in rooms for part in room} | {Path(other.parts[0]).stem for other in self.code}


def stale_names(modules: Mapping[Path, Module], words: frozenset[str]) -> list[str]:
    """`path:line: name` for every stale name; paths are relative to the package."""
    known = Known(modules, words)
    return [
        f"{path}:{docstring.line}: {name}"
        for path, module in modules.items()
        for docstring in module.docstrings
        for name in _NAME.findall(docstring.text)
        if known.stale(path, docstring, name)
    ]


@pytest.mark.long
def test_docstrings_name_what_exists():
    """In every module that a person wrote."""
    modules = {
        path.relative_to(PACKAGE): Module(path.read_text())
        for path in PACKAGE.rglob("*.py")
        if path.relative_to(PACKAGE).parts[0] != "pb"
    }
    words = set(vocabulary(json.loads((ROOT / "configs/vdev.schema.json").read_text())))
    for stub in PACKAGE.glob("pb/*.pyi"):
        words |= Module(stub.read_text()).code
    stale = stale_names(modules, OTHERS | words)
    assert not stale, "\n".join(["stale names in docstrings:", *stale])


@pytest.mark.parametrize(
    ("docstring", "stale"),
    [
        ("`limit` bounds it, `on_end` is called.", ["on_end"]),
        ("`server` serves, `Server.limit` bounds.", []),
        ("See `server.Server`, `server.Gone`, `other.Server`.", ["server.Gone", "other.Server"]),
        ("The key `devices`, `None`, `for` and a letter `c`.", []),
        ("A path `/dev/gone`, a command `vdev gone` and ``gone`` are no names.", []),
        ("`limit()` is a call, and so is `on_end()`.", ["on_end"]),
    ],
)
def test_what_counts_as_stale(docstring, stale):
    """The check is sure of what it says."""
    modules = {
        Path("plugin/server.py"): Module("class Server:\n    limit: int"),
        Path("plugin/other.py"): Module(f'from .server import Server\ndef limit():\n    """{docstring}"""'),
    }
    assert stale == [each.rpartition(" ")[2] for each in stale_names(modules, frozenset({"devices"}))]


SCOPES = """
from somewhere import Thing

LIMIT = 3

class Base:
    def __init__(self, given):
        self.taken = given

class Child(Base):
    '''{child}'''

    field: int

    def method(self, first):
        '''{method}'''
        local = first.attribute
        raise ValueError("words of a message")

        def inner(second):
            '''{inner}'''

def function(other, kind="literal"):
    '''{function}'''
"""


@pytest.mark.parametrize(
    ("place", "docstring", "stale"),
    [
        ("function", "`other`, `kind`, `literal`, `LIMIT`, `Thing`, `Child`", ""),
        ("function", "`first`, `field`, `method`, `local`, `taken`", "first field method local taken"),
        ("method", "`first`, `local`, `attribute`, `field`, `taken`, `literal`, `inner`, `second`", ""),
        ("method", "`other`, `given`, `message`", "other given message"),
        ("inner", "`second`, `first`, `local`, `field`, `Base`", ""),
        ("inner", "`other`, `renamed`", "other renamed"),
        ("child", "`other`, `first`, `given`, `message`", ""),
    ],
)
def test_what_a_function_sees(place, docstring, stale):
    """Its own and its class's names and the module's; neither another function's nor the words of a message."""
    texts = dict.fromkeys(("child", "method", "inner", "function"), "") | {place: docstring}
    modules = {Path("plugin/server.py"): Module(SCOPES.format(**texts))}
    assert stale.split() == [each.rpartition(" ")[2] for each in stale_names(modules, frozenset())]
