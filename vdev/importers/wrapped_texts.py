"""What a text holds: its documents, and what is wrapped in Kubernetes objects.

A ConfigMap holds configurations as texts, a DaemonSet holds a plugin's arguments, a List holds either.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from .. import config
from ..errors import ConfigError

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
