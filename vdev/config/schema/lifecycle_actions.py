"""`onAllocate`, `onRelease`, `preStart`: what is done when a device changes hands. Schema, checks, core values."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated

from ...core.model.template import Template
from ...core.spec import ActionKind, ActionSpec
from ..document.position import Path
from .scalars import Duration, Rule, Section, TemplateText, Text, matching, ruled

if TYPE_CHECKING:
    from ..validation import Report

PRE_START = 25.0  # seconds for all actions of a PreStartContainer, for which the kubelet waits 30
_HOUR = 3600.0
_DEFAULT_MODE = "0660"


def _bounded(value: float) -> tuple[str, str]:
    return ("", "") if 0 < value <= _HOUR else (f"{value:g} seconds are out of range", "more than nothing, at most 1h")


def _path_problem(value: str) -> str:
    if not value.startswith(("/", "{path}")):
        return f"{value!r} is not an absolute path; it must start with '/' or {{path}}"
    return f"{value!r} climbs with '..'; write the path that it means" if ".." in value.split("/") else ""


HostFile = Annotated[TemplateText, ruled(_path_problem, pattern=r"^(/|\{path\})")]
"""A path of the host, or the device's own."""


class Action(Section):
    """Something to do to a device: exactly one of command, truncate and chmod."""

    command: list[TemplateText] = []
    """A program and its arguments, run without a shell; may hold placeholders."""
    truncate: HostFile | None = None
    """A plain file of the host to empty; may hold placeholders."""
    chmod: HostFile | None = None
    """A plain file or device node of the host whose mode is set; may hold placeholders."""
    mode: Annotated[Text, matching("0?[0-7]{3}", 'three octal digits in quotes, such as "0660"')] | None = None
    """For chmod: the mode, in octal. Default: "0660"."""
    timeout: Annotated[Duration, Rule(_bounded)] | None = None
    """For command: how long it may take, such as 10s, before it is killed. Default: 10s."""


def check(models: Sequence[Action], path: Path, report: "Report", *, limit: float | None = None) -> None:
    """The keys of each action among each other; `limit` is how long one may take, in seconds."""
    for number, model in enumerate(models):
        here = (*path, number)
        given = {"command": model.command or None, "truncate": model.truncate, "chmod": model.chmod}
        kinds = [name for name, value in given.items() if value is not None]
        if len(kinds) != 1:
            what = "says not what to do" if not kinds else f"has {' and '.join(kinds)}"
            report.error(here, f"the action {what}", f"expected exactly one of {', '.join(given)}")
            continue
        for key, value, owner in (("mode", model.mode, "chmod"), ("timeout", model.timeout, "command")):
            if value is not None and kinds[0] != owner:
                report.key_error((*here, key), f"{key} goes with {owner} only, and this is {kinds[0]}")
        if limit is not None and model.timeout is not None and model.timeout > limit:
            message = (
                f"{model.timeout:g} seconds are too long: the kubelet waits 30 for all that is done before a start"
            )
            report.error((*here, "timeout"), message, f"at most {limit:g}s")


def compiled(models: Sequence[Action], parse: Callable[[str, Path], Template], path: Path) -> tuple[ActionSpec, ...]:
    """The actions of models that `check` found right."""
    return tuple(_one(model, parse, (*path, number)) for number, model in enumerate(models))


def _one(model: Action, parse: Callable[[str, Path], Template], path: Path) -> ActionSpec:
    if model.truncate is not None:
        return ActionSpec(kind=ActionKind.TRUNCATE, path=parse(model.truncate, (*path, "truncate")))
    if model.chmod is not None:
        mode = int(model.mode or _DEFAULT_MODE, 8)
        return ActionSpec(kind=ActionKind.CHMOD, path=parse(model.chmod, (*path, "chmod")), mode=mode)
    words = tuple(parse(word, (*path, "command", number)) for number, word in enumerate(model.command))
    return ActionSpec(kind=ActionKind.COMMAND, command=words, timeout=model.timeout or 10.0)
