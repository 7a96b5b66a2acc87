"""`onAllocate`, `onRelease`, `preStart`: what is done when a device changes hands."""

from typing import Annotated

from ..scalars import Duration, TemplateText, Text, longer_than_nothing, matching, without_problem
from ..section import Section


def _path_problem(value: str) -> str:
    if not value.startswith(("/", "{path}")):
        return f"{value!r} is not an absolute path; it must start with '/' or {{path}}"
    return f"{value!r} contains '..'; write the path without it" if ".." in value.split("/") else ""


HostFile = Annotated[TemplateText, without_problem(_path_problem, pattern=r"^(/|\{path\})")]
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
    timeout: Annotated[Duration, longer_than_nothing(3600, "1h")] | None = None
    """For command: how long it may take, such as 10s, before it is killed. Default: 10s."""
