"""Loads configurations for commands: chooses the files of a node, and recognizes files of other plugins."""

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from . import config
from .config.file_choice import LABEL, LABELS, SUFFIXES, choose
from .errors import ConfigError, UsageError
from .hostfs.files import is_directory
from .model.device import EMPTY as NOTHING
from .model.problem import Place, Problem, Where, error


def load(paths: Sequence[Path | str], **options: Any) -> config.Loaded:
    """Like `config.load`. For a file of another plugin, ConfigError says which one and how to import it."""
    try:
        loaded = config.load(paths, **options)
    except ConfigError as bad:
        _refuse_others(paths, bad.problems)
        raise
    if loaded.errors:  # in part
        _refuse_others(paths, loaded.errors)
    return loaded


def _refuse_others(paths: Sequence[Path | str], problems: Sequence[Problem]) -> None:
    """Raise ConfigError if one of the files is for another plugin. Then vdev's problems with the file mean nothing."""
    others = {str(path): problem for path in paths if (problem := _other_plugin(Path(path)))}
    if others:
        elsewhere = (each for each in problems if not (each.place and each.place.file in others))
        raise ConfigError((*others.values(), *elsewhere))


def _other_plugin(path: Path) -> Problem | None:
    from .importers import recognized  # only needed for errors

    try:
        form = recognized(config.text_of(path), str(path))
    except ConfigError:
        return None
    if not form:
        return None
    message = f"this is a configuration of {form}; `vdev import {path}` converts it"
    return error(Where.of(Place(str(path))), message)


# --- which files ------------------------------------------------------------------------------------------------------

_STDIN = Path("/dev/stdin")


def _check(paths: Sequence[Path]) -> None:
    if [*map(str, paths)].count("-") > 1:
        raise UsageError("- is given twice, and the standard input can be read only once; join the files first")


def files_of_node(paths: Sequence[Path], node: str, labels: Mapping[str, str] = NOTHING) -> list[Path]:
    """Return the files of the node with this name and these labels. Raises UsageError if there are none."""
    _check(paths)
    key = next((each for each in LABELS if labels.get(each)), LABEL)
    return [_chosen(path, node, key, labels.get(key, "")) if is_directory(path) else _file(path) for path in paths]


def files_of_every_node(paths: Sequence[Path]) -> list[tuple[Path, ...]]:
    """Return the files of each configuration that a node may have. Raises UsageError."""
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
