"""The options of `vdev.settings` on the command line: parsers made from its fields, and the settings read from them."""

import argparse
import itertools
import os
import platform
from collections.abc import Container, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import AliasChoices, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails
from pydantic_settings import EnvSettingsSource, InitSettingsSource

from ..errors import UsageError
from ..model.problem import did_you_mean, listed
from ..model.section import PROBLEM
from ..settings import Group, Settings, declared


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """A field of `Settings`, for the command line and the documentation."""

    field: str
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


def _described(name: str, field: FieldInfo) -> Option:
    more, aliases, choices = declared(field), field.validation_alias, _choices(field.annotation)
    flags = more["flags"] or [name.replace("_", "-")]
    is_list = get_origin(field.annotation) is tuple
    return Option(
        field=name,
        group=Group[more["group"]],
        help=" ".join((field.description or "").split()),
        flags=tuple(f"--{flag}" for flag in flags),
        variables=tuple(map(str, aliases.choices)) if isinstance(aliases, AliasChoices) else (),
        default=more["unset"] or _shown(field.default),
        choices=choices,
        is_list=is_list,
        is_boolean=field.annotation is bool,
        key=more["key"],
        metavar=more["metavar"] or ("|".join(choices) if choices and not is_list else flags[0].upper()),
        may_be_empty=more["may_be_empty"],
    )


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
        case tuple():
            return ",".join(map(str, default))
        case str() | Path():
            return str(default)
    return ""


OPTIONS = tuple(_described(name, field) for name, field in Settings.model_fields.items() if declared(field))
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
    flags: dict[str, Any] = {}
    variables: dict[str, str] = {}
    sources: dict[str, str] = {}
    for option in OPTIONS:
        if not hasattr(arguments, option.field):
            continue
        flag = getattr(arguments, option.field)
        found = {name: environ[name] for name in option.variables if name in environ}
        if not option.may_be_empty:
            found = {name: text for name, text in found.items() if text}
        variables |= found
        if flag is not None and (flag != "" or option.may_be_empty or option.key):
            flags[option.variables[0]] = flag
            sources[option.field] = f"flag {option.flags[0]}"
        elif found:
            sources[option.field] = f"env {next(iter(found))}"
    given = InitSettingsSource(Settings, {**flags, "sources": sources})
    environment = EnvSettingsSource(Settings)
    environment.env_vars = variables  # no others
    own = InitSettingsSource(Settings, _own(environ))
    try:
        return Settings(_build_sources=((given, environment, own), {}))
    except ValidationError as invalid:
        raise UsageError("\n".join(_problem(each, sources) for each in invalid.errors())) from invalid


def _own(environ: Mapping[str, str]) -> dict[str, str]:
    """The defaults that depend on the host and the user: the node's name, and directories that the user may write."""
    run_dir, state_dir = "/run/vdev", "/var/lib/vdev"
    if os.geteuid() != 0:
        own = f"{environ.get('TMPDIR') or '/tmp'}/vdev-{os.geteuid()}"  # for this user only
        run_dir = f"{environ['XDG_RUNTIME_DIR']}/vdev" if environ.get("XDG_RUNTIME_DIR") else own
        state = environ.get("XDG_STATE_HOME") or f"{environ.get('HOME') or own}/.local/state"
        state_dir = f"{state}/vdev"
    return {"NODE_NAME": platform.node().lower(), "VDEV_RUN_DIR": run_dir, "VDEV_STATE_DIR": state_dir}


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
