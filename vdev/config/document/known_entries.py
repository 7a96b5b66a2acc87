"""Entries of `devices` that are written as they were: neither their text nor what follows from it is made again.

    devices:
      - name: a        ─┐ one piece of text for each item, parsed alone
        …              ─┘
      - name: b
        …
    sharing: …           the rest of the file, with empty lines in their place, so that all places stay right

Only the plain form is read by pieces: a block list under `devices:` at the beginning of a line, without anchors in an
item. Whatever else there is, and whatever is wrong, is read as a whole, so that results and messages are the same.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from ...core.model.place import KeyPath, Place
from ...core.spec import EntrySpec
from ...errors import ConfigError
from .parser import MAX_VALUES, Composer, Expansion, Items, Pairs, Tree, YamlNode

_OTHER_BREAKS = re.compile("[\r\x85\u2028\u2029]")  # which end lines in YAML 1.1, and would shift places here
_SECTION = re.compile(r"^devices:[ \t]*(?:#.*)?\n(?:[ \t]*(?:#.*)?\n)*( *)-(?=[ \n])", re.MULTILINE)
_Places = Mapping[KeyPath, Place]


@dataclass(slots=True)
class KnownEntry:
    """An item: its text and its tree, with the places of keys and values where it stands.

    `model` is what the tree was validated to, and None where it was not or is wrong.
    """

    text: str
    tree: Tree
    keys: _Places
    values: _Places
    count: int
    at: tuple[str, int, int]  # file, line, and number in the list
    model: Any = None
    _spec: tuple[Any, bool, EntrySpec] | None = None

    def move(self, file: str, line: int, number: int) -> None:
        """It stands there now."""
        if self.at == (file, line, number):
            return
        by = line - self.at[1]
        self.keys, self.values = (
            {
                ("devices", number, *path[2:]): Place(file, place.line + by, place.column)
                for path, place in places.items()
            }
            for places in (self.keys, self.values)
        )
        self.at, self._spec = (file, line, number), None

    def spec_of(self, model: object, *, measured: bool) -> EntrySpec | None:
        """What that model was compiled to, where the entry stood here; None where it was not."""
        known = self._spec
        return known[2] if known is not None and known[0] is model and known[1] is measured else None

    def remember(self, model: object, spec: EntrySpec, *, measured: bool) -> None:
        """The model was compiled to this, without a word to say."""
        self._spec = (model, measured, spec)


@dataclass(frozen=True, slots=True)
class ReadByEntry:
    """A file's values with their places, and its entries."""

    root: dict[str, Tree]
    keys: dict[KeyPath, Place]
    values: dict[KeyPath, Place]
    entries: tuple[KnownEntry, ...]


class KnownEntries:
    """The entries of the last reading, and what the last good one came to. Not for several readings at once."""

    def __init__(self) -> None:
        self._known: dict[str, KnownEntry] = {}
        self._whole: tuple[object, Any] = (None, None)

    def whole(self, asked: object) -> Any:
        """What the last good reading came to, where it was asked the same; else None."""
        return self._whole[1] if self._whole[0] == asked else None

    def remember(self, asked: object, whole: Any) -> None:
        """Asked this, a reading came to that, and would again."""
        self._whole = asked, whole

    def read(self, text: str, name: str) -> ReadByEntry | None:
        """The file, or None where it is to be read as a whole."""
        try:
            return self._read(text, name)
        except (ConfigError, yaml.YAMLError):
            return None

    def _read(self, text: str, name: str) -> ReadByEntry | None:
        found = list(_SECTION.finditer(text))
        if len(found) != 1 or _OTHER_BREAKS.search(text):
            return None
        begin, indent = found[0].start(1), found[0].end(1) - found[0].start(1)
        pieces = _pieces(text, begin, indent)
        end = pieces[-1][1]
        composer = Composer(text[:begin] + "\n" * text.count("\n", begin, end) + text[end:], name)
        node = composer.document()
        if node is None or composer.second or not _is_empty_section(node, text.count("\n", 0, found[0].start()) + 1):
            return None
        assert isinstance(node.content, Pairs)
        expansion = Expansion()
        root = expansion.mapping(node.content, ())
        entries = self._entries(text, name, pieces)
        count = composer.count + sum(each.count for each in entries)
        if not entries or expansion.problems or len(expansion.values) + count > MAX_VALUES:
            return None
        root["devices"] = [each.tree for each in entries]
        expansion.values["devices",] = Place(name, entries[0].at[1], indent + 1)
        keys = _with_entries(expansion.keys, (each.keys for each in entries))
        values = {(): node.place} | _with_entries(expansion.values, (each.values for each in entries))
        return ReadByEntry(root, keys, values, tuple(entries))

    def _entries(self, text: str, name: str, pieces: Sequence[tuple[int, int]]) -> list[KnownEntry]:
        """The items; none where one is not written by itself, or two are the same."""
        entries: list[KnownEntry] = []
        line = text.count("\n", 0, pieces[0][0])
        for number, (begin, end) in enumerate(pieces):
            own = text[begin:end]
            known = self._known.get(own)
            entry = known or _parsed(own, name, line, number)
            if entry is None:
                return []
            entry.move(name, line + 1, number)
            entries.append(entry)
            line += text.count("\n", begin, end)
        self._known = {each.text: each for each in entries}
        return entries if len(self._known) == len(entries) else []


def _pieces(text: str, begin: int, indent: int) -> list[tuple[int, int]]:
    """Where each item begins and ends; the list ends with a line that is indented no more and begins no item."""
    line = re.compile(rf"^(?:( {{{indent}}}-)(?=[ \n]|\Z)| {{0,{indent}}}[^ #\n])", re.MULTILINE)
    starts: list[int] = []
    end = len(text)
    for found in line.finditer(text, begin):
        if not found[1]:
            end = found.start()
            break
        starts.append(found.start())
    return list(zip(starts, [*starts[1:], end], strict=True))


def _is_empty_section(node: YamlNode, line: int) -> bool:
    """Whether `devices` is the key in that line, with nothing below it."""
    pairs = node.content.nodes if isinstance(node.content, Pairs) else []
    found = [(key.place, value.content) for key, value in pairs if key.content == "devices"]
    return [((line, 1), None)] == [((place.line, place.column), content) for place, content in found]


def _with_entries(rest: Mapping[KeyPath, Place], entries: Iterable[_Places]) -> dict[KeyPath, Place]:
    """The places of the rest, and those of the entries after that of their list: as they stand in the file."""
    places: dict[KeyPath, Place] = {}
    for path, place in rest.items():
        places[path] = place
        if path == ("devices",):
            for each in entries:
                places.update(each)
    return places


def _parsed(text: str, name: str, line: int, number: int) -> KnownEntry | None:
    """An item by itself; None where its text is not just that."""
    composer = Composer(text, name, lines=line, depth=2)
    node = composer.document()
    if node is None or not isinstance(node.content, Items) or len(node.content.nodes) != 1:
        return None
    if composer.second or composer.has_anchors:
        return None
    expansion = Expansion()
    tree = expansion.value(node.content.nodes[0], ("devices", number))
    if expansion.problems:
        return None
    at = (name, line + 1, number)
    return KnownEntry(text, tree, expansion.keys, expansion.values, composer.count - 1, at)
