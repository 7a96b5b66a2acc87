"""Configurations as commands load them: as `config.load`, and another plugin's is called by its name."""

from collections.abc import Container, Iterator, Sequence
from pathlib import Path
from typing import Any

from . import config
from .errors import ConfigError
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
    from .importers import recognised  # only where something is wrong: it costs a process that runs nothing

    try:
        form = recognised(config.text_of(path), str(path))
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
