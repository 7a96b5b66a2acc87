"""Which of several configuration files a node takes: by its label, else by its name, else the default.

A label `vdev.dev/config: X` asks for X.yaml; an unknown X is an error, and never silently another file. Without a label
it is `<node name>.yaml`, then `default.yaml`, then an error.
"""

from collections.abc import Collection
from dataclasses import dataclass

from .model.problem import did_you_mean

LABEL = "vdev.dev/config"
DEFAULT = "default"
SUFFIXES = (".yaml", ".yml", ".json")


@dataclass(frozen=True, slots=True)
class Choice:
    """The chosen file's name and the reason; or no name, and why there is none to choose."""

    name: str
    why: str


def choose(names: Collection[str], *, node: str, label: str) -> Choice:
    """Choose from the names of a directory's files. `label` is the node's, empty for none."""
    files = sorted(name for name in names if not name.startswith("."))  # a ConfigMap's own entries begin with a dot
    if label:
        found = _of(files, label)
        if found:
            return Choice(found, f"the node's label {LABEL}={label}")
        near = did_you_mean(label, [name.rpartition(".")[0] for name in files])
        return Choice("", f"the node's label {LABEL}={label} names no file; {near or _listed(files)}")
    for stem, why in ((node, f"the node's name, {node}"), (DEFAULT, f"no label {LABEL} and no file {node}.yaml")):
        found = _of(files, stem)
        if found:
            return Choice(found, why)
    return Choice("", f"no file for node {node}: no label {LABEL}, no {node}.yaml, no {DEFAULT}.yaml; {_listed(files)}")


def _of(files: Collection[str], stem: str) -> str:
    """The file of that name, or of that name with a suffix."""
    return next((name for name in (stem, *(stem + suffix for suffix in SUFFIXES)) if name in files), "")


def _listed(files: Collection[str]) -> str:
    return f"there are {', '.join(files)}" if files else "the directory is empty"
