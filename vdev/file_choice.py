"""Chooses the configuration files of a node.

Of a directory, the label `vdev.dev/config: X` of the node selects X.yaml; without that label, NVIDIA's label does. An
unknown X is an error. Without a label, the file is `<node name>.yaml`, then `default.yaml`, then the only file, then it
is an error. NVIDIA's config-manager does the same with the fallbacks that its Helm chart sets (named, single).
"""

import itertools
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .errors import UsageError
from .model.device import EMPTY as NOTHING
from .model.problem import did_you_mean

LABEL = "vdev.dev/config"
LABELS = (LABEL, "nvidia.com/device-plugin.config")
"""The labels that name a file: vdev's own, which takes precedence, and that of NVIDIA's config-manager."""

SUFFIXES = (".yaml", ".yml", ".json")


@dataclass(frozen=True, slots=True)
class Choice:
    """The name of the chosen file, and the reason in a few words; or no name, and why there is none."""

    file: str
    reason: str


def choose(names: Collection[str], *, node: str, label: str, key: str = LABEL) -> Choice:
    """Choose one of the names of a directory's files. `label` is the value of the node's label `key`, or empty."""
    files = sorted(name for name in names if not name.startswith("."))  # a ConfigMap's own entries begin with a dot
    if label:
        found = _of(files, label)
        if found:
            return Choice(found, f"the node's label {key}={label}")
        near = did_you_mean(label, [_stem(name) for name in files])
        return Choice("", f"the node's label {key}={label} names no file; {near or _listed(files)}")
    for stem, why in ((node, f"the node's name, {node}"), ("default", f"no label {key} and no file {node}.yaml")):
        found = _of(files, stem)
        if found:
            return Choice(found, why)
    if len(files) == 1:
        return Choice(files[0], "it is the only file")
    return Choice("", f"no file for node {node}: no label {key}, no {node}.yaml, no default.yaml; {_listed(files)}")


def _of(files: Collection[str], stem: str) -> str:
    """Return the file of that name, or of that name with a suffix."""
    return next((name for name in (stem, *(stem + suffix for suffix in SUFFIXES)) if name in files), "")


def _stem(name: str) -> str:
    return next((name.removesuffix(suffix) for suffix in SUFFIXES if name.endswith(suffix)), name)


def _listed(files: Collection[str]) -> str:
    return f"there are {', '.join(files)}" if files else "the directory is empty"


def files_of_node(paths: Sequence[Path], node: str, labels: Mapping[str, str] = NOTHING) -> list[Path]:
    """Return the files of the node with this name and these labels. Raises UsageError if there are none."""
    key = next((each for each in LABELS if labels.get(each)), LABEL)
    (files,) = _configurations(paths, lambda directory: [_chosen(directory, node, key, labels.get(key, ""))])
    return list(files)


def files_of_every_node(paths: Sequence[Path]) -> list[tuple[Path, ...]]:
    """Return the files of each configuration that a node may have. Raises UsageError."""
    return list(_configurations(paths, _candidates))


def _configurations(paths: Sequence[Path], of_directory: Callable[[Path], list[Path]]) -> Iterator[tuple[Path, ...]]:
    """Return each combination of the files, with one of those that the function returns for a directory."""
    if [*map(str, paths)].count("-") > 1:
        raise UsageError("- is given twice, and the standard input can be read only once; join the files first")
    files = [Path("/dev/stdin") if str(path) == "-" else path for path in paths]
    return itertools.product(*(of_directory(each) if os.path.isdir(each) else [each] for each in files))


def _chosen(directory: Path, node: str, key: str, label: str) -> Path:
    choice = choose(_names(directory), node=node, label=label, key=key)
    if not choice.file:
        raise UsageError(f"{directory}: {choice.reason}; choose another node by --node-name, or give the file itself")
    return directory / choice.file


def _candidates(directory: Path) -> list[Path]:
    """Return the files that may be configurations; in a mounted ConfigMap, whose keys need no suffix, all files."""
    names = sorted(each for each in _names(directory) if not each.startswith("."))
    if not (directory / "..data").is_dir():
        names = [each for each in names if each.endswith(SUFFIXES)]
    names = [each for each in names if not each.endswith(".schema.json")]  # from `vdev schema`, for an editor
    if not names:
        raise UsageError(
            f"{directory}: no configuration in this directory; expected files named *.yaml, *.yml or *.json"
        )
    return [directory / name for name in names]


def _names(directory: Path) -> list[str]:
    try:
        return [each.name for each in directory.iterdir() if each.is_file()]
    except OSError as error:
        raise UsageError(f"{directory} cannot be read: {error.strerror}") from error
