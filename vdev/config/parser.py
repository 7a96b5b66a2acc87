"""YAML text to a tree of values with positions.

The tree is built from the parser's events and not by PyYAML's composer: the C composer recurses without a limit and
refuses an anchor that is defined again, and the constructor reads YAML 1.1, in which `0451` is 297, `12:34` is 754 and
`on` is true. Here a scalar keeps its text, and the field decides what it means (`model.scalars`).
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import yaml

from ..errors import ConfigError
from ..model.problem import KeyPath, Place, Problem, Severity, Where, show
from ..model.section import FileMapping, Plain

_MAX_MESSAGE = 600  # characters; a message may quote a value of any length


def problem_at(
    place: Place, path: KeyPath, message: str, *, hint: str = "", severity: Severity = Severity.ERROR
) -> Problem:
    """Return a problem at a place; its `where` is `file:line:column: path`."""
    if len(message) > _MAX_MESSAGE:
        message = f"{message[: _MAX_MESSAGE // 2]} … {message[-_MAX_MESSAGE // 2 :]}"
    where = ": ".join(part for part in (str(place), show(path)) if part)
    return Problem(severity, where, message, hint, place, path)


def refusal(place: Place, message: str, hint: str = "", *, path: KeyPath = ()) -> ConfigError:
    """Return the exception for an error that makes a whole file unreadable."""
    return ConfigError((problem_at(place, path, message, hint=hint),))


def in_order(problems: Iterable[Problem], files: Iterable[str] = ()) -> tuple[Problem, ...]:
    """Return each problem once: file by file, from top to bottom; then problems without a place in a file."""
    rank = {file: number for number, file in reversed(list(enumerate(files)))}

    def position(problem: Problem) -> tuple[int, int, int]:
        place = problem.place
        return (rank.get(place.file, -1), place.line, place.column) if place else (len(rank), 0, 0)

    return tuple(sorted(dict.fromkeys(problems), key=position))


MAX_DEPTH = 64  # the schema needs 10
MAX_VALUES = 100_000  # after aliases are expanded
MAX_TEXT = 128 * 1024  # characters of one scalar; Linux takes no longer environment variable

_NULL = re.compile(r"~|null|Null|NULL|")
_NOT_TEXT = re.compile(  # numbers and booleans of YAML 1.2's core schema, which includes JSON's
    r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+"
    r"|[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?"
    r"|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
    r"|true|True|TRUE|false|False|FALSE"
)
_TAG = "tag:yaml.org,2002:"


Tree = None | str | list["Tree"] | dict[str, "Tree"]
"""The values of a file: `Plain` for unquoted numbers and booleans, `str` for all other scalars."""


# --- events to nodes -------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Pairs:
    """A mapping's nodes, in order, duplicates included."""

    nodes: list[tuple["YamlNode", "YamlNode"]]


@dataclass(slots=True)
class YamlNode:
    """A value with its place. An anchored node is shared by its aliases. It is `open` until its end is read."""

    place: Place
    content: "str | list[YamlNode] | Pairs | None"
    plain: bool = False
    open: bool = False

    @property
    def is_merge(self) -> bool:
        """Whether it is the key `<<`."""
        return self.plain and self.content == "<<"


_Base = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_Base):  # type: ignore[misc, valid-type]  # the C loader exists only with libyaml
    """A parser that leaves every untagged scalar a text."""

    yaml_implicit_resolvers: dict[str, list[object]] = {}


class Composer:
    """Builds the nodes of documents, and checks depth, anchors and tags."""

    def __init__(self, text: str, name: str) -> None:
        self._events: Iterator[yaml.Event] = iter(yaml.parse(text, Loader=_Loader))
        self._name = name
        self._count = 0
        self._anchors: dict[str, YamlNode] = {}

    def start(self) -> Place | None:
        """Go to the start of the next document, and return its place; None if there is none."""
        self._anchors.clear()
        return next((self._place(each) for each in self._events if isinstance(each, yaml.DocumentStartEvent)), None)

    def document(self) -> YamlNode:
        """Return the document that starts here."""
        return self._node(next(self._events), 1)

    def _place(self, event: yaml.Event) -> Place:
        mark = event.start_mark
        assert mark is not None, "the parser marks every event"
        return Place(self._name, mark.line + 1, mark.column + 1)

    def _node(self, event: yaml.Event, depth: int) -> YamlNode:
        place = self._place(event)
        self._count += 1
        if self._count > MAX_VALUES:
            raise refusal(place, f"the file holds more than {MAX_VALUES} values")
        if depth > MAX_DEPTH:
            raise refusal(place, f"nested more than {MAX_DEPTH} levels deep")
        if isinstance(event, yaml.AliasEvent):
            return self._aliased(str(event.anchor), place)
        node = YamlNode(place, None, open=True)
        if isinstance(event, yaml.NodeEvent) and event.anchor:
            self._anchors[event.anchor] = node
        if isinstance(event, yaml.ScalarEvent):
            self._scalar(event, node)
        elif isinstance(event, yaml.SequenceStartEvent):
            _check_tag(event.tag, "seq", place)
            node.content = items = []
            while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
                items.append(self._node(event, depth + 1))
        elif isinstance(event, yaml.MappingStartEvent):
            _check_tag(event.tag, "map", place)
            node.content = pairs = Pairs([])
            while not isinstance(event := next(self._events), yaml.MappingEndEvent):
                key = self._node(event, depth + 1)
                pairs.nodes.append((key, self._node(next(self._events), depth + 1)))
        node.open = False
        return node

    def _aliased(self, anchor: str, place: Place) -> YamlNode:
        node = self._anchors.get(anchor)
        if node is None:
            hint = f"quote a pattern that begins with '*': '*{anchor}'"
            raise refusal(place, f"alias *{anchor} has no anchor &{anchor} before it", hint)
        if node.open:
            raise refusal(place, f"alias *{anchor} is inside its own anchor, so the value would never end")
        return node

    def _scalar(self, event: yaml.ScalarEvent, node: YamlNode) -> None:
        if len(event.value) > MAX_TEXT:
            raise refusal(node.place, f"a string of {len(event.value)} characters; at most {MAX_TEXT} are allowed")
        tag = (event.tag or "").removeprefix(_TAG)
        node.plain = not event.style and not tag
        if tag in ("int", "float", "bool"):
            node.content = Plain(event.value)
        elif tag == "null":
            node.content = None
        elif tag not in ("", "!", "str"):
            raise refusal(node.place, f"tag {event.tag!r} is not supported", "write the value without a tag")
        elif node.plain and _NULL.fullmatch(event.value):
            node.content = None
        elif node.plain and _NOT_TEXT.fullmatch(event.value):
            node.content = Plain(event.value)
        else:
            node.content = event.value


def _check_tag(tag: str | None, allowed: str, place: Place) -> None:
    if tag not in (None, "!", _TAG + allowed):
        raise refusal(place, f"tag {tag!r} is not supported", "write the value without a tag")


# --- nodes to the tree -----------------------------------------------------------------------------------------------


class Expansion:
    """Turns nodes into the tree, with aliases and merge keys expanded, and records every place.

    `resolve` returns the number or boolean of an unquoted scalar, or None for YAML 1.2's reading. `spell` is for files
    for NVIDIA's plugin: it returns the plugin's spelling of a key of the mapping at a path. In such files the last of
    two equal keys counts; in others, two equal keys are an error.
    """

    def __init__(
        self,
        resolve: Callable[[str], str | None] = lambda _: None,
        spell: Callable[[KeyPath, str], str] | None = None,
    ) -> None:
        self._resolve = resolve
        self._spell = spell
        self._count = 0
        self.keys: dict[KeyPath, Place] = {}
        self.values: dict[KeyPath, Place] = {}
        self.problems: list[Problem] = []

    def mapping(self, pairs: Pairs, path: KeyPath) -> dict[str, Tree]:
        """Return the values of a mapping; its own keys take precedence over merged ones."""
        own: dict[str, tuple[YamlNode, YamlNode]] = {}
        merged: list[tuple[YamlNode, Pairs]] = []
        for key, value in pairs.nodes:
            if key.is_merge:
                for source in _sources(value):
                    self._count_one(value.place)
                    merged.append((value, source))
                continue
            name = self._name(key, path)
            if name not in own or self._replaces(key, own[name][0], (*path, name)):
                own[name] = (key, value)
        result: dict[str, Tree] = {}
        for name, (key, value) in own.items():
            self.keys[*path, name] = key.place
            result[name] = self.value(value, (*path, name))
        for node, source in merged:
            for key, value in source.nodes:
                if key.is_merge:
                    hint = "merge both where they are needed: '<<: [*a, *b]'"
                    raise refusal(node.place, "a merged mapping must not hold '<<' itself", hint)
                name = self._name(key, path)
                if name in result:
                    self._count_one(node.place)
                else:
                    self.keys[*path, name] = key.place
                    result[name] = self.value(value, (*path, name))
        return result

    def _name(self, key: YamlNode, path: KeyPath) -> str:
        """Return the key of the mapping at that path. In a file for NVIDIA's plugin its case does not matter."""
        if isinstance(key.content, list | Pairs):
            raise refusal(key.place, "a key must be a string, not a list or a mapping")
        if key.content is None:
            raise refusal(key.place, "a key is missing before ':'", "quote it if it is meant to be 'null' or '~'")
        written = str(key.content)  # even if YAML would read a number or a boolean
        name = self._spell(path, written) if self._spell else written
        if name != written:
            message = f"key {written!r} counts as {name!r}, as for NVIDIA's plugin"
            self.problems.append(problem_at(key.place, (*path, name), message, severity=Severity.WARNING))
        return name

    def _replaces(self, key: YamlNode, first: YamlNode, path: KeyPath) -> bool:
        """Report a key that is given twice. Returns whether it replaces the first one."""
        self._count_one(key.place)
        message = f"key {path[-1]!r} is given twice; the first is at {first.place}"
        if self._spell is None:
            self.problems.append(problem_at(key.place, path, message, hint="remove one of them"))
            return False
        is_last = str(key.content) >= str(first.content)  # in JSON that Go wrote, keys are in the order of their bytes
        hint = f"{'this one' if is_last else 'that one'} counts, as for NVIDIA's plugin"
        self.problems.append(problem_at(key.place, path, message, hint=hint, severity=Severity.WARNING))
        return is_last

    def _count_one(self, place: Place) -> None:
        """Count a value, or a pair that is skipped: each alias of its mapping repeats that work."""
        self._count += 1
        if self._count > MAX_VALUES:
            raise refusal(place, f"aliases and merge keys expand to more than {MAX_VALUES} values")

    def value(self, node: YamlNode, path: KeyPath) -> Tree:
        self._count_one(node.place)
        if len(path) > MAX_DEPTH:
            raise refusal(node.place, f"nested more than {MAX_DEPTH} levels deep")
        self.values[path] = node.place
        match node.content:
            case list(nodes):
                return [self.value(item, (*path, index)) for index, item in enumerate(nodes)]
            case Pairs():
                where = Where.of(node.place, path, for_nvidia=self._spell is not None)
                return FileMapping(self.mapping(node.content, path), where)
            case str(text) if node.plain and (resolved := self._resolve(text)) is not None:
                return Plain(resolved)
            case scalar:
                return scalar


def _sources(node: YamlNode) -> list[Pairs]:
    """Return the mappings that a merge key refers to; the first one takes precedence."""
    match node.content:
        case Pairs():
            sources = [node]
        case list(nodes):
            sources = nodes
        case _:
            sources = []
    pairs = [source.content for source in sources if isinstance(source.content, Pairs)]
    if not pairs or len(pairs) != len(sources):
        raise refusal(node.place, "'<<' merges a mapping or a list of mappings, such as '<<: *defaults'")
    return pairs


_BEYOND = re.compile("([\U00010000-\U0010ffff])")
_ESCAPE = re.compile(r"\\(?:u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})|.)", re.DOTALL)


def quoted(text: str) -> str:
    """Quote any text for YAML, in ASCII."""
    parts = (f"\\U{ord(part):08x}" if _BEYOND.match(part) else json.dumps(part)[1:-1] for part in _BEYOND.split(text))
    return f'"{"".join(parts)}"'


def as_yaml(text: str) -> str:
    """Return a file's text as YAML: JSON writes characters beyond U+FFFF as two escapes, which YAML refuses."""
    if not text.lstrip().startswith(("{", "[")):
        return text
    return _ESCAPE.sub(lambda found: _whole(found[1], found[2]) if found[1] else found[0], text)


def _whole(high: str, low: str) -> str:
    return chr(0x10000 + ((int(high, 16) - 0xD800) << 10) + int(low, 16) - 0xDC00)
