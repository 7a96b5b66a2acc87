"""The command line's options: flags for the fields of `agent.options.Options`, and their values.

A flag takes precedence over the environment, the environment over the configuration file, and the file over the
default. Options that are also keys of the file (`FILE_OPTIONS`) have their type, default and help from the file's
models, and are given to `config.load` as overrides. Their flags and variables are those of NVIDIA/k8s-device-plugin
v0.20.0.
"""

import argparse
import functools
import itertools
import os
from collections.abc import Container, Iterator, Mapping
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from ..agent.options import BOOLEANS, Group, Option, Options, declare, items
from ..errors import UsageError
from ..model.problem import Override
from ..model.section import PROBLEM
from ..model.spec import Spec

_key = functools.partial(declare, Group.PLUGIN)
_unused = functools.partial(declare, Group.UNUSED)
FILE_OPTIONS = (
    _key("MIG_STRATEGY", key="flags.migStrategy"),
    _key("FAIL_ON_INIT_ERROR", key="flags.failOnInitError"),
    _key(
        "NVIDIA_DRIVER_ROOT",
        key="flags.nvidiaDriverRoot",
        flags=("driver-root", "nvidia-driver-root"),
        metavar="DIR",
    ),
    _key(
        "NVIDIA_DEV_ROOT",
        key="flags.nvidiaDevRoot",
        flags=("dev-root", "nvidia-dev-root"),
        metavar="DIR",
        default="the driver root",
    ),
    _key("MPS_ROOT", key="flags.mpsRoot", metavar="DIR", default="none"),
    _key("PASS_DEVICE_SPECS", key="flags.plugin.passDeviceSpecs"),
    _key("DEVICE_LIST_STRATEGY", key="flags.plugin.deviceListStrategy"),
    _key("DEVICE_ID_STRATEGY", key="flags.plugin.deviceIDStrategy"),
    _key("CDI_ANNOTATION_PREFIX", key="flags.plugin.cdiAnnotationPrefix", metavar="PREFIX"),
    _key("SHARED_DEVICES_ALLOCATION_POLICY", key="flags.plugin.sharedDevicesAllocationPolicy"),
    _key("GDRCOPY_ENABLED", key="flags.gdrcopyEnabled"),
    _key("GDS_ENABLED", key="flags.gdsEnabled"),
    _key("MOFED_ENABLED", key="flags.mofedEnabled"),
    _unused("NVIDIA_CDI_HOOK_PATH", "NVIDIA_CTK_PATH", key="flags.plugin.nvidiaCTKPath", metavar="FILE"),
    _unused("DRIVER_ROOT_CTR_PATH", "CONTAINER_DRIVER_ROOT", key="flags.plugin.containerDriverRoot", metavar="DIR"),
    _unused("DEVICE_DISCOVERY_STRATEGY", key="flags.deviceDiscoveryStrategy", metavar="auto|nvml|tegra"),
    _unused("IMEX_CHANNEL_IDS", key="imex.channelIDs"),
    _unused("IMEX_REQUIRED", key="imex.required"),
)
"""Options that replace values of the configuration file, by their keys there."""


# --- the table of options ---------------------------------------------------------------------------------------------


def _of_model(option: Option, field: FieldInfo, name: str) -> Option:
    """Complete an option with the help, the default and the allowed values of its model's field."""
    flags = option.flags or tuple(each.lower().replace("_", "-") for each in ([name] if name else option.variables))
    choices, is_list = _choices(field.annotation), get_origin(field.annotation) in (tuple, list)
    text = " ".join((field.description or "").split()).removesuffix(".")
    return replace(
        option,
        field=name or flags[0].replace("-", "_"),
        help=text[:1].lower() + text[1:] if text[1:2].islower() else text,
        flags=tuple(f"--{flag}" for flag in flags),
        default=option.default or _shown(field.default),
        choices=choices,
        is_list=is_list,
        is_boolean=field.annotation is bool,
        metavar=option.metavar or ("|".join(choices) if choices and not is_list else flags[0].upper()),
    )


def _options() -> Iterator[Option]:
    for name, field in Options.model_fields.items():
        for option in field.metadata:
            if isinstance(option, Option):
                yield _of_model(option, field, name)
    for option in FILE_OPTIONS:
        yield _of_model(option, _field_of(option.key), "")


def _field_of(key: str) -> FieldInfo:
    model: Any = Spec
    for step in key.split("."):
        field: FieldInfo = next(each for each in model.model_fields.values() if each.alias == step)
        kinds = (field.annotation, *get_args(field.annotation))
        model = next((each for each in kinds if hasattr(each, "model_fields")), None)
    return field


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


OPTIONS = tuple(sorted(_options(), key=lambda option: [*Group].index(option.group)))
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
    """Add the options of these fields. `helps` are further fields, each with its help text for this command."""
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


def read(arguments: argparse.Namespace, environ: Mapping[str, str] = os.environ) -> Options:
    """The options of a command. Options that the command does not have keep their defaults, even if the environment
    sets them. Raises UsageError with all errors. `config.load` checks those that are also keys of the file.
    """
    values: dict[str, Any] = {}
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
    try:
        return Options(**values, overrides=overrides)
    except ValidationError as invalid:
        raise UsageError("\n".join(_problem(each, sources) for each in invalid.errors())) from None


def _given(option: Option, flag: Any, environ: Mapping[str, str]) -> tuple[Any, str]:
    """The value of an option and its source; the source is empty if there is neither a flag nor a variable."""
    if flag is not None and (flag != "" or option.may_be_empty or option.key):
        return flag, f"flag {option.flags[0]}"
    for name in option.variables:
        if name in environ and (environ[name] or option.may_be_empty):
            return environ[name], f"env {name}"
    return None, ""


def _file_value(option: Option, given: str | list[str]) -> str | bool | tuple[str, ...]:
    """Convert a value to the form of the file, whose model checks it."""
    if option.is_list:
        return tuple(items(given))
    return BOOLEANS.get(str(given), str(given)) if option.is_boolean else str(given)


def _problem(error: ErrorDetails, sources: Mapping[str, str]) -> str:
    """One line: where the value is from, what is wrong, and what is allowed."""
    field = str(next(iter(error["loc"]), ""))
    source = f"{sources[field]}: " if field else ""
    if error["type"] == "value_error":
        return f"{source}{error['ctx']['error']}"
    if error["type"] == PROBLEM:
        return f"{source}{error['ctx']['message']}; {error['ctx']['hint']}"
    return f"{source}{error['input']!r}: {error['msg']}"
