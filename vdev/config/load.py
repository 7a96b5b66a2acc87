"""Files to one tree of values with positions. Knows YAML and nothing of what the values mean; next: `read`.

The tree is built from the parser's events rather than by PyYAML's composer: the C composer recurses without a limit,
and the constructor resolves YAML 1.1's scalars, in which `0451` is 297, `12:34` is 754 and `on` is true. Here a scalar
keeps the text that was written, and the field that takes it decides (`types`). JSON is read as the YAML that it is.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path as FilePath

import yaml

from ..core.origin import Override
from ..errors import ConfigError
from .place import Finding, Path, Place, finding, show

MAX_BYTES = 8 * 1024 * 1024  # a ConfigMap holds 1 MiB at most
MAX_DEPTH = 64  # the schema needs 10
MAX_VALUES = 100_000  # after aliases are expanded
MAX_TEXT = 128 * 1024  # characters of one scalar; Linux takes no longer environment variable

_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # YAML 1.2, 5.1
_NULL = re.compile(r"~|null|Null|NULL|")
_NOT_TEXT = re.compile(  # numbers and booleans of YAML 1.2's core schema, which includes JSON's
    r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+"
    r"|[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?"
    r"|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
    r"|true|True|TRUE|false|False|FALSE"
)
_TAG = "tag:yaml.org,2002:"
_BOMS = {b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16", b"\x00\x00": "UTF-32"}


class Plain(str):
    """An unquoted scalar that YAML reads as a number or a boolean, as it was written."""

    __slots__ = ()


Tree = None | str | list["Tree"] | dict[str, "Tree"]
"""What a file holds: `Plain` for unquoted numbers and booleans, `str` for all other scalars."""


@dataclass(frozen=True, slots=True)
class Document:
    """The joined content of the files, with the places of its keys and values.

    `problems` holds what is wrong without making the rest unreadable: duplicate keys, sections in two files.
    """

    root: dict[str, Tree] = field(default_factory=dict)
    keys: Mapping[Path, Place] = field(default_factory=dict)
    values: Mapping[Path, Place] = field(default_factory=dict)
    files: tuple[str, ...] = ()
    problems: tuple[Finding, ...] = ()

    def known(self, path: Path) -> Path:
        """The longest beginning of `path` that the files hold."""
        while path and path not in self.values:
            path = path[:-1]
        return path

    def value_place(self, path: Path) -> Place:
        """Where the value of `path` stands, or the nearest value around it."""
        return self.values.get(self.known(path)) or Place(self.files[0] if self.files else "")

    def key_place(self, path: Path) -> Place:
        """Where the key of `path` stands, or its value when it is an item of a list."""
        return self.keys.get(path) or self.value_place(path)


def read_file(path: FilePath) -> Document:
    """Read one file. Raises ConfigError when it cannot be read at all, with the reason."""
    name = str(path)
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        if isinstance(error, IsADirectoryError):
            raise _stop(Place(name), "is a directory, not a file") from error
        raise _stop(Place(name), f"cannot be read: {error.strerror}") from error
    except ValueError as error:  # a NUL byte in the name
        raise _stop(Place(name), f"cannot be read: {error}") from error
    return read_bytes(data, name)


def read_bytes(data: bytes, name: str) -> Document:
    """Read a file's content. Raises ConfigError."""
    if len(data) > MAX_BYTES:
        raise _stop(Place(name), f"is larger than {MAX_BYTES // 1024 // 1024} MiB", "is it the right file?")
    if encoding := _BOMS.get(data[:2]):
        raise _stop(Place(name, 1, 1), f"is {encoding} text, not UTF-8", "save it as UTF-8")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8-sig", "replace")
        raise _stop(_place(before, name), f"byte 0x{data[error.start]:02x} is not UTF-8", "save it as UTF-8") from error
    return read_text(text, name)


def read_text(text: str, name: str) -> Document:
    """Read a file's text. Raises ConfigError."""
    if bad := _UNPRINTABLE.search(text):
        place = _place(text[: bad.start()], name)
        message = f"character U+{ord(bad.group()):04X} is not allowed in YAML"
        raise _stop(place, message, "write it as an escape in double quotes")
    try:
        node = _Composer(text, name).document()
    except yaml.MarkedYAMLError as error:
        raise _syntax_error(error, text, name) from error
    except yaml.YAMLError as error:
        raise _stop(Place(name), f"is not YAML: {error}") from error
    if node is None or node.content is None:
        raise _stop(Place(name), "is empty", "expected a mapping that starts with 'version: v1'")
    if not isinstance(node.content, _Pairs):
        what = "a list" if isinstance(node.content, _Items) else f"the text {str(node.content)[:40]!r}"
        message = f"expected a mapping at the top of the file, got {what}"
        raise _stop(node.place, message, "it starts with 'version: v1'")
    expand = _Expansion()
    root = expand.mapping(node.content, ())
    _refuse_config_map(root, node.place)
    values = {(): node.place} | expand.values
    return Document(root, expand.keys, values, (name,), tuple(expand.problems))


def join(documents: Sequence[Document]) -> Document:
    """Several files as one: each top-level section may stand in one of them, except `version`, which must agree."""
    if len(documents) == 1:
        return documents[0]
    root: dict[str, Tree] = {}
    keys: dict[Path, Place] = {}
    values: dict[Path, Place] = {}
    problems: list[Finding] = []
    for document in documents:
        problems += document.problems
        for section, value in document.root.items():
            path = (section,)
            if section not in root:
                continue
            if section == "version":
                if value != root[section]:
                    message = f"version {value} differs from {root[section]} at {values[path]}"
                    problems.append(finding(document.values[path], path, message))
            else:
                message = f"section {section!r} stands in two files; the other is at {keys[path]}"
                hint = "a section may stand in one file only: move its content together"
                problems.append(finding(document.keys[path], path, message, hint=hint))
        new = document.root.keys() - root.keys()
        root |= {section: value for section, value in document.root.items() if section in new}
        keys |= {path: place for path, place in document.keys.items() if path[0] in new}
        values |= {path: place for path, place in document.values.items() if not path or path[0] in new}
    files = tuple(file for document in documents for file in document.files)
    return Document(root, keys, {(): Place(files[0], 1, 1)} | values, files, tuple(problems))


def overlaid(document: Document, overrides: Mapping[Path, Override]) -> Document:
    """The document with values that stand over its own; their place is their source."""
    root, values = document.root, dict(document.values)
    for path, override in overrides.items():
        value = override.value
        tree: Tree = (
            list(value) if isinstance(value, tuple) else value if isinstance(value, str) else Plain(str(value).lower())
        )
        root = _put(root, path, tree)
        values = {old: place for old, place in values.items() if old[: len(path)] != path}
        for end in range(1, len(path)):
            values.setdefault(path[:end], Place(override.source))
        values[path] = Place(override.source)
    keys = {path: place for path, place in document.keys.items() if path not in overrides}
    return replace(document, root=root, keys=keys, values=values)


def _put(tree: Tree, path: Path, value: Tree) -> dict[str, Tree]:
    """The mapping with the value at the path; what stands in the way gives way."""
    old = tree if isinstance(tree, dict) else {}
    key = str(path[0])
    return {**old, key: _put(old.get(key), path[1:], value) if len(path) > 1 else value}


# --- events to nodes -------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Items:
    nodes: list["_Node"]


@dataclass(slots=True)
class _Pairs:
    nodes: list[tuple["_Node", "_Node"]]


@dataclass(slots=True)
class _Node:
    """A value with its place. An anchored node is shared by its aliases, and `open` while its end is not read."""

    place: Place
    content: str | _Items | _Pairs | None
    plain: bool = False
    open: bool = False


_Base = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_Base):  # type: ignore[misc, valid-type]  # the C loader exists where libyaml does
    """A parser that leaves every untagged scalar a text."""

    yaml_implicit_resolvers: dict[str, list[object]] = {}  # PyYAML's own way to say it


class _Composer:
    """Builds the nodes of one document, with depth, anchors and tags checked on the way."""

    def __init__(self, text: str, name: str) -> None:
        self._events: Iterator[yaml.Event] = iter(yaml.parse(text, Loader=_Loader))
        self._name = name
        self._anchors: dict[str, _Node] = {}
        self._count = 0

    def document(self) -> _Node | None:
        """The only document, or None when there is none."""
        node: _Node | None = None
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                if node is not None:
                    hint = "a configuration file holds one document"
                    raise _stop(self._place(event), "a second document starts here", hint)
                node = self._node(next(self._events), 1)
        return node

    def _place(self, event: yaml.Event) -> Place:
        mark = event.start_mark
        assert mark is not None, "the parser marks every event"
        return Place(self._name, mark.line + 1, mark.column + 1)

    def _node(self, event: yaml.Event, depth: int) -> _Node:
        place = self._place(event)
        self._count += 1
        if self._count > MAX_VALUES:
            raise _stop(place, f"the file holds more than {MAX_VALUES} values")
        if depth > MAX_DEPTH:
            raise _stop(place, f"nested more than {MAX_DEPTH} levels deep")
        if isinstance(event, yaml.AliasEvent):
            return self._aliased(str(event.anchor), place)
        node = _Node(place, None, open=True)
        if isinstance(event, yaml.NodeEvent) and event.anchor:
            self._anchors[event.anchor] = node
        if isinstance(event, yaml.ScalarEvent):
            self._scalar(event, node)
        elif isinstance(event, yaml.SequenceStartEvent):
            _check_tag(event.tag, "seq", place)
            node.content = items = _Items([])
            while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
                items.nodes.append(self._node(event, depth + 1))
        elif isinstance(event, yaml.MappingStartEvent):
            _check_tag(event.tag, "map", place)
            node.content = pairs = _Pairs([])
            while not isinstance(event := next(self._events), yaml.MappingEndEvent):
                key = self._node(event, depth + 1)
                pairs.nodes.append((key, self._node(next(self._events), depth + 1)))
        node.open = False
        return node

    def _aliased(self, anchor: str, place: Place) -> _Node:
        node = self._anchors.get(anchor)
        if node is None:
            raise _stop(place, f"alias *{anchor} has no anchor &{anchor} before it")
        if node.open:
            raise _stop(place, f"alias *{anchor} stands inside its own anchor, so the value would never end")
        return node

    def _scalar(self, event: yaml.ScalarEvent, node: _Node) -> None:
        if len(event.value) > MAX_TEXT:
            raise _stop(node.place, f"a text of {len(event.value)} characters; at most {MAX_TEXT} are allowed")
        tag = (event.tag or "").removeprefix(_TAG)
        node.plain = not event.style and not tag
        if tag in ("int", "float", "bool"):
            node.content = Plain(event.value)
        elif tag == "null":
            node.content = None
        elif tag not in ("", "!", "str"):
            raise _stop(node.place, f"tag {event.tag!r} is not supported", "write the value without a tag")
        elif node.plain and _NULL.fullmatch(event.value):
            node.content = None
        elif node.plain and _NOT_TEXT.fullmatch(event.value):
            node.content = Plain(event.value)
        else:
            node.content = event.value


def _check_tag(tag: str | None, allowed: str, place: Place) -> None:
    if tag not in (None, "!", _TAG + allowed):
        raise _stop(place, f"tag {tag!r} is not supported", "write the value without a tag")


# --- nodes to the tree -----------------------------------------------------------------------------------------------


class _Expansion:
    """Turns nodes into the tree, aliases and merge keys expanded, and notes every place."""

    def __init__(self) -> None:
        self.keys: dict[Path, Place] = {}
        self.values: dict[Path, Place] = {}
        self.problems: list[Finding] = []

    def mapping(self, pairs: _Pairs, path: Path) -> dict[str, Tree]:
        """The mapping's values; its own keys come before merged ones, and of duplicates the first is kept."""
        result: dict[str, Tree] = {}
        merged: list[_Pairs] = []
        for key, value in pairs.nodes:
            if key.plain and key.content == "<<":
                merged += _sources(value)
                continue
            name = _key(key)
            here = (*path, name)
            if name in result:
                message = f"key {name!r} is given twice; the first is at {self.keys[here]}"
                self.problems.append(finding(key.place, here, message, hint="remove one of them"))
                continue
            self.keys[here] = key.place
            result[name] = self._value(value, here)
        for source in merged:
            for key, value in source.nodes:
                name = _key(key)
                if name not in result:
                    self.keys[*path, name] = key.place
                    result[name] = self._value(value, (*path, name))
        return result

    def _value(self, node: _Node, path: Path) -> Tree:
        if len(self.values) >= MAX_VALUES:
            raise _stop(node.place, f"aliases expand to more than {MAX_VALUES} values")
        if len(path) > MAX_DEPTH:
            raise _stop(node.place, f"nested more than {MAX_DEPTH} levels deep")
        self.values[path] = node.place
        match node.content:
            case _Items(nodes):
                return [self._value(item, (*path, index)) for index, item in enumerate(nodes)]
            case _Pairs():
                return self.mapping(node.content, path)
            case scalar:
                return scalar


def _key(node: _Node) -> str:
    """A key's text as written; numbers and words such as `on` stay what they look like."""
    match node.content:
        case _Items() | _Pairs():
            raise _stop(node.place, "a key must be a text, not a list or a mapping")
        case None:
            raise _stop(node.place, "a key is missing before ':'", "quote it if it is meant to be 'null' or '~'")
        case text:
            return str(text)


def _sources(node: _Node) -> list[_Pairs]:
    """What a merge key refers to: one mapping, or a list of them with the first winning."""
    match node.content:
        case _Pairs():
            sources = [node]
        case _Items(nodes):
            sources = nodes
        case _:
            sources = []
    pairs = [source.content for source in sources if isinstance(source.content, _Pairs)]
    if not pairs or len(pairs) != len(sources):
        raise _stop(node.place, "'<<' merges a mapping or a list of mappings, such as '<<: *defaults'")
    if any(key.plain and key.content == "<<" for each in pairs for key, _ in each.nodes):
        hint = "merge both where they are needed: '<<: [*a, *b]'"
        raise _stop(node.place, "a merged mapping must not hold '<<' itself", hint)
    return pairs


# --- errors ----------------------------------------------------------------------------------------------------------


def _stop(place: Place, message: str, hint: str = "") -> ConfigError:
    return ConfigError((finding(place, (), message, hint=hint),))


def _place(before: str, name: str) -> Place:
    """The place right after the text `before`."""
    return Place(name, before.count("\n") + 1, len(before) - before.rfind("\n"))


def _syntax_error(error: yaml.MarkedYAMLError, text: str, name: str) -> ConfigError:
    mark = error.problem_mark or error.context_mark
    place = Place(name, mark.line + 1, mark.column + 1) if mark else Place(name)
    hint = ""
    if mark:
        lines = text.splitlines()
        line = lines[mark.line] if mark.line < len(lines) else ""
        if "\t" in line[: mark.column + 1]:
            hint = "YAML is indented with spaces; there is a tab in this line"
        elif not text[_offset(text, mark.line, mark.column) :].strip():
            hint = "the file ends too early; was it written completely?"
    context = f"{error.context}: " if error.context else ""
    return _stop(place, f"is not YAML: {context}{error.problem}", hint)


def _offset(text: str, line: int, column: int) -> int:
    start = 0
    for _ in range(line):
        start = text.find("\n", start) + 1
        if not start:
            return len(text)
    return start + column


def _refuse_config_map(root: dict[str, Tree], place: Place) -> None:
    """A whole Kubernetes object given by mistake gets an answer of its own."""
    if "kind" not in root or "apiVersion" not in root:
        return
    kind, data = root["kind"], root.get("data")
    message = f"this is a Kubernetes object of kind {kind}; the configuration is the text inside it"
    if isinstance(data, dict) and data:
        keys = " or ".join(show(("data", key)) for key in data)
        hint = f"extract the value of {keys} into a file of its own, or mount the ConfigMap and give that file"
        raise _stop(place, message, hint)
    raise _stop(place, message)
