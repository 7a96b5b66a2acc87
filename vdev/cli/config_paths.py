"""The configuration files that a command is given: `-` is the standard input, a directory has one file for each node.

A running agent chooses from a directory in the same way (`core.file_choice`).
"""

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..core.file_choice import LABEL, LABELS, SUFFIXES, choose
from ..core.model.device import EMPTY as NOTHING
from ..errors import UsageError
from ..hostfs.look import is_directory

_STDIN = Path("/dev/stdin")


def _check(paths: Sequence[Path]) -> None:
    if [*map(str, paths)].count("-") > 1:
        raise UsageError("- is given twice, and the standard input can be read once; join the files before")


def of_node(paths: Sequence[Path], node: str, labels: Mapping[str, str] = NOTHING) -> list[Path]:
    """The files that the node of this name, with these labels, takes. Raises UsageError where it finds none."""
    _check(paths)
    key = next((each for each in LABELS if labels.get(each)), LABEL)
    return [_chosen(path, node, key, labels.get(key, "")) if is_directory(path) else _file(path) for path in paths]


def of_every_node(paths: Sequence[Path]) -> list[tuple[Path, ...]]:
    """The files of each configuration that nodes may take, as many as the directories have files. Raises UsageError."""
    _check(paths)
    choices = [_configurations(path) if is_directory(path) else [_file(path)] for path in paths]
    return list(itertools.product(*choices))


def _file(path: Path) -> Path:
    return _STDIN if str(path) == "-" else path


def _chosen(directory: Path, node: str, key: str, label: str) -> Path:
    choice = choose(_names(directory), node=node, label=label, key=key)
    if not choice.name:
        raise UsageError(f"{directory}: {choice.why}; choose another node by --node-name, or give the file itself")
    return directory / choice.name


def _configurations(directory: Path) -> list[Path]:
    """Those that may be configurations: of a ConfigMap, whose keys need no suffix, all that a label can name."""
    names = sorted(each for each in _names(directory) if not each.startswith("."))
    if not (directory / "..data").is_dir():
        names = [each for each in names if each.endswith(SUFFIXES)]
    names = [each for each in names if not each.endswith(".schema.json")]  # that of `vdev schema`, for an editor
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
