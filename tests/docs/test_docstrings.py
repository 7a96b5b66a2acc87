"""Docstrings name what exists: a parameter that was renamed or a module that moved is renamed in its docstring too.

A name in single backticks must occur in the code of the same module, be a module of the same package or a class, or be
a word of the configuration file or of the kubelet's API. `module.name` and `Class.name` must be known there. The check
is made to give no false alarm: it misses a stale name that the module still uses for something else.
"""

import ast
import builtins
import json
import keyword
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
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


class Module:
    """A module's parts: the names in its `code`, its `docstrings`, its `classes`, and what it `imports`."""

    def __init__(self, text: str) -> None:
        nodes = [*ast.walk(ast.parse(text))]
        prose = docstrings(nodes)
        self.docstrings = [*prose.values()]
        self.code = names_in_code(nodes, prose.keys())
        self.classes = [node.name for node in nodes if isinstance(node, ast.ClassDef)]
        imports = [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]
        self.imports = {each.asname or each.name for node in imports for each in node.names}


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
        for face in [path for path in self.code if path.stem == "__init__"]:  # it speaks of its whole room
            self.code[face].update(*(code for path, code in self.code.items() if path.parent == face.parent))
        for path, module in modules.items():
            code = own_names(path, self.code[path], module)
            for name in path.parts[:-1]:
                self.homes.setdefault(name, set()).update([path.stem, *path.parts])
            self.classes.update(module.classes)
            for name in [path.parent.name if path.stem == "__init__" else path.stem, *module.classes]:
                self.homes.setdefault(name, set()).update(code)

    def stale(self, path: Path, name: str) -> bool:
        """Whether a docstring of the module at `path` names what does not exist."""
        first, *rest = name.split(".")
        if len(first) <= _SHORT or name in self.words or first in self.code[path]:
            return False
        if rest and first in self.homes:
            return rest[0] not in self.homes[first]
        return first not in self.words | self.classes | self._reachable(path)

    def _reachable(self, path: Path) -> set[str]:
        """The modules and folders of the module's own room, and the top of the package."""
        rooms = [other.with_suffix("").parts for other in self.code if other.parts[0] == path.parts[0]]
        return {part for room in rooms for part in room} | {Path(other.parts[0]).stem for other in self.code}


def stale_names(modules: Mapping[Path, Module], words: frozenset[str]) -> list[str]:
    """`path:line: name` for every stale name; paths are relative to the package."""
    known = Known(modules, words)
    return [
        f"{path}:{text.lineno}: {name}"
        for path, module in modules.items()
        for text in module.docstrings
        for name in _NAME.findall(str(text.value))
        if known.stale(path, name)
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
