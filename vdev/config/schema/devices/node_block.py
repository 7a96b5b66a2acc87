"""`virtual.node`: the node or file that a container gets for a virtual device."""

from typing import Annotated, Any

from pydantic import WithJsonSchema, model_validator

from ....core.model.virtual_node import Like, LineEnd
from ..scalars import Flag, PathTemplate, Permissions, TemplateText, Text, choice, matching
from ..section import Section

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
    def _name_null(cls, data: Any) -> Any:
        """Here alone is an unquoted null a value: the name of a device."""
        empty = {"like": Like.NULL.value, "directory": {}}
        if not isinstance(data, dict):
            return data
        return {key: empty.get(key) if value is None else value for key, value in data.items()}
