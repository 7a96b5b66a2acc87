"""YAML text to a tree of values with positions.

The tree is built from the parser's events. PyYAML's C composer recurses without a limit and refuses an anchor that is
defined again, and its constructor reads YAML 1.1, in which `0451` is 297, `12:34` is 754 and `on` is true. Here a
scalar keeps its text, and the field decides what it means (`model.scalars`).
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
_MERGE = "<<"

Tree = None | str | list["Tree"] | dict[str, "Tree"]
"""The values of a file: `Plain` for unquoted numbers and booleans, `str` for all other scalars."""

_Base = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_Base):  # type: ignore[misc, valid-type]  # the C loader exists only with libyaml
    """A parser that leaves every untagged scalar a text."""

    yaml_implicit_resolvers: dict[str, list[object]] = {}


@dataclass(frozen=True, slots=True)
class _Anchored:
    """A value with an anchor, and where it is."""

    tree: Tree
    path: KeyPath
    place: Place


class TreeReader:
    """Reads the events of a YAML text into a tree, with aliases and merge keys expanded, and records every place.

    `resolve` returns the number or boolean of an unquoted scalar, or None if YAML 1.2 reads it alike. `spell` is for
    files for NVIDIA's plugin: it returns the plugin's spelling of a key of the mapping at a path. In such files the
    last of two equal keys counts; in others, two equal keys are an error.
    """

    def __init__(
        self,
        text: str,
        name: str,
        resolve: Callable[[str], str | None] | None = None,
        spell: Callable[[KeyPath, str], str] | None = None,
    ) -> None:
        self._events: Iterator[yaml.Event] = iter(yaml.parse(text, Loader=_Loader))
        self._name = name
        self._resolve = resolve
        self._spell = spell
        self._count = 0
        self._anchors: dict[str, _Anchored | None] = {}  # None until the end of the value is read
        self.keys: dict[KeyPath, Place] = {}
        self.values: dict[KeyPath, Place] = {}
        self.problems: list[Problem] = []

    def start(self) -> Place | None:
        """Go to the start of the next document, and return its place; None if there is none."""
        self._anchors.clear()
        return next((self._place(each) for each in self._events if isinstance(each, yaml.DocumentStartEvent)), None)

    def document(self, path: KeyPath = ()) -> Tree:
        """Return the document that starts here, as the value at `path`."""
        return self._value(next(self._events), path)

    def _place(self, event: yaml.Event) -> Place:
        mark = event.start_mark
        assert mark is not None, "the parser marks every event"
        return Place(self._name, mark.line + 1, mark.column + 1)

    def _record(self, path: KeyPath, place: Place) -> None:
        """Record the place of a value. Raises ConfigError if the value is too deep, or one too many."""
        self.values[path] = place
        self._count += 1
        if self._count > MAX_VALUES:
            raise refusal(place, f"the file holds more than {MAX_VALUES} values, with aliases and merge keys expanded")
        if len(path) > MAX_DEPTH:
            raise refusal(place, f"nested more than {MAX_DEPTH} levels deep")

    def _value(self, event: yaml.Event, path: KeyPath) -> Tree:
        place = self._place(event)
        if isinstance(event, yaml.AliasEvent):
            source = self._aliased(event)
            return self._copy(source.tree, source.place, source.path, path)
        # Between the start and the end of a document there are only aliases, lists, mappings and scalars.
        assert isinstance(event, yaml.SequenceStartEvent | yaml.MappingStartEvent | yaml.ScalarEvent)
        self._record(path, place)
        if event.anchor:
            self._anchors[event.anchor] = None
        tree: Tree
        match event:
            case yaml.SequenceStartEvent():
                _check_tag(event, place, "seq")
                tree = []
                while not isinstance(item := next(self._events), yaml.SequenceEndEvent):
                    tree.append(self._value(item, (*path, len(tree))))
            case yaml.MappingStartEvent():
                _check_tag(event, place, "map")
                tree = FileMapping(self._mapping(path), Where.of(place, path, for_nvidia=self._spell is not None))
            case _:
                tree = self._scalar(event, place)
                if self._resolve and tree is not None and _is_plain(event):
                    resolved = self._resolve(tree)
                    tree = tree if resolved is None else Plain(resolved)
        if event.anchor:
            self._anchors[event.anchor] = _Anchored(tree, path, place)
        return tree

    def _scalar(self, event: yaml.ScalarEvent, place: Place) -> str | None:
        if len(event.value) > MAX_TEXT:
            raise refusal(place, f"a string of {len(event.value)} characters; at most {MAX_TEXT} are allowed")
        _check_tag(event, place, "str", "int", "float", "bool", "null")
        tag = (event.tag or "").removeprefix(_TAG)
        if tag == "null" or (_is_plain(event) and _NULL.fullmatch(event.value)):
            return None
        is_text = not _NOT_TEXT.fullmatch(event.value) if _is_plain(event) else tag not in ("int", "float", "bool")
        return str(event.value) if is_text else Plain(event.value)

    # --- aliases

    def _aliased(self, event: yaml.AliasEvent) -> _Anchored:
        anchor, place = event.anchor, self._place(event)
        if anchor not in self._anchors:
            hint = f"quote a pattern that begins with '*': '*{anchor}'"
            raise refusal(place, f"alias *{anchor} has no anchor &{anchor} before it", hint)
        source = self._anchors[anchor]
        if source is None:
            raise refusal(place, f"alias *{anchor} is inside its own anchor, so the value would never end")
        return source

    def _copy(self, tree: Tree, place: Place, old: KeyPath, new: KeyPath) -> Tree:
        """Return the value at the path `old` for the path `new`. It keeps the places at which it was written."""
        self._record(new, place)
        match tree:
            case dict():
                values = {}
                for key, value in tree.items():
                    self.keys[*new, key] = self.keys[*old, key]
                    values[key] = self._copy(value, self.values[*old, key], (*old, key), (*new, key))
                return FileMapping(values, Where.of(place, new, for_nvidia=self._spell is not None))
            case list():
                return [self._copy(item, self.values[*old, n], (*old, n), (*new, n)) for n, item in enumerate(tree)]
            case scalar:
                return scalar

    # --- mappings

    def _mapping(self, path: KeyPath) -> dict[str, Tree]:
        """Return the values of a mapping; its own keys take precedence over merged ones."""
        result: dict[str, Tree] = {}
        written: dict[str, str] = {}  # the keys as the file spells them
        merged: list[tuple[KeyPath, dict[str, Tree]]] = []
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            if isinstance(event, yaml.ScalarEvent) and _is_plain(event) and event.value == _MERGE:
                merged += self._sources(next(self._events), (*path, _MERGE, len(merged)))
                continue
            key, place = self._key(event), self._place(event)
            name = self._spell(path, key) if self._spell else key
            here = (*path, name)
            if name != key:
                message = f"key {key!r} counts as {name!r}, as for NVIDIA's plugin"
                self.problems.append(problem_at(place, here, message, severity=Severity.WARNING))
            # In JSON that Go wrote, keys are in the order of their bytes.
            counts = name not in result or key >= written[name]
            if name in result:
                self._report_twice(place, here, is_last=counts)
            value = self._value(next(self._events), here)
            if counts:
                self.keys[here], result[name], written[name] = place, value, key
        for source, values in merged:
            for name, value in values.items():
                if name not in result:
                    self.keys[*path, name] = self.keys[*source, name]
                    result[name] = self._copy(value, self.values[*source, name], (*source, name), (*path, name))
        return result

    def _key(self, event: yaml.Event) -> str:
        place = self._place(event)
        if isinstance(event, yaml.AliasEvent):
            key = self._aliased(event).tree
        elif isinstance(event, yaml.ScalarEvent):
            key = self._scalar(event, place)
            if event.anchor:
                self._anchors[event.anchor] = _Anchored(key, (), place)
        else:
            key = {}
        if isinstance(key, list | dict):
            raise refusal(place, "a key must be a string, not a list or a mapping")
        if key is None:
            raise refusal(place, "a key is missing before ':'", "quote it if it is meant to be 'null' or '~'")
        return str(key)  # even if YAML would read a number or a boolean

    def _report_twice(self, place: Place, path: KeyPath, *, is_last: bool) -> None:
        """Report a key that is given twice."""
        message = f"key {path[-1]!r} is given twice; the first is at {self.keys[path]}"
        if self._spell is None:
            self.problems.append(problem_at(place, path, message, hint="remove one of them"))
        else:
            hint = f"{'this one' if is_last else 'that one'} counts, as for NVIDIA's plugin"
            self.problems.append(problem_at(place, path, message, hint=hint, severity=Severity.WARNING))

    def _sources(self, event: yaml.Event, path: KeyPath) -> list[tuple[KeyPath, dict[str, Tree]]]:
        """Return the mappings that a merge key refers to, with their paths; the first one takes precedence."""
        value = self._value(event, path)
        items = [((*path, n), item) for n, item in enumerate(value)] if isinstance(value, list) else [(path, value)]
        found = [(at, item) for at, item in items if isinstance(item, dict)]
        if not found or len(found) != len(items):
            hint = "'<<' merges a mapping or a list of mappings, such as '<<: *defaults'"
            raise refusal(self.values[path], hint)
        return found


def _is_plain(event: yaml.ScalarEvent) -> bool:
    """Whether it has neither quotes nor a tag."""
    return not event.style and not event.tag


def _check_tag(event: yaml.CollectionStartEvent | yaml.ScalarEvent, place: Place, *allowed: str) -> None:
    if event.tag not in (None, "", "!") and event.tag not in [_TAG + each for each in allowed]:
        raise refusal(place, f"tag {event.tag!r} is not supported", "write the value without a tag")


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
