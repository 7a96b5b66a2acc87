"""`virtual.node`, what a container is given where it needs a real node or file. Schema, checks, core values."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import WithJsonSchema, model_validator

from ...core.model.template import Template
from ...core.model.virtual_node import Like, LikeNode, LineEnd, PlainDirectory, PlainFile, PtyLine, StandIn
from ..document.position import Path
from .scalars import Flag, PathTemplate, Permissions, Section, TemplateText, Text, choice, matching

if TYPE_CHECKING:
    from ..validation import Report

MAX_LINES = 1024  # the kernel has 4096 for the whole machine, see kernel.pty.max
_DEFAULT_PATH = "/dev/{id}"
_LIKE_JSON = WithJsonSchema({"enum": [*Like, None]})

FileName = Annotated[Text, matching(r"(?!\.\.?$)[^/]{1,255}", "a file's name, without '/'")]


class VirtualNode(Section):
    """A node or file that stands in for the device: exactly one of like, pty, file and directory."""

    may_be_empty = frozenset({"like", "directory"})

    like: Annotated[Like | None, choice(Like), _LIKE_JSON] = None
    """A character device that behaves as /dev/null, /dev/zero or /dev/random: null, zero or random."""
    pty: Annotated[LineEnd | None, choice(LineEnd)] = None
    """A serial line; at its other end is echo, silence, or a script that answers lines."""
    answers: dict[Text, TemplateText] = {}
    """For pty script: the answer to each line; answers may hold placeholders."""
    otherwise: TemplateText | None = None
    """For pty script: the answer to any other line. Default: none."""
    file: TemplateText | None = None
    """A plain file with this content, which may hold placeholders."""
    directory: dict[FileName, TemplateText] | None = None
    """A directory with these files: their names, and their content, which may hold placeholders."""
    container_path: PathTemplate | None = None
    """Path in the container; may hold placeholders. Default: /dev/{id}."""
    permissions: Permissions | None = None
    """For like: one or more of r (read), w (write) and m (mknod). Default: rw."""
    read_only: Flag | None = None
    """For file and directory: whether the container may only read it. Default: false."""

    @model_validator(mode="before")
    @classmethod
    def _drop_empty(cls, data: Any) -> Any:
        """Here alone is an unquoted null a value: the name of a device."""
        if not isinstance(data, dict):
            return data
        empty = {"like": Like.NULL.value, "directory": {}}
        named = {key: empty.get(key) if value is None else value for key, value in data.items()}
        known = {field.alias or name for name, field in cls.model_fields.items()}
        return {key: value for key, value in named.items() if value is not None or key not in known}


def check(model: VirtualNode, count: int, path: Path, report: "Report") -> None:
    """The keys of a stand-in among each other; `count` is the number of devices."""
    given = {"like": model.like, "pty": model.pty, "file": model.file, "directory": model.directory}
    kinds = [name for name, value in given.items() if value is not None]
    if len(kinds) != 1:
        what = "says not what it is" if not kinds else f"has {' and '.join(kinds)}"
        report.error(path, f"the node {what}", f"expected exactly one of {', '.join(given)}")
        return
    kind = kinds[0]
    belongs = {"permissions": ("like",), "readOnly": ("file", "directory"), "answers": ("pty",), "otherwise": ("pty",)}
    extra = {
        "permissions": model.permissions,
        "readOnly": model.read_only,
        "answers": model.answers or None,
        "otherwise": model.otherwise,
    }
    for key, value in extra.items():
        if value is not None and kind not in belongs[key]:
            report.key_error((*path, key), f"{key} goes with {' and '.join(belongs[key])} only, and this is {kind}")
    scripted = bool(model.answers) or model.otherwise is not None
    if model.pty is not None and scripted != (model.pty is LineEnd.SCRIPT):
        message = "answers go with pty script only" if scripted else "a script needs answers, or otherwise"
        report.error((*path, "pty"), message)
    if model.pty is not None and count > MAX_LINES:
        report.error((*path, "pty"), f"{count} serial lines; at most {MAX_LINES} are allowed in an entry")


def compiled(model: VirtualNode, parse: Callable[[str, Path], Template], path: Path) -> StandIn:
    """The stand-in of a model that `check` found right."""
    inside = parse(model.container_path or _DEFAULT_PATH, (*path, "containerPath"))
    if model.like is not None:
        return LikeNode(container_path=inside, like=model.like, permissions=model.permissions or "rw")
    if model.pty is not None:
        return PtyLine(
            container_path=inside,
            end=model.pty,
            answers=tuple((line, parse(text, (*path, "answers", line))) for line, text in model.answers.items()),
            otherwise=None if model.otherwise is None else parse(model.otherwise, (*path, "otherwise")),
        )
    read_only = bool(model.read_only)
    if model.file is not None:
        return PlainFile(container_path=inside, content=parse(model.file, (*path, "file")), read_only=read_only)
    files = tuple((name, parse(text, (*path, "directory", name))) for name, text in (model.directory or {}).items())
    return PlainDirectory(container_path=inside, files=files, read_only=read_only)
