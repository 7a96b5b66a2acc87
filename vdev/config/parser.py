"""YAML text to a tree of values with positions; and how to recognize and to read a file for NVIDIA's device plugin.

The tree is built from the parser's events. PyYAML's C composer recurses without a limit and refuses an anchor that is
defined again, and its constructor reads YAML 1.1, in which `0451` is 297, `12:34` is 754 and `on` is true. Here a
scalar keeps its text, and the field decides what it means (`model.scalars`).

NVIDIA's plugin turns YAML 1.1 into JSON, and Go's JSON decoder ignores the case of keys.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

import yaml

from ..errors import ConfigError
from ..model.nvidia_forms import Gfd, Imex
from ..model.problem import KeyPath, Place, Problem, Severity, Where, did_you_mean
from ..model.section import FileMapping, Plain, Section, keys_of
from ..model.spec import Flags, PluginFlags, Resources, Sharing, Spec

_MAX_MESSAGE = 600  # characters; a message may quote a value of any length


def problem_at(
    place: Place, path: KeyPath, message: str, *, hint: str = "", severity: Severity = Severity.ERROR
) -> Problem:
    """Return a problem at a place; a message that quotes a long value is shortened."""
    if len(message) > _MAX_MESSAGE:
        message = f"{message[: _MAX_MESSAGE // 2]} … {message[-_MAX_MESSAGE // 2 :]}"
    return Problem(severity, Where.of(place, path), message, hint)


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
MAX_VALUES = 100_000
MAX_TEXT = 128 * 1024  # characters of one scalar; Linux takes no longer environment variable

_NULL = re.compile(r"~|null|Null|NULL|")
_NOT_TEXT = re.compile(  # numbers and booleans of YAML 1.2's core schema, which includes JSON's
    r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+"
    r"|[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?"
    r"|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
    r"|true|True|TRUE|false|False|FALSE"
)
_TAG = "tag:yaml.org,2002:"
_TAGS: Mapping[type[yaml.Event], Collection[str]] = {
    yaml.SequenceStartEvent: [f"{_TAG}seq"],
    yaml.MappingStartEvent: [f"{_TAG}map"],
    yaml.ScalarEvent: [_TAG + kind for kind in ("str", "int", "float", "bool", "null")],
}
_MERGE = "<<"
_MERGES = "'<<' merges a mapping or a list of mappings, such as '<<: *defaults'"

Tree = None | str | list["Tree"] | dict[str, "Tree"]
"""The values of a file: `Plain` for unquoted numbers and booleans, `str` for all other scalars."""

_Base = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_Base):  # type: ignore[misc, valid-type]  # the C loader exists only with libyaml
    """A parser that leaves every untagged scalar a text."""

    yaml_implicit_resolvers: dict[str, list[object]] = {}


@dataclass(slots=True)
class ScalarNode:
    """A scalar. `is_plain`: it has neither quotes nor a tag."""

    place: Place
    value: str | None
    is_plain: bool


@dataclass(slots=True)
class ListNode:
    place: Place
    items: list["Node"]


@dataclass(slots=True)
class MappingNode:
    place: Place
    own: list[tuple["Node", "Node"]]  # pairs of a key and a value
    merged: list["Node"]  # the values of its merge keys


Node = ScalarNode | ListNode | MappingNode


class YamlReader:
    """Reads the documents of a YAML text as nodes, in which an alias is the node that it refers to."""

    def __init__(self, text: str, name: str) -> None:
        self._events: Iterator[yaml.Event] = iter(yaml.parse(text, Loader=_Loader))
        self._name = name
        self._count = 0
        self._anchors: dict[str, Node | None] = {}  # None until the end of the value is read

    def start(self) -> Place | None:
        """Go to the start of the next document, and return its place; None if there is none."""
        self._anchors.clear()
        return next((self._place(each) for each in self._events if isinstance(each, yaml.DocumentStartEvent)), None)

    def document(self) -> Node:
        """Return the document that starts here. Raises ConfigError."""
        return self._node(next(self._events), 0)

    def _place(self, event: yaml.Event) -> Place:
        mark = event.start_mark
        assert mark is not None, "the parser marks every event"
        return Place(self._name, mark.line + 1, mark.column + 1)

    def _node(self, event: yaml.Event, depth: int) -> Node:
        place = self._place(event)
        if isinstance(event, yaml.AliasEvent):
            return self._aliased(str(event.anchor), place)
        # Between the start and the end of a document there are only aliases, lists, mappings and scalars.
        assert isinstance(event, yaml.ScalarEvent | yaml.CollectionStartEvent)
        if event.tag not in (None, "", "!", *_TAGS[type(event)]):
            raise refusal(place, f"tag {event.tag!r} is not supported", "write the value without a tag")
        self._count += 1
        _check_limits(self._count // 2, depth, place)  # keys are nodes too
        if event.anchor:
            self._anchors[event.anchor] = None
        node: Node
        match event:
            case yaml.ScalarEvent():
                node = _scalar(event, place)
            case yaml.SequenceStartEvent():
                node = ListNode(place, [])
                while not isinstance(item := next(self._events), yaml.SequenceEndEvent):
                    node.items.append(self._node(item, depth + 1))
            case _:
                node = MappingNode(place, [], [])
                while not isinstance(item := next(self._events), yaml.MappingEndEvent):
                    key, value = self._node(item, depth + 1), self._node(next(self._events), depth + 1)
                    if isinstance(key, ScalarNode) and key.is_plain and key.value == _MERGE:
                        node.merged.append(value)
                    else:
                        node.own.append((key, value))
        if event.anchor:
            self._anchors[event.anchor] = node
        return node

    def _aliased(self, anchor: str, place: Place) -> Node:
        if anchor not in self._anchors:
            hint = f"quote a pattern that begins with '*': '*{anchor}'"
            raise refusal(place, f"alias *{anchor} has no anchor &{anchor} before it", hint)
        node = self._anchors[anchor]
        if node is None:
            raise refusal(place, f"alias *{anchor} is inside its own anchor, so the value would never end")
        return node


class TreeReader:
    """Turns nodes into a tree, with aliases and merge keys expanded, and records the places of all keys and values.

    With `is_go`, unquoted scalars are read as by Go's YAML package. `for_nvidia` is for files for NVIDIA's plugin, in
    which the case of keys does not matter, and the last of two equal keys counts; in others, these are an error.
    """

    def __init__(self, name: str, *, is_go: bool = False, for_nvidia: bool = False) -> None:
        self._name = name
        self._is_go = is_go
        self._for_nvidia = for_nvidia
        self._count = 0
        self.keys: dict[KeyPath, Place] = {}
        self.values: dict[KeyPath, Place] = {}
        self.problems: list[Problem] = []
        self._reported: set[tuple[Place | None, str]] = set()

    def tree(self, node: Node, path: KeyPath = ()) -> Tree:
        """Return the tree of a node, as the value at `path`. Raises ConfigError."""
        self._count_value(node, path)
        self.values[path] = node.place
        match node:
            case ListNode():
                return [self.tree(item, (*path, number)) for number, item in enumerate(node.items)]
            case MappingNode():
                return FileMapping(self._mapping(node, path), Where.of(node.place, path, for_nvidia=self._for_nvidia))
            case ScalarNode():
                is_go = self._is_go and node.is_plain and node.value is not None
                resolved = number_or_boolean(str(node.value)) if is_go else None
                return node.value if resolved is None else Plain(resolved)

    def _count_value(self, node: Node, path: KeyPath) -> None:
        self._count += 1
        _check_limits(self._count, len(path), node.place)

    def _mapping(self, node: MappingNode, path: KeyPath) -> dict[str, Tree]:
        """Return the values of a mapping; its own keys take precedence over merged ones."""
        result: dict[str, Tree] = {}
        for name, key, value in self._pairs(node, path):
            if name not in result:
                self.keys[*path, name] = key.place
                result[name] = self.tree(value, (*path, name))
        return result

    def _pairs(self, node: MappingNode, path: KeyPath) -> Iterator[tuple[str, Node, Node]]:
        """The names, keys and values of a mapping, and then of those that its merge keys refer to."""
        yield from self._own(node, path)
        for value in node.merged:
            sources = value.items if isinstance(value, ListNode) else [value]
            if not sources:
                raise refusal(value.place, _MERGES)
            for source in sources:
                if not isinstance(source, MappingNode):
                    raise refusal(value.place, _MERGES)
                self._count_value(source, path)
                for key, _ in source.own:
                    self._count_value(key, path)
                yield from self._pairs(source, (*path, _MERGE))

    def _own(self, node: MappingNode, path: KeyPath) -> list[tuple[str, Node, Node]]:
        """The names, keys and values that a mapping has itself. Each name is there once."""
        found: dict[str, tuple[str, Node, Node]] = {}
        written: dict[str, str] = {}  # the keys as the file spells them
        path = tuple(each for each in path if each != _MERGE)
        for key, value in node.own:
            text = _key(key)
            name = spelled(path, text) if self._for_nvidia else text
            here = (*path, name)
            if name != text:
                message = f"key {text!r} counts as {name!r}, as for NVIDIA's plugin"
                self._report(problem_at(key.place, here, message, severity=Severity.WARNING))
            # In JSON that Go wrote, keys are in the order of their bytes.
            counts = name not in found or text >= written[name]
            if name in found:
                self._report_twice(key.place, here, first=found[name][1].place, is_last=counts)
            if counts:
                found[name], written[name] = (name, key, value), text
        return list(found.values())

    def _report_twice(self, place: Place, path: KeyPath, *, first: Place, is_last: bool) -> None:
        message = f"key {path[-1]!r} is given twice; the first is at {first}"
        if not self._for_nvidia:
            self._report(problem_at(place, path, message, hint="remove one of them"))
        else:
            hint = f"{'this one' if is_last else 'that one'} counts, as for NVIDIA's plugin"
            self._report(problem_at(place, path, message, hint=hint, severity=Severity.WARNING))

    def _report(self, problem: Problem) -> None:
        """Report a problem of a key, once: the same key may be merged into several mappings."""
        if (said := (problem.place, problem.message)) not in self._reported:
            self._reported.add(said)
            self.problems.append(problem)


def _key(node: Node) -> str:
    if not isinstance(node, ScalarNode):
        raise refusal(node.place, "a key must be a string, not a list or a mapping")
    if node.value is None:
        raise refusal(node.place, "a key is missing before ':'", "quote it if it is meant to be 'null' or '~'")
    return str(node.value)  # even if YAML would read a number or a boolean


def _scalar(event: yaml.ScalarEvent, place: Place) -> ScalarNode:
    text, tag = str(event.value), (event.tag or "").removeprefix(_TAG)
    if len(text) > MAX_TEXT:
        raise refusal(place, f"a string of {len(text)} characters; at most {MAX_TEXT} are allowed")
    is_plain = not event.style and not event.tag
    if tag == "null" or (is_plain and _NULL.fullmatch(text)):
        return ScalarNode(place, None, is_plain)
    is_text = not _NOT_TEXT.fullmatch(text) if is_plain else tag not in ("int", "float", "bool")
    return ScalarNode(place, text if is_text else Plain(text), is_plain)


def _check_limits(count: int, depth: int, place: Place) -> None:
    if count > MAX_VALUES:
        raise refusal(place, f"the file holds more than {MAX_VALUES} values, with aliases and merge keys expanded")
    if depth > MAX_DEPTH:
        raise refusal(place, f"nested more than {MAX_DEPTH} levels deep")


# --- files for NVIDIA's plugin ----------------------------------------------------------------------------------------

SECTIONS = frozenset({"version", "flags", "sharing", "resources", "imex"})
"""The sections of NVIDIA's plugin."""

_OURS = keys_of(Spec) - SECTIONS
_MODELS: Mapping[KeyPath, type[Section]] = {
    ("flags",): Flags,
    ("flags", "plugin"): PluginFlags,
    ("flags", "gfd"): Gfd,
    ("sharing",): Sharing,
    ("resources",): Resources,
    ("imex",): Imex,
}
_KEYS = {(): SECTIONS} | {path: keys_of(model) for path, model in _MODELS.items()}
_SPELLED = {path: {key.lower(): key for key in keys} for path, keys in _KEYS.items()}

MIG_PARTED = frozenset({"version", "mig-configs"})
"""The keys of a file of NVIDIA's mig-parted, which reads YAML with the same Go package."""

_TRUE = frozenset(["y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"])
_FALSE = frozenset(["n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"])
_WHOLE = re.compile(r"([-+]?)(?:0[xX]([0-9a-fA-F]{1,16})|0[bB]([01]{1,64})|0[oO]?([0-7]{1,22})|(0|[1-9][0-9]{0,19}))")
_BASES = (16, 2, 8, 10)
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]{1,3})?")
_LONGEST = 64
_MOST = 1e21  # from here on JSON writes an exponent, and Go takes that for a fraction


def is_for_nvidia(keys: Collection[str]) -> bool:
    """Whether a file with these top-level keys is for NVIDIA's plugin: none is a section of vdev, or resembles one."""
    meant = {spelled((), key) for key in keys}
    unknown = meant - SECTIONS
    if not unknown:
        return True
    return bool(meant & SECTIONS - {"version"}) and not any(did_you_mean(key, _OURS) for key in unknown)


def spelled(path: KeyPath, key: str) -> str:
    """Return the key of the mapping at that path as NVIDIA's plugin spells it; an unknown key stays as it is."""
    return _SPELLED.get(path, {}).get(key.lower(), key)


def number_or_boolean(text: str) -> str | None:
    """Return the scalar as Go's YAML package turns it into JSON; None if it is a text, or if vdev reads it alike."""
    if text in _TRUE:
        return "true"
    if text in _FALSE:
        return "false"
    digits = text.replace("_", "")
    if len(text) > _LONGEST or text[:1] not in "+-.0123456789":
        return None
    if found := _WHOLE.fullmatch(digits):
        value = next(int(part, base) for part, base in zip(found.groups()[1:], _BASES, strict=True) if part)
        return str(-value if found[1] == "-" else value)
    if _FLOAT.fullmatch(digits) and (real := float(digits)).is_integer() and abs(real) < _MOST:
        return str(int(real))
    return None
