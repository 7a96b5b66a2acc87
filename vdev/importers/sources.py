"""The sources of an import in a text: documents of YAML or JSON, unwrapped from Kubernetes objects, and arguments."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from .. import config
from ..config.parser import number_or_boolean
from ..errors import ConfigError
from .draft import Draft, listed, mapping

_WORKLOADS = ("DaemonSet", "Deployment", "StatefulSet", "ReplicaSet", "Job")
_SUFFIXES = (".yaml", ".yml", ".json")


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportOptions:
    form: str = ""  # empty: detected by the content
    domain: str = ""  # of the resources, if the plugin takes it from its command line
    preset: str = ""  # of the GPUs, for forms that do not name them
    count: int = 0  # of the GPUs


class Arguments(tuple[str, ...]):
    __slots__ = ()


@dataclass(frozen=True, slots=True)
class ImportSource:
    """A document, or the arguments of a container."""

    content: Any
    key: str = ""  # in a ConfigMap, without the suffix


def one_file_each(found: Sequence[ImportSource]) -> Iterator[tuple[str, Any]]:
    """Yield a file for each source, because a node has one of them."""
    return ((source.key, source.content) for source in found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """The form of a plugin's configuration.

    `files` returns the name and the content of each vdev file to make, and `fill` converts such a content.
    """

    title: str
    recognizes: Callable[[Any], bool]
    fill: Callable[[Draft, Any, ImportOptions], None]
    files: Callable[[Sequence[ImportSource]], Iterable[tuple[str, Any]]] = one_file_each


def sources(text: str, name: str) -> list[ImportSource]:
    """Return all documents and arguments in the text. Raises ConfigError if it is not YAML."""
    return [each for tree in config.trees(text, name) for each in _unwrapped(tree, name)]


def _unwrapped(tree: Any, name: str) -> Iterator[ImportSource]:
    kind = tree.get("kind") if isinstance(tree, dict) and "apiVersion" in tree else None
    if not isinstance(kind, str):
        yield ImportSource(tree)
    elif kind == "List" or (kind.endswith("List") and isinstance(tree.get("items"), list)):
        for item in listed(tree.get("items")):
            yield from _unwrapped(item, name)
    elif kind == "ConfigMap":
        for key, text in mapping(tree.get("data")).items():
            stem = key.rpartition(".")[0] if key.endswith(_SUFFIXES) else key
            try:
                documents: Sequence[Any] = config.trees(text, key) if isinstance(text, str) else ()
            except ConfigError:
                documents = () if "." in stem else [{"invalid": text}]  # a script, or a configuration
            # Other values are no configurations, such as certificates.
            yield from (ImportSource(each, stem) for each in documents if isinstance(each, dict | list))
    elif kind in _WORKLOADS or kind == "Pod":
        pod = mapping(mapping(tree.get("spec")).get("template")) if kind in _WORKLOADS else tree
        spec = mapping(pod.get("spec"))
        for container in (*listed(spec.get("initContainers")), *listed(spec.get("containers"))):
            given = mapping(container)
            words = [*listed(given.get("command")), *listed(given.get("args"))]
            if words:
                yield ImportSource(Arguments(str(each) for each in words))
    else:
        yield ImportSource(tree)


def trees(text: Any, name: str) -> Sequence[Any]:
    """Return the documents of a YAML text. Other values, such as a script, have none."""
    try:
        return config.trees(text, name) if isinstance(text, str) else ()
    except ConfigError:
        return ()


def as_yaml_1_1(tree: Any) -> Any:
    """Return the values with booleans of YAML 1.1, such as `yes`, as booleans, and without keys that have no value."""
    match tree:
        case dict():
            return {key: as_yaml_1_1(value) for key, value in tree.items() if value is not None}
        case list():
            return [as_yaml_1_1(each) for each in tree]
        case str() if number_or_boolean(tree) in ("true", "false"):
            return number_or_boolean(tree) == "true"
    return tree
