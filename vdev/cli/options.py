"""The options of `vdev.settings` on the command line: their parsers, and the settings read from the arguments."""

import argparse
import itertools
import os
import platform
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from ..errors import ConfigError, UsageError
from ..model.problem import Override, did_you_mean, listed
from ..model.section import PROBLEM
from ..model.spec import Spec
from ..settings import BOOLEANS, FILE_OPTIONS, UNUSED_OPTIONS, Group, Settings, items


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """An option, for the command line and the documentation."""

    field: str  # of `Settings`, if it is not a key of the file
    group: Group
    help: str
    flags: tuple[str, ...]  # the first one is its name, the others are aliases
    variables: tuple[str, ...]  # the first one that is set counts
    default: str  # as text
    choices: tuple[str, ...]
    is_list: bool
    is_boolean: bool
    key: str  # its path in the configuration file, if it has one
    metavar: str
    may_be_empty: bool  # whether an empty value counts


def _described(
    name: str,
    field: FieldInfo,
    *,
    group: str,
    variables: Sequence[str],
    flags: Sequence[str],
    metavar: str,
    unset: str,
    key: str = "",
    may_be_empty: bool = False,
) -> Option:
    """The option of a field of `Settings` or, with `key`, of the file's models."""
    flags = flags or [each.lower().replace("_", "-") for each in (variables if key else (name,))]
    choices, is_list = _choices(field.annotation), get_origin(field.annotation) in (tuple, list)
    text = " ".join((field.description or "").split()).removesuffix(".")
    return Option(
        field=name or flags[0].replace("-", "_"),
        group=Group[group],
        help=text[:1].lower() + text[1:] if text[1:2].islower() else text,
        flags=tuple(f"--{flag}" for flag in flags),
        variables=tuple(variables),
        default=unset or _shown(field.default),
        choices=choices,
        is_list=is_list,
        is_boolean=field.annotation is bool,
        key=key,
        metavar=metavar or ("|".join(choices) if choices and not is_list else flags[0].upper()),
        may_be_empty=may_be_empty,
    )


def _of_settings() -> Iterator[Option]:
    for name, field in Settings.model_fields.items():
        if isinstance(field.json_schema_extra, dict):
            declared: dict[str, Any] = field.json_schema_extra
            yield _described(name, field, **declared)


def _of_file() -> Iterator[Option]:
    for group, options in ((Group.PLUGIN, FILE_OPTIONS), (Group.UNUSED, UNUSED_OPTIONS)):
        for option in options:
            field, model = None, Spec
            for step in option.key.split("."):
                field = next(each for each in model.model_fields.values() if each.alias == step)
                kinds = (field.annotation, *get_args(field.annotation))
                model = next((each for each in kinds if hasattr(each, "model_fields")), model)
            assert field is not None
            yield _described("", field, group=group.name, **option._asdict())


def _choices(kind: Any) -> tuple[str, ...]:
    """The words that a type allows; empty if it allows any text."""
    if isinstance(kind, type) and issubclass(kind, Enum):
        return tuple(str(each.value) for each in kind)
    if get_origin(kind) is Literal:
        return get_args(kind)
    return tuple(word for inner in get_args(kind) for word in _choices(inner))


def _shown(default: Any) -> str:
    match default:
        case bool():
            return str(default).lower()
        case float():
            return f"{default:g}"
        case tuple() | list():
            return ",".join(map(str, default))
        case str() | Path():
            return str(default)
    return ""


OPTIONS = tuple(sorted((*_of_settings(), *_of_file()), key=lambda option: [*Group].index(option.group)))
"""All options in the order of the help."""


# --- parsers ---------------------------------------------------------------------------------------------------------


def add_all(parser: argparse.ArgumentParser, groups: Container[Group] = tuple(Group)) -> None:
    """Add the options of these groups, for `read`."""
    for group, options in itertools.groupby(OPTIONS, key=lambda option: option.group):
        if group in groups:
            section = parser.add_argument_group(group.value)
            for option in options:
                _add(section, option, _help(option))


def add(parser: argparse.ArgumentParser, *fields: str, **helps: str) -> None:
    """Add the options of these fields; `helps` are fields with the help text that they have for this command."""
    known = {option.field: option for option in OPTIONS}
    for field in fields:
        _add(parser, known[field], _help(known[field]))
    for field, text in helps.items():
        _add(parser, known[field], f"{text} (env {' or '.join(known[field].variables)})")


def _add(parser: argparse._ActionsContainer, option: Option, help_: str) -> None:
    form: dict[str, Any] = {"nargs": "?", "const": "true", "metavar": "BOOL"} if option.is_boolean else {}
    form = form or {"action": "append" if option.is_list else "store", "metavar": option.metavar}
    parser.add_argument(*option.flags, dest=option.field, help=help_.replace("%", "%%"), **form)


def _help(option: Option) -> str:
    words = ", ".join(option.choices) if option.is_list else ""
    allowed = words and f"; {'of' if len(option.choices) > 1 else 'only'} {words}"
    default = f"default: {option.default}; " if option.default else ""
    return f"{option.help}{allowed} [{default}env {' or '.join(option.variables)}]"


# --- reading ---------------------------------------------------------------------------------------------------------


def read(arguments: argparse.Namespace, environ: Mapping[str, str] = os.environ) -> Settings:
    """The settings of a command. Options that the command does not have keep their defaults, even if the environment
    sets them. Raises UsageError with all errors.
    """
    values: dict[str, Any] = _own(environ)
    sources: dict[str, str] = {}
    overrides: dict[str, Override] = {}
    for option in OPTIONS:
        if not hasattr(arguments, option.field):
            continue
        value, source = _given(option, getattr(arguments, option.field), environ)
        if not source:
            continue
        if option.key:
            overrides[option.key] = Override(_file_value(option, value), source)
        else:
            values[option.field], sources[option.field] = value, source
    problems = _refused(overrides) if overrides else []
    try:
        settings = Settings(**values, sources=sources, overrides=overrides)
    except ValidationError as invalid:
        problems += [_problem(each, sources) for each in invalid.errors()]
    if problems:
        raise UsageError("\n".join(problems))
    return settings


def _given(option: Option, flag: Any, environ: Mapping[str, str]) -> tuple[Any, str]:
    """The value of an option and its source; the source is empty if there is neither a flag nor a variable."""
    if flag is not None and (flag != "" or option.may_be_empty or option.key):
        return flag, f"flag {option.flags[0]}"
    for name in option.variables:
        if name in environ and (environ[name] or option.may_be_empty):
            return environ[name], f"env {name}"
    return None, ""


def _file_value(option: Option, given: str | list[str]) -> str | bool | tuple[str, ...]:
    """The value as the file would have it. The file's model checks it."""
    if option.is_list:
        return tuple(items(given))
    return BOOLEANS.get(str(given), str(given)) if option.is_boolean else str(given)


def _refused(overrides: Mapping[str, Override]) -> list[str]:
    """The errors in values of the file, by the file's own checks."""
    from .. import config  # not needed without such options

    try:
        config.load_text("version: v1", overrides=overrides)
    except ConfigError as bad:
        return [str(each) for each in bad.problems if each.is_error]
    return []


def _own(environ: Mapping[str, str]) -> dict[str, Any]:
    """The defaults that depend on the host and the user: the node's name, and directories that the user may write."""
    run_dir, state_dir = "/run/vdev", "/var/lib/vdev"
    if os.geteuid() != 0:
        own = f"{environ.get('TMPDIR') or '/tmp'}/vdev-{os.geteuid()}"  # for this user only
        run_dir = f"{environ['XDG_RUNTIME_DIR']}/vdev" if environ.get("XDG_RUNTIME_DIR") else own
        state = environ.get("XDG_STATE_HOME") or f"{environ.get('HOME') or own}/.local/state"
        state_dir = f"{state}/vdev"
    return {"node_name": platform.node().lower(), "run_dir": run_dir, "state_dir": state_dir}


def _problem(error: ErrorDetails, sources: Mapping[str, str]) -> str:
    """One line: where the value is from, what is wrong, and what is allowed."""
    field = str(next(iter(error["loc"]), ""))
    source = f"{sources[field]}: " if field else ""
    if error["type"] == "value_error":
        return f"{source}{error['ctx']['error']}"
    if error["type"] == PROBLEM:
        return f"{source}{error['ctx']['message']}; {error['ctx']['hint']}"
    choices = next(option.choices for option in OPTIONS if option.field == field)
    if not choices:
        return f"{source}{error['input']!r}: {error['msg']}"
    hint = listed(choices, lead="expected one of", near=did_you_mean(error["input"], choices))
    return f"{source}{error['input']!r} is not allowed; {hint}"
