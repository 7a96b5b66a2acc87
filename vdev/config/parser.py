"""Parses YAML into a tree of values with positions. Recognizes and reads files for NVIDIA's device plugin.

PyYAML's constructor reads YAML 1.1, in which `0451` is 297, `12:34` is 754 and `on` is true. Here a scalar keeps its
text, and the field decides what it means (`model.scalars`).

NVIDIA's plugin turns YAML 1.1 into JSON, and Go's JSON decoder ignores the case of keys.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import yaml
from yaml.composer import Composer

from ..errors import ConfigError
from ..model.problem import KeyPath, Place, Problem, Severity, Where, did_you_mean
from ..model.section import FileMapping, Plain, Section, fields_of
from ..model.spec import Flags, Gfd, Imex, PluginFlags, Resources, Sharing, Spec

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


def in_order(problems: Iterable[Problem], files: Sequence[str]) -> tuple[Problem, ...]:
    """Return each problem once: those of options, then file by file, from top to bottom."""

    def position(problem: Problem) -> tuple[int, int, int]:
        place = problem.place or Place("")
        rank = files.index(place.file) if place.file in files else -1  # -1: from the command line
        return rank, place.line, place.column

    return tuple(sorted(dict.fromkeys(problems), key=position))


MAX_DEPTH = 64  # the schema needs 10
MAX_VALUES = 100_000
MAX_TEXT = 128 * 1024  # characters of one scalar; the limit of Linux for an environment variable

_NOT_TEXT = re.compile(  # numbers and booleans of YAML 1.2's core schema, which includes those of JSON
    r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+"
    r"|[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?"
    r"|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
    r"|true|True|TRUE|false|False|FALSE"
)
_TAG = "tag:yaml.org,2002:"
_NULL_TAG, _MERGE_TAG = f"{_TAG}null", f"{_TAG}merge"
_NUMBER_TAGS = frozenset({f"{_TAG}int", f"{_TAG}float", f"{_TAG}bool"})
_UNQUOTED = "vdev:unquoted"  # any other scalar without quotes and tag
_TAGS: Mapping[type[yaml.Event], Collection[str]] = {
    yaml.SequenceStartEvent: [f"{_TAG}seq"],
    yaml.MappingStartEvent: [f"{_TAG}map"],
    yaml.ScalarEvent: [f"{_TAG}str", _NULL_TAG, *_NUMBER_TAGS],
}
_MERGE = "<<"
_MERGES = "'<<' merges a mapping or a list of mappings, such as '<<: *defaults'"

Tree = None | str | list["Tree"] | dict[str, "Tree"]
"""The values of a file: `Plain` for unquoted numbers and booleans, `str` for all other scalars."""


_Loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)  # the parser in C exists only with libyaml
_Bases = (_Loader,) if issubclass(_Loader, Composer) else (Composer, _Loader)


class YamlReader(*_Bases):  # type: ignore[misc]
    """Reads the documents of a YAML text as nodes, in which an alias is the node that it refers to.

    This is PyYAML's composer in Python on its parser in C; the composer in C recurses without a limit.
    """

    yaml_implicit_resolvers = {
        None: [
            (_NULL_TAG, re.compile(r"(~|null|Null|NULL|)\Z")),
            (_MERGE_TAG, re.compile(rf"{_MERGE}\Z")),
            (_UNQUOTED, re.compile("")),
        ]
    }

    def __init__(self, text: str, name: str) -> None:
        _Loader.__init__(self, text)
        Composer.__init__(self)
        self._name = name
        self._count = 0
        self._depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        event: Any = self.peek_event()
        if not isinstance(event, yaml.AliasEvent):
            place = place_of(event, self._name)
            if event.tag not in (None, "", "!", *_TAGS[type(event)]):
                raise refusal(place, f"tag {event.tag!r} is not supported", "write the value without a tag")
            self._count += 1
            _check_limits(self._count // 2, self._depth, place)  # keys are nodes too
            self.anchors.pop(event.anchor, None)  # YAML allows an anchor to be redefined, PyYAML does not
        self._depth += 1
        node: yaml.Node | None = super().compose_node(parent, index)
        self._depth -= 1
        return node


def place_of(part: Any, name: str) -> Place:
    """Return the place where an event or a node begins."""
    return Place(name, part.start_mark.line + 1, part.start_mark.column + 1)


class TreeReader:
    """Turns nodes into a tree, with aliases and merge keys expanded, and records the places of all keys and values.

    With `is_go`, unquoted scalars are read as Go's YAML package reads them. With `for_nvidia`, the case of keys does
    not matter, and the last of several equal keys applies; otherwise, equal keys are an error.
    """

    def __init__(self, name: str, *, is_go: bool = False, for_nvidia: bool = False) -> None:
        self._name = name
        self._is_go = is_go
        self._for_nvidia = for_nvidia
        self._count = 0
        self.keys: dict[KeyPath, Place] = {}
        self.values: dict[KeyPath, Place] = {}
        # By place and message: the same key may be merged into several mappings.
        self.problems: dict[tuple[Place, str], Problem] = {}

    def tree(self, node: yaml.Node, path: KeyPath = ()) -> Tree:
        """Return the tree of a node, as the value at `path`. Raises ConfigError."""
        self.values[path] = place = place_of(node, self._name)
        self._count_value(path, place)
        match node:
            case yaml.SequenceNode():
                return [self.tree(item, (*path, number)) for number, item in enumerate(node.value)]
            case yaml.MappingNode():
                found: dict[str, Tree] = {}
                for name, key, value in self._pairs(node, path):
                    if name not in found:  # a mapping's own keys take precedence over merged ones
                        self.keys[*path, name] = place_of(key, self._name)
                        found[name] = self.tree(value, (*path, name))
                mapping = FileMapping(found)
                mapping.where = Where.of(place, path, for_nvidia=self._for_nvidia)
                return mapping
            case _:
                return self._scalar(node, place, path)

    def _count_value(self, path: KeyPath, place: Place) -> None:
        self._count += 1
        _check_limits(self._count, len(path), place)

    def _scalar(self, node: yaml.Node, place: Place, path: KeyPath) -> Tree:
        text = str(node.value)
        if "\0" in text:
            message = "the text has a NUL character (\\0), which neither a path nor an environment variable can hold"
            self.problems.setdefault((place, message), problem_at(place, path, message))
        if len(text) > MAX_TEXT:
            raise refusal(place, f"a string of {len(text)} characters; at most {MAX_TEXT} are allowed")
        if node.tag == _NULL_TAG:
            return None
        if node.tag == _UNQUOTED:
            go = number_or_boolean(text) if self._is_go else None
            return text if go is None and not _NOT_TEXT.fullmatch(text) else Plain(go or text)
        return Plain(text) if node.tag in _NUMBER_TAGS else text

    def _pairs(self, node: yaml.MappingNode, path: KeyPath) -> Iterator[tuple[str, yaml.Node, yaml.Node]]:
        """Return the names, keys and values of a mapping, then those of the mappings that its merge keys refer to."""
        yield from self._own(node, path)
        for merged in (value for key, value in node.value if key.tag == _MERGE_TAG):
            place = place_of(merged, self._name)
            sources = merged.value if isinstance(merged, yaml.SequenceNode) else [merged]
            if not sources or not all(isinstance(source, yaml.MappingNode) for source in sources):
                raise refusal(place, _MERGES)
            for source in sources:
                for _ in (source, *source.value):
                    self._count_value(path, place)
                yield from self._pairs(source, (*path, _MERGE))

    def _own(self, node: yaml.MappingNode, path: KeyPath) -> list[tuple[str, yaml.Node, yaml.Node]]:
        """Return the names, keys and values of a mapping without its merge keys. Each name occurs once."""
        found: dict[str, tuple[str, yaml.Node, yaml.Node]] = {}
        path = tuple(each for each in path if each != _MERGE)
        for key, value in node.value:
            if key.tag == _MERGE_TAG:
                continue
            place = place_of(key, self._name)
            text = _key(key, place)
            name = spelled(path, text) if self._for_nvidia else text
            here = (*path, name)
            if name != text:
                message = f"key {text!r} counts as {name!r}, as for NVIDIA's plugin"
                problem = problem_at(place, here, message, severity=Severity.WARNING)
                self.problems.setdefault((place, message), problem)
            counts = True
            if name in found:
                first = found[name][1]
                counts = text >= first.value  # in JSON that Go wrote, keys are in the order of their bytes
                message = f"key {name!r} is given twice; the first is at {place_of(first, self._name)}"
                hint, severity = "remove one of them", Severity.ERROR
                if self._for_nvidia:
                    hint = f"{'this one' if counts else 'that one'} counts, as for NVIDIA's plugin"
                    severity = Severity.WARNING
                problem = problem_at(place, here, message, hint=hint, severity=severity)
                self.problems.setdefault((place, message), problem)
            if counts:
                found[name] = (name, key, value)
        return list(found.values())


def _key(node: yaml.Node, place: Place) -> str:
    if not isinstance(node, yaml.ScalarNode):
        raise refusal(place, "a key must be a string, not a list or a mapping")
    if node.tag == _NULL_TAG:
        raise refusal(place, "a key is missing before ':'", "quote it if it is meant to be 'null' or '~'")
    if "\0" in node.value:
        raise refusal(place, "a key has a NUL character (\\0)")
    return str(node.value)  # also if YAML would read it as a number or a boolean


def _check_limits(count: int, depth: int, place: Place) -> None:
    if count > MAX_VALUES:
        raise refusal(place, f"the file holds more than {MAX_VALUES} values, with aliases and merge keys expanded")
    if depth > MAX_DEPTH:
        raise refusal(place, f"nested more than {MAX_DEPTH} levels deep, with aliases and merge keys expanded")


# --- files for NVIDIA's plugin ----------------------------------------------------------------------------------------

SECTIONS = frozenset({"version", "flags", "sharing", "resources", "imex"})
"""The sections of NVIDIA's plugin."""

_OURS = fields_of(Spec).keys() - SECTIONS
_MODELS: Mapping[KeyPath, type[Section]] = {
    ("flags",): Flags,
    ("flags", "plugin"): PluginFlags,
    ("flags", "gfd"): Gfd,
    ("sharing",): Sharing,
    ("resources",): Resources,
    ("imex",): Imex,
}
_KEYS = {(): SECTIONS} | {path: fields_of(model).keys() for path, model in _MODELS.items()}
_SPELLED = {path: {key.lower(): key for key in keys} for path, keys in _KEYS.items()}

MIG_PARTED = frozenset({"version", "mig-configs"})
"""The keys of a file of NVIDIA's mig-parted, which reads YAML with the same Go package."""

_TRUE = frozenset(["y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"])
_FALSE = frozenset(["n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"])
_WHOLE = re.compile(r"([-+]?)(?:0[xX]([0-9a-fA-F]{1,16})|0[bB]([01]{1,64})|0[oO]?([0-7]{1,22})|(0|[1-9][0-9]{0,19}))")
_BASES = (16, 2, 8, 10)
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]{1,3})?")
_LONGEST = 64
_MOST = 1e21  # from here on, JSON has an exponent, which Go reads as a fraction


def is_for_nvidia(keys: Collection[str]) -> bool:
    """Whether a file with these top-level keys is for NVIDIA's plugin. Unknown keys must not resemble those of vdev."""
    meant = {spelled((), key) for key in keys}
    unknown = meant - SECTIONS
    if not unknown:
        return True
    return bool(meant & SECTIONS - {"version"}) and not any(did_you_mean(key, _OURS) for key in unknown)


def spelled(path: KeyPath, key: str) -> str:
    """Return the key of the mapping at that path as NVIDIA's plugin spells it; an unknown key stays as it is."""
    return _SPELLED.get(path, {}).get(key.lower(), key)


def number_or_boolean(text: str) -> str | None:
    """Return the scalar as Go's YAML package turns it into JSON; None for a text, or if vdev reads it the same."""
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
