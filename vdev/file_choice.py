"""Chooses the configuration files of a node.

In a directory, the node's label `vdev.dev/config: X` selects X.yaml; without that label, NVIDIA's label does. An
unknown X is an error. Without a label, the file is `<node name>.yaml`, else `default.yaml`, else the only file; if none
applies, it is an error. NVIDIA's config-manager does the same with the fallbacks of its Helm chart (named, single).
"""

import itertools
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .errors import ConfigError, UsageError
from .model.device import EMPTY as NOTHING
from .model.problem import did_you_mean, error

LABEL = "vdev.dev/config"
LABELS = (LABEL, "nvidia.com/device-plugin.config")
"""The labels that name a file: vdev's own, which takes precedence, and that of NVIDIA's config-manager."""

SUFFIXES = (".yaml", ".yml", ".json")


@dataclass(frozen=True, slots=True)
class Choice:
    """A file to read, and why it was chosen from its directory, in a few words; empty if the file itself was given."""

    file: Path
    reason: str = ""


def choose(
    paths: Iterable[Path], *, node: str, labels: Mapping[str, str] = NOTHING, doubt: str = ""
) -> tuple[Choice, ...]:
    """Choose a file from each directory for the node with this name and these labels. Other paths stay.

    `doubt` is why the labels may be incomplete, for messages. Raises ConfigError with all directories that have no file
    for the node.
    """
    choices, problems = [], []
    for path in paths:
        if not os.path.isdir(path):
            choices.append(Choice(path))
            continue
        try:
            name, reason = choose_name(_names(path), node=node, labels=labels)
        except OSError as failed:
            name, reason = "", f"the directory cannot be read: {failed.strerror}"
        reason += f" ({doubt})" if doubt else ""
        if name:
            choices.append(Choice(path / name, reason))
        else:
            problems.append(error(str(path), reason, "choose another node by --node-name, or give the file itself"))
    if problems:
        raise ConfigError(tuple(problems))
    return tuple(choices)


def choose_name(names: Collection[str], *, node: str, labels: Mapping[str, str] = NOTHING) -> tuple[str, str]:
    """Return one of the names of a directory's files, and the reason; or an empty name, and why there is none."""
    files = sorted(name for name in names if not name.startswith("."))  # a ConfigMap's own entries begin with a dot
    key = next((each for each in LABELS if labels.get(each)), "")
    if key:
        label = labels[key]
        found = _of(files, label)
        if found:
            return found, f"the node's label {key}={label}"
        near = did_you_mean(label, [_stem(name) for name in files])
        return "", f"the node's label {key}={label} names no file; {near or _listed(files)}"
    for stem, why in ((node, f"the node's name, {node}"), ("default", f"no label {LABEL} and no file {node}.yaml")):
        found = _of(files, stem)
        if found:
            return found, why
    if len(files) == 1:
        return files[0], "it is the only file"
    return "", f"no file for node {node}: no label {LABEL}, no {node}.yaml, no default.yaml; {_listed(files)}"


def _of(files: Collection[str], stem: str) -> str:
    """Return the file of that name, or of that name with a suffix."""
    return next((name for name in (stem, *(stem + suffix for suffix in SUFFIXES)) if name in files), "")


def _stem(name: str) -> str:
    return next((name.removesuffix(suffix) for suffix in SUFFIXES if name.endswith(suffix)), name)


def _listed(files: Collection[str]) -> str:
    return f"there are {', '.join(files)}" if files else "the directory is empty"


def _names(directory: Path) -> list[str]:
    return [each.name for each in directory.iterdir() if each.is_file()]


# --- for commands, which read the standard input as well --------------------------------------------------------------


def files_of_node(paths: Sequence[Path], node: str, labels: Mapping[str, str] = NOTHING) -> list[Path]:
    """Return the files of the node with this name and these labels. Raises UsageError, and ConfigError as `choose`."""
    return [each.file for each in choose(_with_standard_input(paths), node=node, labels=labels)]


def files_of_every_node(paths: Sequence[Path]) -> list[tuple[Path, ...]]:
    """Return the files of each configuration that a node may have. Raises UsageError."""
    files = _with_standard_input(paths)
    return list(itertools.product(*(_candidates(each) if os.path.isdir(each) else [each] for each in files)))


def _with_standard_input(paths: Sequence[Path]) -> list[Path]:
    if [*map(str, paths)].count("-") > 1:
        raise UsageError("- is given twice, and the standard input can be read only once; join the files first")
    return [Path("/dev/stdin") if str(path) == "-" else path for path in paths]


def _candidates(directory: Path) -> list[Path]:
    """Return the files that may be configurations; in a mounted ConfigMap, whose keys need no suffix, all files."""
    try:
        names = sorted(each for each in _names(directory) if not each.startswith("."))
    except OSError as failed:
        raise UsageError(f"{directory} cannot be read: {failed.strerror}") from failed
    if not (directory / "..data").is_dir():
        names = [each for each in names if each.endswith(SUFFIXES)]
    names = [each for each in names if not each.endswith(".schema.json")]  # from `vdev schema`, for an editor
    if not names:
        raise UsageError(
            f"{directory}: no configuration in this directory; expected files named *.yaml, *.yml or *.json"
        )
    return [directory / name for name in names]
