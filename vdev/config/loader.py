"""Reads files, decodes them, joins several into one document, and applies overrides.

`parser` turns the text into values. JSON is read as YAML.
"""

import contextlib
import errno
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from ..errors import ConfigError, HostError
from ..model.problem import KeyPath, Override, Place, Problem, Severity, show
from ..model.section import Plain
from .parser import MIG_PARTED, Tree, TreeReader, YamlReader, is_for_nvidia, place_of, problem_at, refusal

_TEMPORARY = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)  # a later attempt may succeed
MAX_BYTES = 8 * 1024 * 1024  # a ConfigMap holds 1 MiB at most

_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # YAML 1.2, 5.1
_DEV_NULL = os.makedev(1, 3)  # NVIDIA's config-manager links to it for "no configuration"
_PIPED = ("/dev/stdin", "/dev/fd/", "/proc/self/fd/")  # pipes of a shell; opening them does not block


@dataclass(frozen=True, slots=True)
class FileText:
    file: str
    text: str


@dataclass(slots=True)
class FileTexts:
    """The texts of the configuration files in order, and of the user's own files that they use.

    Each file is read once, so all entries see the same content, and the configuration can be loaded again from these
    texts when the files no longer exist.
    """

    files: tuple[FileText, ...] = ()
    presets: dict[str, FileText] = field(default_factory=dict)  # by name
    layouts: dict[str, FileText] = field(default_factory=dict)  # by path
    preset_dirs: tuple[Path, ...] = field(default=(), compare=False)  # searched for presets that are not in `presets`

    def layout(self, path: Path) -> FileText:
        """Return the text of a file of layouts. Raises ConfigError and HostError."""
        name = str(path)
        if name not in self.layouts:
            self.layouts[name] = FileText(name, text_of(path))
        return self.layouts[name]


@dataclass(frozen=True, slots=True)
class Document:
    """The joined content of the files, with the places of its keys and values.

    `problems` has errors that leave the rest readable, such as duplicate keys, or a section in two files.
    """

    root: dict[str, Tree] = field(default_factory=dict)
    keys: Mapping[KeyPath, Place] = field(default_factory=dict)
    values: Mapping[KeyPath, Place] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()
    texts: tuple[FileText, ...] = ()  # of the files
    for_nvidia: frozenset[str] = frozenset()  # the files that are for NVIDIA's plugin

    def known(self, path: KeyPath) -> KeyPath:
        """Return the part of `path` that is in the files, without index 0 if the file has an item instead of a list."""
        return self.split(path)[0]

    def split(self, path: KeyPath) -> tuple[KeyPath, KeyPath]:
        """Return the part of `path` that is in the files, and the rest."""
        found: KeyPath = ()
        for number, step in enumerate(path):
            if (*found, step) in self.values:
                found = (*found, step)
            elif step != 0:
                return found, path[number:]
        return found, ()

    def is_for_nvidia(self, path: KeyPath) -> bool:
        """Whether the value of `path` is from a file for NVIDIA's plugin."""
        return self.value_place(path).file in self.for_nvidia

    def value_place(self, path: KeyPath) -> Place:
        """The place of the value of `path`, or of the nearest value around it."""
        return self.values.get(self.known(path)) or Place(self.texts[0].file if self.texts else "")

    def key_place(self, path: KeyPath) -> Place:
        """The place of the key of `path`, or of its value if it is an item of a list."""
        return self.keys.get(self.known(path)) or self.value_place(path)


def read(sources: Sequence[FileText | Path]) -> Document:
    """Read files or texts and join them into one document. Some of several may be empty. Raises ConfigError."""
    several = len(sources) > 1
    documents: list[Document] = []
    problems: list[Problem] = []
    for each in sources:
        try:
            text = each if isinstance(each, FileText) else FileText(str(each), text_of(each, may_be_null=several))
            documents.append(read_text(text.text, text.file, may_be_empty=several))
        except ConfigError as bad:
            problems += bad.problems
    if problems:
        raise ConfigError(tuple(problems))
    if several and not any(each.root for each in documents):
        raise refusal(Place(documents[0].texts[0].file), "is empty", f"expected {_FORM}")
    return _joined(documents) if several else documents[0]


def text_of(path: Path, *, may_be_null: bool = False) -> str:
    """Return the text of one file; with `may_be_null` it may be /dev/null. Raises ConfigError."""
    name = str(path)
    try:
        state = path.stat()
        mode = state.st_mode
        piped = name.startswith(_PIPED)
        if may_be_null and stat.S_ISCHR(mode) and state.st_rdev == _DEV_NULL:
            return ""
        if not stat.S_ISREG(mode) and not piped:
            what = "a directory" if stat.S_ISDIR(mode) else "not a plain file"
            raise refusal(Place(name), f"is {what}")
        # Do not block if a pipe has replaced the file since the check above.
        flags = os.O_RDONLY | os.O_CLOEXEC | (0 if piped else os.O_NONBLOCK)
        with os.fdopen(os.open(path, flags), "rb") as file:
            return decoded(file.read(MAX_BYTES + 1), name)
    except OSError as error:
        if error.errno in _TEMPORARY:
            raise HostError(f"{name} cannot be read now: {error.strerror}") from error
        raise refusal(Place(name), f"cannot be read: {error.strerror}") from error
    except ValueError as error:  # a NUL byte in the name
        raise refusal(Place(name), f"cannot be read: {error}") from error


def decoded(data: bytes, name: str) -> str:
    """Decode a file's content. Raises ConfigError if it is not UTF-8 text, or too long."""
    if len(data) > MAX_BYTES:
        raise refusal(Place(name), f"is larger than {MAX_BYTES // 1024 // 1024} MiB", "is it the right file?")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8-sig", "replace")
        raise refusal(
            _place(before, name), f"byte 0x{data[error.start]:02x} is not UTF-8", "save it as UTF-8"
        ) from error


_FORM = "a mapping that starts with 'version: v1'"
_RULES = "a rule, such as {name: x, devices: [a/0], health: Unhealthy}, or a mapping with `rules`"


def read_text(text: str, name: str, *, may_be_empty: bool = False, has_rules: bool = False) -> Document:
    """Read a file's text. With `has_rules` it may also be the section `faults` alone, or a single rule of it.

    Raises ConfigError.
    """
    form = _RULES if has_rules else _FORM
    with _syntax_errors(text, name):
        documents = YamlReader(text, name)
        node = documents.get_node() if documents.check_node() else None
        second = place_of(documents.peek_event(), name) if documents.check_node() else None  # its content is not read
    keys = {key.value for key, _ in node.value if key.id == "scalar"} if isinstance(node, yaml.MappingNode) else set()
    for_nvidia = bool(keys) and is_for_nvidia(keys)
    if second and not for_nvidia:
        raise refusal(second, "a second document starts here", "a configuration file holds one document")
    at: KeyPath = ()
    if has_rules and "faults" not in keys:
        at = ("faults",) if "rules" in keys else ("faults", "rules", 0)
    reader = TreeReader(name, is_go=for_nvidia or bool(keys and keys <= MIG_PARTED), for_nvidia=for_nvidia)
    root: Any = node and reader.tree(node, at)
    if root is None:
        if may_be_empty:
            return Document(values={(): Place(name, 1, 1)}, texts=(FileText(name, ""),))
        raise refusal(Place(name), "is empty", f"expected {form}")
    start = reader.values[at]
    if not isinstance(root, dict):
        what = "a list" if isinstance(root, list) else f"the string {root[:40]!r}"
        raise refusal(start, f"expected a mapping at the top of the file, got {what}", f"write {form}")
    if {"kind", "apiVersion"} <= keys:
        raise _object_of_kubernetes(root, start)
    problems = list(reader.problems.values())
    for step in reversed(at):
        root = {step: root} if isinstance(step, str) else [root]
    if second:
        message = "a second document starts here; it is ignored, as by NVIDIA's plugin"
        problems.append(problem_at(second, (), message, severity=Severity.WARNING))
    sharing = root.get("sharing")
    if for_nvidia and isinstance(sharing, dict) and sharing.get("mps", {}) is None:
        del sharing["mps"]  # ignored
    values = {at[:end]: start for end in range(len(at))} | reader.values
    texts = (FileText(name, text),)
    return Document(root, reader.keys, values, tuple(problems), texts, frozenset([name] if for_nvidia else []))


def trees(text: str, name: str) -> tuple[Tree, ...]:
    """Return the documents of a YAML text. Scalars keep their text; unquoted numbers and booleans are `Plain`.

    Raises ConfigError if it is not YAML, or too long.
    """
    with _syntax_errors(text, name):
        documents, found = YamlReader(str(text), name), []
        while documents.check_node() and (node := documents.get_node()):
            found.append(TreeReader(name).tree(node))
    return tuple(found)


@contextlib.contextmanager
def _syntax_errors(text: str, name: str) -> Iterator[None]:
    """Turn syntax errors of YAML into ConfigError with their place."""
    if bad := _UNPRINTABLE.search(text):
        place = _place(text[: bad.start()], name)
        message = f"character U+{ord(bad.group()):04X} is not allowed in YAML"
        raise refusal(place, message, "write it as an escape in double quotes")
    try:
        yield
    except yaml.MarkedYAMLError as error:
        raise _syntax_error(error, text, name) from error
    except yaml.YAMLError as error:
        raise refusal(Place(name), f"is not YAML: {error}") from error


def _joined(documents: Sequence[Document]) -> Document:
    """Join several files. Each top-level section may be in only one of them; `version` must be the same in all."""
    problems: list[Problem] = []
    owners: dict[str, Document] = {}  # by section
    for document in documents:
        problems += document.problems
        for section, value in document.root.items():
            path = (section,)
            owner = owners.setdefault(section, document)
            if section == "version" and value != owner.root[section]:
                message = f"version {value} differs from {owner.root[section]} at {owner.values[path]}"
                problems.append(problem_at(document.values[path], path, message))
            elif section != "version" and owner is not document:
                message = f"section {section!r} is in two files; the other is at {owner.keys[path]}"
                hint = "move its content into one file"
                problems.append(problem_at(document.keys[path], path, message, hint=hint))
    root: dict[str, Tree] = {}
    keys: dict[KeyPath, Place] = {}
    values: dict[KeyPath, Place] = {}
    for document in reversed(documents):  # the first document takes precedence
        root = {**document.root, **root}
        keys |= document.keys
        values |= document.values
    texts = tuple(text for document in documents for text in document.texts)
    for_nvidia = frozenset[str]().union(*(document.for_nvidia for document in documents))
    values[()] = Place(texts[0].file, 1, 1)
    return Document(root, keys, values, tuple(problems), texts, for_nvidia)


def overlaid(document: Document, overrides: Mapping[KeyPath, Override]) -> Document:
    """Replace values of the document by overrides. Their place in messages is their source, such as a flag."""
    root, values = document.root, dict(document.values)
    for path, override in overrides.items():
        value = override.value
        root = _put(root, path, _overlay(value))
        values = {old: place for old, place in values.items() if old[: len(path)] != path}
        for end in range(1, len(path)):
            values.setdefault(path[:end], Place(override.source))
        values[path] = Place(override.source)
    keys = {path: place for path, place in document.keys.items() if path not in overrides}
    return replace(document, root=root, keys=keys, values=values)


def _overlay(value: str | float | tuple[str, ...]) -> Tree:
    """Convert a flag's value to a YAML value. Numbers in a list need no quotes."""
    if isinstance(value, tuple):
        return [Plain(item) if item.isdecimal() else item for item in value]
    return value if isinstance(value, str) else Plain(str(value).lower())


def _put(tree: Tree, path: KeyPath, value: Tree) -> dict[str, Tree]:
    """Return the mapping with this value at the path."""
    old = tree if isinstance(tree, dict) else {}
    key = str(path[0])
    return {**old, key: _put(old.get(key), path[1:], value) if len(path) > 1 else value}


# --- errors ----------------------------------------------------------------------------------------------------------


def _place(before: str, name: str) -> Place:
    """Return the place right after the text `before`."""
    return Place(name, before.count("\n") + 1, len(before) - before.rfind("\n"))


def _syntax_error(error: yaml.MarkedYAMLError, text: str, name: str) -> ConfigError:
    lines = text.splitlines()
    mark, hint = _mistake(error, lines)
    place = Place(name, mark.line + 1, mark.column + 1) if mark else Place(name)
    if mark and not hint:
        line = lines[mark.line] if mark.line < len(lines) else ""
        if "\t" in line[: mark.column + 1]:
            hint = "YAML is indented with spaces; there is a tab in this line"
        elif not "".join(text.split("\n")[mark.line :])[mark.column :].strip():
            hint = _CUT
        elif "invalid Unicode character escape" in str(error.problem):  # two escapes for one character, as in JSON
            hint = "write the character itself"
        elif error.context == "while scanning an alias" or "undefined alias" in str(error.problem):
            hint = "quote a pattern that begins with '*'"
        elif "cannot start any token" in str(error.problem):
            hint = f"quote a text that begins with {line[mark.column]!r}"
        elif "mapping values" in str(error.problem):
            hint = "check how far this line is indented, and that there is a space after the ':' in the line above; "
            hint += "quote a text that has ': ' in it"
    context = f"{error.context}: " if error.context else ""
    return refusal(place, f"is not YAML: {context}{error.problem}", hint)


_CUT = "the file ends too early; was it written completely?"


def _mistake(error: yaml.MarkedYAMLError, lines: Sequence[str]) -> tuple[yaml.Mark | None, str]:
    """Return the place of the mistake, and a hint or the empty string.

    The parser notices only in a later line that something is not closed; the returned place is that of its opening.
    """
    begun, noticed, context = error.context_mark, error.problem_mark, str(error.context)
    if begun is None or noticed is None or begun.line == noticed.line or begun.line >= len(lines):
        return noticed or begun, ""
    if context == "while scanning a simple key":
        return begun, "is there a ':' after the key?"
    if "quoted scalar" in context and "unexpected" in str(error.problem):
        return begun, _CUT if noticed.line >= len(lines) else "its closing quote is missing"
    if "flow" in context and noticed.line >= len(lines):
        return begun, _CUT
    # A bracket at the end of a line is closed in a later line, so the place that the parser noticed is the right one.
    if "flow" in context and lines[begun.line][begun.column + 1 :].partition(" #")[0].strip():
        return begun, f"nothing closes it before line {noticed.line + 1}"
    return noticed, ""


def _object_of_kubernetes(root: dict[str, Tree], place: Place) -> ConfigError:
    kind, data = root["kind"], root.get("data")
    message = f"this is a Kubernetes object of kind {kind}; the configuration is the text inside it"
    hint = ""
    if isinstance(data, dict) and data:
        keys = " or ".join(show(("data", key)) for key in data)
        hint = f"extract the value of {keys} into a separate file, or mount the ConfigMap and give that file"
    return refusal(place, message, hint)
