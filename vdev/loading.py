"""Configurations as commands load them: which files a node takes, and another plugin's is called by its name."""

import itertools
from collections.abc import Container, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from . import config
from .config.file_choice import LABEL, LABELS, SUFFIXES, choose
from .errors import ConfigError, UsageError
from .hostfs.files import is_directory
from .model.device import EMPTY as NOTHING
from .model.problem import Place, Problem, Severity


def load(paths: Sequence[Path | str], **options: Any) -> config.Loaded:
    """As `config.load`. Raises ConfigError, which for a file of another plugin says what it is and how to import it."""
    try:
        loaded = config.load(paths, **options)
    except ConfigError as bad:
        _refuse_others(paths, bad.problems)
        raise
    if loaded.errors:  # in part
        _refuse_others(paths, loaded.errors)
    return loaded


def _refuse_others(paths: Sequence[Path | str], problems: Sequence[object]) -> None:
    """Raises ConfigError where one of the files is another plugin's: its own problems mean nothing then."""
    told = {str(path): problem for path in paths if (problem := _told(Path(path)))}
    if told:
        raise ConfigError((*told.values(), *_elsewhere(problems, told)))


def _told(path: Path) -> Problem | None:
    from .importers import recognized  # only where something is wrong: it costs a process that runs nothing

    try:
        form = recognized(config.text_of(path), str(path))
    except ConfigError:
        return None
    if form is None:
        return None
    message = f"this is a configuration of {form.title}; `vdev import {path}` makes one of vdev of it"
    return Problem(Severity.ERROR, str(path), message, place=Place(str(path)))


def _elsewhere(problems: Sequence[object], told: Container[str]) -> Iterator[object]:
    for problem in problems:
        if not (isinstance(problem, Problem) and problem.place and problem.place.file in told):
            yield problem


# --- which files ------------------------------------------------------------------------------------------------------

_STDIN = Path("/dev/stdin")


def _check(paths: Sequence[Path]) -> None:
    if [*map(str, paths)].count("-") > 1:
        raise UsageError("- is given twice, and the standard input can be read once; join the files before")


def files_of_node(paths: Sequence[Path], node: str, labels: Mapping[str, str] = NOTHING) -> list[Path]:
    """The files that the node of this name, with these labels, takes. Raises UsageError where it finds none."""
    _check(paths)
    key = next((each for each in LABELS if labels.get(each)), LABEL)
    return [_chosen(path, node, key, labels.get(key, "")) if is_directory(path) else _file(path) for path in paths]


def files_of_every_node(paths: Sequence[Path]) -> list[tuple[Path, ...]]:
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
