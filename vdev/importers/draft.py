"""What all imports share: a vdev file in the making with its comments and warnings, and the sources in a text."""

import json
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import yaml

from .. import config
from ..errors import ConfigError

_WIDTH = 110  # columns of a comment, and of a short list or mapping on one line
_PLAIN = re.compile(r"[A-Za-z/][A-Za-z0-9_./-]*")
_WORDS = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})  # no strings in YAML without quotes
_NOT_ENTRY = re.compile(r"[^a-z0-9.-]+")

Keys = Mapping[str, Any]
"""The keys that an import reads, each with None, or with the keys of its mapping or of each item of its list."""


def keys(*names: str, **nested: Keys | None) -> Keys:
    return {**dict.fromkeys(names), **nested}


@dataclass(slots=True)
class Block:
    """An item of `devices`, with the comments above it."""

    body: dict[str, Any]
    comments: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Draft:
    """A vdev file in the making. `name` distinguishes it from other files of the same source."""

    heading: str
    name: str = ""
    remarks: list[str] = field(default_factory=list)  # comments at the top
    flags: dict[str, Any] = field(default_factory=dict)
    devices: list[Block] = field(default_factory=list)
    sharing: dict[str, Any] = field(default_factory=dict)  # the section without its items
    kind: str = "timeSlicing"
    shared: list[dict[str, Any]] = field(default_factory=list)  # the items of sharing
    faults: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def entry(self, body: Mapping[str, Any], comments: Sequence[str] = ()) -> Block:
        """Add an item of `devices`."""
        block = Block(dict(body), list(comments))
        self.devices.append(block)
        return block

    def share(self, resource: str, replicas: int, entries: Sequence[str] = ()) -> None:
        """Share the devices of a resource, or those of some of its entries."""
        body: dict[str, Any] = {"name": resource, "replicas": replicas}
        self.shared.append(body | ({"devices": list(entries)} if entries else {}))

    def omit(self, where: str, what: str, block: Block | None = None) -> None:
        """Report something that cannot be converted, as a warning and a comment."""
        self.warnings.append(f"{where}: {what}" if where else what)
        (self.remarks if block is None else block.comments).append(f"not converted: {self.warnings[-1]}")

    def note(self, where: str, what: str, block: Block | None = None) -> None:
        """Report something that the reader should know, as a warning and a comment."""
        self.warnings.append(f"{where}: {what}" if where else what)
        (self.remarks if block is None else block.comments).append(what)

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
        taken = {str(block.body.get("name")) for block in self.devices}
        clean = _NOT_ENTRY.sub("-", wanted.lower()).strip("-.")[:50].strip("-.") or "device"
        number, name = 1, clean
        while name in taken:
            number += 1
            name = f"{clean}-{number}"
        return name

    def remove_entry(self, place: int, why: str) -> None:
        """Turn an item of `devices` into a comment, and remove it from `sharing`."""
        block = self.devices.pop(place)
        name = block.body.get("name")
        self.omit(f"devices {name!r}", why)
        self.remarks += _yaml([block.body])
        for shared in list(self.shared):
            kept = [each for each in shared.get("devices", ()) if each != name]
            if shared.get("devices") and not kept:
                self.shared.remove(shared)
            elif kept:
                shared["devices"] = kept

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
            for block in self.devices:
                for comment in block.comments:
                    yield from _comment(comment, "  ")
                yield from _yaml([block.body], "  ")
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


# --- sources ----------------------------------------------------------------------------------------------------------

_WORKLOADS = ("DaemonSet", "Deployment", "StatefulSet", "ReplicaSet", "Job")
_MAX_SOURCES = 1000
_MAX_DIGITS = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportOptions:
    """The options of an import."""

    form: str = ""  # empty: detected by the content
    domain: str = ""  # of the resources, if the plugin takes it from its command line
    preset: str = ""  # of the GPUs, for forms that do not name them
    count: int = 0  # of the GPUs
    arguments: tuple[str, ...] = ()  # flags of the plugin


@dataclass(frozen=True, slots=True)
class Arguments:
    """The command line of a plugin."""

    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ImportSource:
    """A document, or the arguments of a container."""

    content: Any
    key: str = ""  # in a ConfigMap, without the suffix
    where: str = ""  # the path in a ConfigMap


def sources(text: str, name: str) -> list[ImportSource]:
    """All documents and arguments in the text. Raises ConfigError if it is not YAML."""
    found = (each for tree in config.trees(text, name) for each in _unwrapped(tree, name))
    return list(islice(found, _MAX_SOURCES))


def _unwrapped(tree: Any, name: str) -> Iterator[ImportSource]:
    if not isinstance(tree, dict) or not isinstance(tree.get("kind"), str) or "apiVersion" not in tree:
        yield ImportSource(tree)
        return
    kind = tree["kind"]
    if kind == "List" or (kind.endswith("List") and isinstance(tree.get("items"), list)):
        for item in listed(tree.get("items")):
            yield from _unwrapped(item, name)
    elif kind == "ConfigMap":
        for key, text in mapping(tree.get("data")).items():
            if isinstance(text, str):
                yield from _inner(text, key, name)
    elif kind in _WORKLOADS:
        yield from _containers(mapping(mapping(tree.get("spec")).get("template")))
    elif kind == "Pod":
        yield from _containers(tree)
    else:
        yield ImportSource(tree)


def _inner(text: str, key: str, name: str) -> Iterator[ImportSource]:
    try:
        trees = config.trees(text, f"{name}: {key}")
    except ConfigError:
        return  # some other text, such as a script
    stem = key.rpartition(".")[0] if key.endswith((".yaml", ".yml", ".json")) else key
    for tree in trees:
        yield ImportSource(tree, stem, f"data.{key}")


def _containers(template: dict[str, Any]) -> Iterator[ImportSource]:
    spec = mapping(template.get("spec"))
    for container in (*listed(spec.get("initContainers")), *listed(spec.get("containers"))):
        given = mapping(container)
        words = [*listed(given.get("command")), *listed(given.get("args"))]
        if words:
            yield ImportSource(Arguments(tuple(str(each) for each in words if isinstance(each, str))))


def mapping(value: Any) -> dict[str, Any]:
    """The value if it is a mapping; else an empty mapping."""
    return value if isinstance(value, dict) else {}


def listed(value: Any) -> list[Any]:
    """The value if it is a list; else an empty list."""
    return value if isinstance(value, list) else []


def is_true(value: Any) -> bool:
    """Whether the value is true, with or without quotes."""
    return str(value).lower() == "true"


def number(value: Any) -> int | None:
    """The value of a non-negative integer, with or without quotes; 0 for None, and None for anything else."""
    if value is None:
        return 0
    text = str(value)
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS else None


_BOOLEANS = {"yes": True, "on": True, "y": True, "no": False, "off": False, "n": False}


def as_yaml_1_1(tree: Any) -> Any:
    """The values with the booleans of YAML 1.1, such as `yes`, as booleans, and without keys that have no value."""
    match tree:
        case dict():
            return {key: as_yaml_1_1(value) for key, value in tree.items() if value is not None}
        case list():
            return [as_yaml_1_1(each) for each in tree]
        case str() if not isinstance(tree, config.Plain) and tree.lower() in _BOOLEANS:
            return _BOOLEANS[tree.lower()]
    return tree
