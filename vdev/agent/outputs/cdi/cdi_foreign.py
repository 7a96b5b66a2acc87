"""The CDI specifications of others in the directory that we write ours to: which devices they define.

A runtime resolves no device that two files define, so it matters what they say. They are only read: plain files alone,
bounded in number, size and depth, each apart from the others. What cannot be read defines nothing here.
"""

import itertools
import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import structlog
import yaml

from ....errors import HostError
from ....hostfs import read_plain
from ....json_text import parse_json

log = structlog.get_logger(__name__)

MAX_ENTRIES = 10_000  # names in the directory that are looked at
MAX_FILES = 500  # specifications that are read; a node has a handful
MAX_BYTES = 2**20  # of one; NVIDIA's for eight cut GPUs has 0.2 MB
MAX_DEPTH = 64
MAX_EVENTS = 200_000  # values and brackets in one YAML file
_SUFFIXES = (".json", ".yaml", ".yml")
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the C loader exists where libyaml does

Name = tuple[str, str]  # kind, device name


@dataclass(frozen=True, slots=True)
class _Known:
    """A file as it was last read, and what it defined."""

    stamp: tuple[int, ...]
    names: frozenset[Name]
    complaint: str = ""


@dataclass(slots=True)
class ForeignFiles:
    """The files of others in one directory; a file that did not change is not read again."""

    directory: Path
    _known: dict[str, _Known] = field(default_factory=dict)

    def defining(self, wanted: Collection[Name], *, besides: Collection[str]) -> dict[Name, str]:
        """Which of the wanted devices others define, each with the path of such a file.

        `besides` are names of files that are not looked at. Raises OSError when the directory cannot be listed.
        """
        before, self._known = self._known, {}
        for name in self._files(besides):
            known = self._known[name] = _looked_at(self.directory / name, before.get(name))
            if known.complaint and known.complaint != (before[name].complaint if name in before else ""):
                log.warning("file in the CDI directory left out", problem=known.complaint)
        return {
            device: str(self.directory / name)
            for name, known in sorted(self._known.items(), reverse=True)
            for device in known.names.intersection(wanted)
        }

    def _files(self, besides: Collection[str]) -> list[str]:
        with os.scandir(self.directory) as entries:
            names = sorted(entry.name for entry in itertools.islice(entries, MAX_ENTRIES))
        # A name that is no text in a log or in a status is none that a runtime is meant to read.
        files = (name for name in names if name.endswith(_SUFFIXES) and name.isprintable() and name not in besides)
        return list(itertools.islice(files, MAX_FILES))


def _looked_at(path: Path, before: _Known | None) -> _Known:
    try:
        found = path.stat()
        stamp = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
    except OSError:  # a link to nothing or in a circle, or gone since the directory was listed
        return _Known((), frozenset())
    if before is not None and before.stamp == stamp:
        return before
    try:
        data = read_plain(path, limit=MAX_BYTES) or b""
        return _Known(stamp, frozenset(_json(data) if path.suffix == ".json" else _yaml(data)))
    except HostError as failed:
        return _Known(stamp, frozenset(), str(failed))
    except (ValueError, RecursionError, yaml.YAMLError):
        return _Known(stamp, frozenset(), f"{path} is no specification that can be read")


def _json(data: bytes) -> Iterator[Name]:
    match parse_json(data):
        case {"kind": str(kind), "devices": [*devices]}:
            for device in devices:
                if isinstance(device, Mapping) and isinstance(device.get("name"), str):
                    yield kind, device["name"]


@dataclass(slots=True)
class _Open:
    """A mapping or a list whose end is not read yet. `key` leads to the next value in it; None in a list."""

    is_mapping: bool
    key: str | None = None
    at_key: bool = False  # whether a key comes next


def _yaml(data: bytes) -> Iterator[Name]:
    kind, names = "", []
    for way, text in _texts(data):
        match way:
            case ["kind"]:
                kind = text
            case ["devices", None, "name"]:
                names.append(text)
    return ((kind, name) for name in names)


def _texts(data: bytes) -> Iterator[tuple[list[str | None], str]]:
    """The scalars of a YAML file's first document, each with the keys that lead to it.

    By events alone: nothing is built, so that neither depth nor anchors and merges can make much of a small file.
    """
    outer: list[_Open] = []
    for event in itertools.islice(yaml.parse(data, Loader=_Loader), MAX_EVENTS):
        if isinstance(event, yaml.DocumentEndEvent):
            return
        if isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent)):
            if len(outer) == MAX_DEPTH:
                raise ValueError(f"nested more than {MAX_DEPTH} levels deep")
            is_mapping = isinstance(event, yaml.MappingStartEvent)
            outer.append(_Open(is_mapping, at_key=is_mapping))
            continue
        if isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
            outer.pop()
        elif not isinstance(event, yaml.NodeEvent):
            continue
        text = event.value if isinstance(event, yaml.ScalarEvent) else None
        here = outer[-1] if outer else _Open(is_mapping=False)
        if here.at_key:
            here.key = text or ""
        elif text is not None:
            yield [each.key for each in outer], text
        here.at_key = here.is_mapping and not here.at_key
    raise ValueError(f"no document, or one of more than {MAX_EVENTS} values")
