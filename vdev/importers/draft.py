"""A vdev file in the making: its sections, comments where they belong, what could not be said, and its text."""

import json
import re
import textwrap
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import yaml

from .. import config
from ..errors import ConfigError

_WIDTH = 110  # of a line that a short list or mapping may have
_PLAIN = re.compile(r"[A-Za-z/][A-Za-z0-9_./-]*")
_WORDS = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})  # of which YAML makes something else
_NOT_ENTRY = re.compile(r"[^a-z0-9.-]+")


@dataclass(slots=True)
class Block:
    """An item of `devices`, with the comments above it."""

    body: dict[str, Any]
    comments: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Draft:
    """A vdev file. `name` tells it from others that come of the same source."""

    heading: str
    name: str = ""
    remarks: list[str] = field(default_factory=list)  # at the top
    flags: dict[str, Any] = field(default_factory=dict)
    devices: list[Block] = field(default_factory=list)
    sharing: dict[str, Any] = field(default_factory=dict)  # all of timeSlicing or mps but the items
    kind: str = "timeSlicing"
    shared: list[dict[str, Any]] = field(default_factory=list)
    faults: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def entry(self, body: Mapping[str, Any], comments: Sequence[str] = ()) -> Block:
        """Add an item of `devices`."""
        block = Block(dict(body), list(comments))
        self.devices.append(block)
        return block

    def share(self, resource: str, replicas: int, entries: Sequence[str] = ()) -> None:
        """Offer the devices of a resource several times, or those of some entries."""
        body: dict[str, Any] = {"name": resource, "replicas": replicas}
        self.shared.append(body | ({"devices": list(entries)} if entries else {}))

    def lost(self, where: str, what: str, block: Block | None = None) -> None:
        """Something that the source says and this file does not: a warning, and a comment where it would stand."""
        self.warnings.append(f"{where}: {what}" if where else what)
        (self.remarks if block is None else block.comments).append(f"not taken over: {self.warnings[-1]}")

    def told(self, where: str, what: str, block: Block | None = None) -> None:
        """Something that the reader should know: a warning and a comment."""
        self.warnings.append(f"{where}: {what}" if where else what)
        (self.remarks if block is None else block.comments).append(what)

    def unread(self, where: str, given: Mapping[str, Any], known: Collection[str]) -> None:
        """Name the keys that the import does not read, unless they say nothing."""
        keys = [
            f"{where}.{key}" if where else str(key) for key, value in given.items() if key not in known and _says(value)
        ]
        if keys:
            self.lost("", f"{', '.join(keys)} {'have' if len(keys) > 1 else 'has'} no counterpart here")

    def entry_name(self, wish: str) -> str:
        """A name for an entry, made of the wish, that no other has."""
        taken = {str(block.body.get("name")) for block in self.devices}
        clean = _NOT_ENTRY.sub("-", wish.lower()).strip("-.")[:50].strip("-.") or "device"
        number, name = 1, clean
        while name in taken:
            number += 1
            name = f"{clean}-{number}"
        return name

    def text(self) -> str:
        return "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterator[str]:
        yield from _comment(self.heading)
        for remark in self.remarks:
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

    def dismiss(self, place: int, why: str) -> None:
        """Take an item of `devices` out, as a comment, and with it what is said of it alone."""
        block = self.devices.pop(place)
        name = block.body.get("name")
        self.lost(f"devices {name!r}", why)
        self.remarks += _yaml([block.body])
        for shared in list(self.shared):
            kept = [each for each in shared.get("devices", ()) if each != name]
            if shared.get("devices") and not kept:
                self.shared.remove(shared)
            elif kept:
                shared["devices"] = kept


def _says(value: object) -> bool:
    return value is not None and value not in ("", [], {})


# --- YAML ------------------------------------------------------------------------------------------------------------


class _Dumper(yaml.SafeDumper):
    """Indents lists, and writes texts so that nobody reads something else: quoted, unless they are plain words."""

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
    """Lines of a comment. What a file's author wrote may hold anything; none of it may end the comment."""
    for line in text.split("\n"):
        safe = "".join(each if each.isprintable() else json.dumps(each)[1:-1] for each in line)
        rest = safe.encode("utf-8", "backslashreplace").decode()
        while len(rest) > _WIDTH and " " in rest[:_WIDTH].strip():
            end = rest.rindex(" ", 0, _WIDTH)
            yield f"{indent}# {rest[:end]}".rstrip()
            rest = "  " + rest[end:].strip()
        yield f"{indent}# {rest}".rstrip()


_WORKLOADS = ("DaemonSet", "Deployment", "StatefulSet", "ReplicaSet", "Job")
MAX_SOURCES = 1000
_DIGITS = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What the caller of an import says beside the text.

    `form` is the name of the form, empty to tell it by the content; `domain` that of the resources, where the peer
    takes it from its command line; `preset` and `count` are the GPUs, of which some forms say nothing; `arguments` are
    the peer's own flags.
    """

    form: str = ""
    domain: str = ""
    preset: str = ""
    count: int = 0
    arguments: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Arguments:
    """The command line of a plugin."""

    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ImportSource:
    """A document, or the arguments of a container. `key` is its name in what it was wrapped in, `where` its path."""

    content: Any
    key: str = ""
    where: str = ""


def sources(text: str, name: str) -> list[ImportSource]:
    """All that the text holds. Raises ConfigError where it is no YAML."""
    found = (each for tree in config.trees(text, name) for each in _unwrapped(tree, name))
    return list(islice(found, MAX_SOURCES))


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
    """The value, where it is a mapping; else an empty one."""
    return value if isinstance(value, dict) else {}


def listed(value: Any) -> list[Any]:
    """The value, where it is a list; else an empty one."""
    return value if isinstance(value, list) else []


def is_true(value: Any) -> bool:
    """Whether it is true, unquoted or in quotes."""
    return str(value).lower() == "true"


def number(value: Any) -> int | None:
    """A whole number that is not negative, as it is written or in quotes; 0 for nothing, None for anything else."""
    if value is None:
        return 0
    text = str(value)
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= _DIGITS else None
