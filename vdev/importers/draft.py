"""A vdev file in the making: its sections, comments, and warnings for everything that is omitted."""

import json
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from .. import config
from ..model.problem import KeyPath, show

_WIDTH = 110  # columns of a comment, and of a short list or mapping on one line
_PLAIN = re.compile(r"[A-Za-z/][A-Za-z0-9_./-]*")
_WORDS = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})  # no strings in YAML without quotes
_NOT_ENTRY = re.compile(r"[^a-z0-9.-]+")

Keys = Mapping[str, Any]
"""The keys that an import reads, each with None, or with the keys of its mapping or of each item of its list."""


def keys(*names: str, **nested: Keys | None) -> Keys:
    return {**dict.fromkeys(names), **nested}


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
    flags: dict[str, Any] = field(default_factory=dict)
    devices: list[DraftEntry] = field(default_factory=list)
    kind: str = "timeSlicing"
    sharing: dict[str, Any] = field(default_factory=dict)  # the block of that kind without its items
    shared: list[dict[str, Any]] = field(default_factory=list)  # the items of sharing
    faults: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def entry(self, body: Mapping[str, Any], comments: Sequence[str] = ()) -> DraftEntry:
        """Add an item of `devices`."""
        self.devices.append(DraftEntry(body, comments))
        return self.devices[-1]

    def share(self, resource: str, replicas: int, entries: Sequence[str] = ()) -> None:
        """Share the devices of a resource, or those of some of its entries."""
        body: dict[str, Any] = {"name": resource, "replicas": replicas}
        self.shared.append(body | ({"devices": list(entries)} if entries else {}))

    def omit(self, where: str, what: str, entry: DraftEntry | None = None) -> None:
        """Report something that cannot be converted, as a warning and a comment."""
        warning = f"{where}: {what}" if where else what
        self.note("", warning, entry, comment=f"not converted: {warning}")

    def note(self, where: str, what: str, entry: DraftEntry | None = None, *, comment: str = "") -> None:
        """Report something that the reader should know, as a warning and a comment."""
        self.warnings.append(f"{where}: {what}" if where else what)
        (self.remarks if entry is None else entry.comments).append(comment or what)

    def name_unread(self, given: Any, known: Keys, where: str = "") -> None:
        """Report all keys that the import does not read and that are not empty."""
        if isinstance(given, list):
            for place, item in enumerate(given):
                self.name_unread(item, known, f"{where}[{place}]")
        if not isinstance(given, dict):
            return
        paths = {key: f"{where}.{key}" if where else str(key) for key in given}
        unread = [path for key, path in paths.items() if key not in known and given[key] not in (None, "", [], {})]
        if unread:
            self.omit("", f"{', '.join(unread)} {'have' if len(unread) > 1 else 'has'} no counterpart here")
        for key, inner in known.items():
            if inner is not None and key in given:
                self.name_unread(given[key], inner, paths[key])

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
        """Turn the part at this path, which vdev would refuse, into a comment. Returns whether there is such a part."""
        match path:
            case ("devices", int(place), *_):
                entry = self.devices.pop(place)
                name = entry.get("name")
                self.omit(f"devices {name!r}", why)
                self.remarks += _yaml([entry])
                for shared in [each for each in self.shared if each.get("devices")]:
                    shared["devices"] = [each for each in shared["devices"] if each != name]
                    if not shared["devices"]:
                        self.shared.remove(shared)
                return True
            case ("sharing", str(), "resources", int(place), *_):
                self.omit(f"sharing of {self.shared.pop(place).get('name')}", why)
                return True
            case ("flags", *steps) | ("sharing", str(), *steps):
                values: Any = self.flags if path[0] == "flags" else self.sharing
                *way, last = [step for step in steps if isinstance(step, str)] or [""]
                for step in way:
                    values = values.get(step) if isinstance(values, dict) else None
                if isinstance(values, dict) and values.pop(last, None) is not None:
                    self.omit(show(path), why)
                    return True
        return False

    def text(self) -> str:
        return "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterator[str]:
        for remark in (self.heading, *self.remarks):
            yield from _comment(remark)
        yield "version: v1"
        if self.flags:
            yield from _yaml({"flags": self.flags})
        if self.devices:
            yield "devices:"
            for entry in self.devices:
                for comment in entry.comments:
                    yield from _comment(comment, "  ")
                yield from _yaml([entry], "  ")
        if self.shared:
            yield from _yaml({"sharing": {self.kind: {**self.sharing, "resources": self.shared}}})
        if self.faults:
            yield from _yaml({"faults": self.faults})


# --- YAML ------------------------------------------------------------------------------------------------------------


class _Dumper(yaml.SafeDumper):
    """Indents lists, and quotes strings that some YAML reader could take for something else."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)

    def ignore_aliases(self, data: object) -> bool:
        return True

    def text(self, text: str) -> yaml.ScalarNode:
        is_plain = _PLAIN.fullmatch(text) and text.lower() not in _WORDS
        return self.represent_scalar("tag:yaml.org,2002:str", text, style=None if is_plain else '"')

    def number(self, written: str) -> yaml.ScalarNode:
        tag = self.resolve(yaml.ScalarNode, written, (True, False))  # type: ignore[no-untyped-call]
        return self.represent_scalar(tag, written)


_Dumper.add_representer(str, _Dumper.text)
_Dumper.add_representer(config.Plain, _Dumper.number)
_Dumper.add_multi_representer(dict, _Dumper.represent_dict)


def _yaml(value: object, indent: str = "") -> Iterator[str]:
    text = yaml.dump(value, Dumper=_Dumper, sort_keys=False, default_flow_style=None, width=_WIDTH)
    yield from textwrap.indent(text, indent).splitlines()


def _comment(text: str, indent: str = "") -> Iterator[str]:
    """Lines of a comment. The text may contain anything from a source, and must not end the comment."""
    for line in text.split("\n"):
        safe = "".join(each if each.isprintable() else json.dumps(each)[1:-1] for each in line)
        rest = safe.encode("utf-8", "backslashreplace").decode()
        while len(rest) > _WIDTH and " " in rest[:_WIDTH].strip():
            end = rest.rindex(" ", 0, _WIDTH)
            yield f"{indent}# {rest[:end]}".rstrip()
            rest = "  " + rest[end:].strip()
        yield f"{indent}# {rest}".rstrip()
