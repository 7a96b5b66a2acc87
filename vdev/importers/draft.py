"""A draft of a vdev file: its sections, its comments, and the parts of the source that it leaves out."""

import json
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ..config.messages import scope_of
from ..config.origins import dumped
from ..model.problem import KeyPath, show

SECTIONS = ("flags", "devices", "sharing", "faults")  # in the order of the file
_WIDTH = 110  # columns of a comment, and of a short list or mapping on one line
_NOT_ENTRY = re.compile(r"[^a-z0-9.-]+")
_MAX_DIGITS = 7
_EMPTY: tuple[object, ...] = (None, "", [], {})  # values that count as absent

Value = TypeVar("Value")


class DraftEntry(dict[str, Any]):
    """An item of `devices`, with the comments above it."""

    def __init__(self, body: Mapping[str, Any], comments: Sequence[str] = ()) -> None:
        super().__init__(body)
        self.comments = list(comments)


@dataclass(slots=True)
class Draft:
    """A vdev file in the making. `name` distinguishes it from other files of the same source."""

    heading: str
    name: str = ""
    remarks: list[str] = field(default_factory=list)  # comments at the top
    warnings: list[str] = field(default_factory=list)
    sections: dict[str, Any] = field(default_factory=dict)
    items: list["Item"] = field(default_factory=list)  # of the source, those read so far

    @property
    def devices(self) -> list[DraftEntry]:
        entries: list[DraftEntry] = self.sections.setdefault("devices", [])
        return entries

    def entry(self, body: Mapping[str, Any], comments: Sequence[str] = ()) -> DraftEntry:
        self.devices.append(DraftEntry(body, comments))
        return self.devices[-1]

    def share(self, resource: str, replicas: int, entry: str = "") -> None:
        """Share the devices of a resource, or those of one of its entries."""
        body: dict[str, Any] = {"name": resource, "replicas": replicas}
        block = self.sections.setdefault("sharing", {"timeSlicing": {"resources": []}})
        block["timeSlicing"]["resources"].append(body | ({"devices": [entry]} if entry else {}))

    def omit(self, where: str, what: str) -> None:
        """Report something that cannot be converted, as a warning and a comment."""
        self.note(where, what, mark="not converted: ")

    def note(self, where: str, what: str, *, mark: str = "") -> None:
        """Report something that the reader should know, as a warning and a comment at the top."""
        warning = f"{where}: {what}" if where else what
        if warning not in self.warnings:
            self.warnings.append(warning)
            self.remarks.append(mark + warning)

    def entry_name(self, wanted: str) -> str:
        """A valid name for an entry that is similar to `wanted` and not used yet."""
        taken = {str(entry.get("name")) for entry in self.devices}
        clean = _NOT_ENTRY.sub("-", wanted.lower()).strip("-.")[:50].strip("-.") or "device"
        number, name = 1, clean
        while name in taken:
            number += 1
            name = f"{clean}-{number}"
        return name

    def remove(self, path: KeyPath, why: str) -> bool:
        """Remove and report the item or key that vdev refuses with an error at `path`. Returns False if absent."""
        part = scope_of(path)
        if len(part) == 1:  # a key of a section; items of other lists go with their key
            part = path[: max((place for place, step in enumerate(path, 1) if type(step) is str), default=1)]
        *way, last = part
        holder: Any = self.sections
        for step in way:
            holder = holder[step]
        if not way and last not in holder:
            return False
        removed = holder.pop(last)
        name = removed.get("name") if isinstance(last, int) else None
        self.omit(f"{way[-1]} {name!r}" if name else show(path), why)
        sharing = self.sections.get("sharing", {}).values()
        if way == ["devices"]:
            self.remarks += _yaml([removed])
            for block in sharing:
                block["resources"] = [each for each in block.get("resources", []) if each.get("devices") != [name]]
        if not any(block.get("resources") for block in sharing):
            self.sections.pop("sharing", None)
        return True

    @property
    def text(self) -> str:
        return "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterator[str]:
        for remark in (self.heading, *self.remarks):
            yield from _comment(remark)
        yield "version: v1"
        for section in SECTIONS:
            content = self.sections.get(section)
            if section == "devices" and content:
                yield "devices:"
                for entry in content:
                    for comment in entry.comments:
                        yield from _comment(comment, "  ")
                    yield from _yaml([entry], "  ")
            elif content:
                yield from _yaml({section: content})


# --- the source -----------------------------------------------------------------------------------------------------


class Item:
    """A mapping of the source. It records which keys an import reads, and reports the others."""

    def __init__(self, draft: Draft, given: Any, where: str = "") -> None:
        self.draft = draft
        self.given = mapping(given)
        self.where = where
        self._read: set[str] = set()
        draft.items.append(self)

    def at(self, key: str) -> str:
        """The path of a key in the source, or of the item for an empty key."""
        return f"{self.where}.{key}".strip(".")

    def value(self, key: str) -> Any:
        self._read.add(key)
        return self.given.get(key)

    def ignore(self, *keys: str) -> None:
        """Mark keys as read that have no meaning for vdev."""
        self._read |= set(keys)

    def text(self, key: str) -> str:
        return (self._typed(key, str, "a text") or "").strip()

    def texts(self, key: str) -> list[str]:
        """Return the texts in a list, without its other items."""
        return [str(each) for each in self._typed(key, list, "a list") or () if isinstance(each, str)]

    def flag(self, key: str) -> bool:
        """Whether the value is true, with or without quotes."""
        return str(self.value(key)).lower() == "true"

    def number(self, key: str) -> int:
        """Return a whole number, with or without quotes; 0 if there is none."""
        text = self._typed(key, str, "a number") or "0"
        if text.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS:
            return int(text)
        self.draft.omit(self.at(key), f"{text!r} is not a number")
        return 0

    def item(self, key: str) -> "Item":
        return Item(self.draft, self._typed(key, dict, "a mapping"), self.at(key))

    def items(self, key: str) -> list["Item"]:
        values = self._typed(key, list, "a list") or ()
        return [Item(self.draft, each, f"{self.at(key)}[{place}]") for place, each in enumerate(values)]

    def _typed(self, key: str, kind: type[Value], what: str) -> Value | None:
        """Return the value if it has this type. Other values are reported and count as absent."""
        value = self.value(key)
        if isinstance(value, kind):
            return value
        if value not in _EMPTY:
            self.draft.omit(self.at(key), f"{value!r} is not {what}")
        return None

    def omit(self, what: str, *, key: str = "") -> None:
        """Report that the item cannot be converted, because of its key `key` if it is given."""
        self.draft.omit(self.at(key), what)
        self.given = {}

    def name_unread(self) -> None:
        """Report all keys that no import has read and that are not empty."""
        unread = [self.at(str(key)) for key in self.given if key not in self._read and self.given[key] not in _EMPTY]
        if unread:
            self.draft.omit("", f"{', '.join(unread)} {'have' if len(unread) > 1 else 'has'} no counterpart here")


def mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


# --- YAML ------------------------------------------------------------------------------------------------------------


def _yaml(value: object, indent: str = "") -> Iterator[str]:
    text = dumped(value, default_flow_style=None, width=_WIDTH)
    yield from textwrap.indent(text, indent).splitlines()


def _comment(text: str, indent: str = "") -> Iterator[str]:
    """Lines of a comment. The text may contain anything from a source, and must not end the comment."""
    for line in text.split("\n"):
        safe = "".join(each if each.isprintable() else json.dumps(each)[1:-1] for each in line)
        safe = safe.encode("utf-8", "backslashreplace").decode()
        for part in textwrap.wrap(safe, _WIDTH, subsequent_indent="  ", break_long_words=False) or [""]:
            yield f"{indent}# {part}".rstrip()
