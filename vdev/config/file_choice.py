"""Chooses one of several configuration files for a node: by its label, else by its name, else the default.

A label `vdev.dev/config: X` selects X.yaml; without that label, NVIDIA's label does. An unknown X is an error. Without
a label, the file is `<node name>.yaml`, then `default.yaml`, then the only file, then it is an error. NVIDIA's
config-manager does the same with the fallbacks that its Helm chart sets (named, single).
"""

from collections.abc import Collection
from dataclasses import dataclass

from ..model.problem import did_you_mean

LABEL = "vdev.dev/config"
LABELS = (LABEL, "nvidia.com/device-plugin.config")
"""The labels that name a file: vdev's own, which takes precedence, and that of NVIDIA's config-manager."""

DEFAULT = "default"
SUFFIXES = (".yaml", ".yml", ".json")


@dataclass(frozen=True, slots=True)
class Choice:
    """The name of the chosen file and the reason; or no name, and why there is none."""

    name: str
    why: str


def choose(names: Collection[str], *, node: str, label: str, key: str = LABEL) -> Choice:
    """Choose one of the names of a directory's files. `label` is the value of the node's label `key`, or empty."""
    files = sorted(name for name in names if not name.startswith("."))  # a ConfigMap's own entries begin with a dot
    if label:
        found = _of(files, label)
        if found:
            return Choice(found, f"the node's label {key}={label}")
        near = did_you_mean(label, [_stem(name) for name in files])
        return Choice("", f"the node's label {key}={label} names no file; {near or _listed(files)}")
    for stem, why in ((node, f"the node's name, {node}"), (DEFAULT, f"no label {key} and no file {node}.yaml")):
        found = _of(files, stem)
        if found:
            return Choice(found, why)
    if len(files) == 1:
        return Choice(files[0], "it is the only file")
    return Choice("", f"no file for node {node}: no label {key}, no {node}.yaml, no {DEFAULT}.yaml; {_listed(files)}")


def _of(files: Collection[str], stem: str) -> str:
    """Return the file of that name, or of that name with a suffix."""
    return next((name for name in (stem, *(stem + suffix for suffix in SUFFIXES)) if name in files), "")


def _stem(name: str) -> str:
    return next((name.removesuffix(suffix) for suffix in SUFFIXES if name.endswith(suffix)), name)


def _listed(files: Collection[str]) -> str:
    return f"there are {', '.join(files)}" if files else "the directory is empty"
