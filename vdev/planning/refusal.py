"""Refuses devices whose values must not be inserted into a template: they are listed, but not handed out.

The vendor of a device chooses its serial number and its product name. In a path, `../../etc` leaves the directory, a
'/' selects another directory, and an empty text is the directory itself. In a variable, a comma turns one device into
two, and a line break adds a line. Text from the configuration is trusted more: it is refused only if it cannot be part
of a path or variable at all.
"""

import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import StrEnum

from ..model.device import DeviceNode, Health, Mount, RawDevice, facts
from ..model.entry import Entry
from ..model.problem import KeyPath, Problem, show, warning
from ..model.section import templates
from ..model.template import Template

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")  # line breaks, bidi overrides
_NOT_TEXT = re.compile(r"[\x00\ud800-\udfff]")  # invalid in variables and in messages to the kubelet
_ATTRIBUTE = "attributes."
_CHECKED = ("container", "health", "preStart", "onAllocate", "onRelease", "sysfs", "usb")
_MAX_QUOTED = 60  # characters of a value


class _Use(StrEnum):
    """The use of a rendered text."""

    PATH = "a path"
    VARIABLE = "a variable"
    ANNOTATION = "an annotation"
    WORD = "a command"


_Place = tuple[KeyPath, _Use, Template]
"""A template of an entry that has placeholders, with its keys and its use."""


def checked(
    problems: list[Problem], entries: Sequence[Entry], found: Mapping[str, Sequence[RawDevice]]
) -> Mapping[str, Sequence[RawDevice]]:
    """All devices by entry; devices with values that the entry's templates must not contain are marked as refused."""
    devices: dict[str, list[RawDevice]] = {}
    for entry in entries:
        places = _places(entry)
        own = devices[entry.name] = []
        refused = []
        for raw in found.get(entry.name, ()):
            if why := _why(entry, places, raw):
                refused.append((raw.id, why))
                own.append(replace(raw, refused=why, health=Health(healthy=False, reason=f"not handed out: {why}")))
            else:
                own.append(raw)
        if refused:
            more = f" (and {len(refused) - 1} more like it)" if len(refused) > 1 else ""
            first, why = refused[0]
            problems.append(warning(entry.where or entry.name, f"{first} is not handed out{more}: {why}"))
    return devices


def _places(entry: Entry) -> Sequence[_Place]:
    """The templates for paths and for what a container or command gets. The paths of `glob` are those of real files."""
    written = entry.written
    found = [*templates({key: written[key] for key in _CHECKED if key in written})]
    if entry.virtual and entry.virtual.node and (inside := entry.virtual.node.container_path):
        found.append((("virtual", "node", "containerPath"), inside))
    return [(path, _use(path), template) for path, template in found if not template.is_constant]


def _use(path: KeyPath) -> _Use:
    match path:
        case ("container", "env", _):
            return _Use.VARIABLE
        case ("container", "annotations", _):
            return _Use.ANNOTATION
        case (*_, "command", _):
            return _Use.WORD
    return _Use.PATH


# --- checking one device ----------------------------------------------------------------------------------------------


def _why(entry: Entry, places: Sequence[_Place], raw: RawDevice) -> str:
    """Why the device must not be handed out; empty if it may."""
    base = {"attributes.base": posixpath.basename(raw.paths[0]) if raw.paths else ""}
    values = {**base, **facts(raw, entry.resource_of(raw))} if places else {}
    for keys, use, template in places:
        where = f"{show(keys)} {template.source!r}"
        for name in template.names:
            value = values.get(name, "")
            if wrong := _value_problem(entry, use, template, name, value):
                return f"{name} is {_shown(value)} in {where}, and {wrong}"
        if use is _Use.PATH:
            # Values that only partitions have.
            of_partitions = dict.fromkeys(template.names, "x") if entry.virtual else {}
            path = template.render({**of_partitions, **values})
            wrong = _path_problem(path)
            if not wrong and keys[0] not in ("sysfs", "usb"):  # for which a final '/' means a directory
                wrong = _emptied(template.source, path)
            if wrong:
                return f"{where} would be {_shown(path)}, which {wrong}"
    edits: tuple[DeviceNode | Mount, ...] = (*raw.nodes, *raw.mounts)
    for edit in edits:
        for path in (edit.host_path, edit.container_path):
            wrong = _path_problem(path)
            if wrong:
                return f"it has the path {_shown(path)}, which {wrong}"
    return ""


def _value_problem(entry: Entry, use: _Use, template: Template, name: str, value: str) -> str:
    """Why a value must not be inserted into the template; empty if it may."""
    foreign = entry.virtual is None and (name == "path" or name.startswith(_ATTRIBUTE))
    if (_CONTROL if foreign or use is _Use.PATH else _NOT_TEXT).search(value):
        return f"{use} must not have control characters"
    if not foreign:
        return ""
    # Discovery joins the names of children with commas, so a comma in this attribute is valid.
    is_list = any(name.removeprefix(_ATTRIBUTE) in part.children for part in entry.by_attributes)
    match use:
        case _Use.VARIABLE if "," in value and not is_list:
            return "its comma would be read as two values: a variable lists several devices with commas between them"
        # A match of a path pattern is part of a real path. All other values are chosen by the device's vendor.
        case _Use.PATH if not (entry.glob or name == "path") and ("/" in value or value in (".", "..")):
            return "it would lead to another directory"
        case _Use.WORD if value.startswith("-") and not template.literals[0] and template.names[0] == name:
            return "the command would take it for an option"
    return ""


def _path_problem(path: str) -> str:
    if not path.startswith("/"):
        return "is not absolute"
    if ".." in path.split("/"):
        return "contains '..'"
    return "has control characters" if _CONTROL.search(path) else ""


def _emptied(source: str, path: str) -> str:
    """The problem if an empty placeholder removes a whole component, so that the path is that of its parent."""
    lost = path.count("//") > source.count("//") or path.endswith("/") > source.endswith("/")
    return "lacks a part, because its placeholder has no value" if lost else ""


def _shown(value: str) -> str:
    return repr(value if len(value) <= _MAX_QUOTED else f"{value[:_MAX_QUOTED]}…")
