"""The section `node`: what is said about the node beside the device plugin API."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, WithJsonSchema

from ..model.scalars import Flag, Plain, Section, described, refuse

NFD = "nfd"


def _labels(value: object) -> object:
    if isinstance(value, bool) or (type(value) is str and value == NFD):
        return value
    if isinstance(value, Plain) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    hint = "take the quotes off" if isinstance(value, str) and value.lower() in ("true", "false") else ""
    return refuse(f"expected true, false or {NFD}, got {described(value)}", hint)


Labels = Annotated[
    bool | Literal["nfd"],
    BeforeValidator(_labels),
    WithJsonSchema({"anyOf": [{"type": "boolean"}, {"const": NFD}]}),
]
"""Whether and how labels are written."""


class Node(Section):
    """What the plugin says about its node beside the device plugin API. Each needs permissions of its own."""

    labels: Labels = False
    """Whether the node gets the labels that the makers' own labellers write, and those of the entries. true: on the
    Node object; nfd: through a file for Node Feature Discovery, which needs no access to the API server."""
    events: Flag = False
    """Whether what happens to devices becomes Events of the Node."""
    conditions: Flag = False
    """Whether the conditions of the entries are written into the Node's status."""
    status: Flag = False
    """Whether extended resources are written into the Node's status, for a node on which no device plugin is to run."""
