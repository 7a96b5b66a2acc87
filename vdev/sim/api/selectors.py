"""Label and field selectors of lists and watches."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

from .kinds import ApiKind, Document, Refused, value_at

_KEY = r"[-A-Za-z0-9_./]+"
_VALUE = r"[-A-Za-z0-9_.]*"
_REQUIREMENT = re.compile(
    rf"\s*(?:!\s*(?P<absent>{_KEY})"
    rf"|(?P<name>{_KEY})\s*(?:\s(?P<set>in|notin)\s*\((?P<values>[^()]*)\)"
    rf"|(?P<operator>==|=|!=)\s*(?P<value>{_VALUE}))?)\s*"
)
_COMMA = re.compile(r",(?![^(]*\))")  # not between parentheses
Chosen: TypeAlias = Callable[[Document], bool]


def selection(kind: ApiKind, namespace: str, params: Mapping[str, str]) -> Chosen:
    """A function that says whether a request selects an object. Raises Refused."""
    fields = list(_fields(kind, params.get("fieldSelector", "")))
    text = params.get("labelSelector", "")
    requirements = [_requirement(each) for each in _COMMA.split(text)] if text else []

    def chosen(document: Document) -> bool:
        metadata = document["metadata"]
        labels = metadata.get("labels") or {}
        return (
            (not namespace or metadata.get("namespace") == namespace)
            and all((_text(document, path) == value) is wanted for path, value, wanted in fields)
            and all(
                ((key in labels) if values is None else (labels.get(key) in values)) is wanted
                for key, values, wanted in requirements
            )
        )

    return chosen


def _fields(kind: ApiKind, text: str) -> Iterator[tuple[str, str, bool]]:
    """Path, value, and whether the field must have that value. Raises Refused."""
    for each in filter(None, text.split(",")):
        name, equals, value = each.partition("=")
        wanted = not name.endswith("!")
        name = name.removesuffix("!")
        if not equals or name not in ("metadata.name", "metadata.namespace", *kind.selectable):
            raise Refused(400, "BadRequest", f"field label not supported: {name}")
        yield name, value.removeprefix("="), wanted


def _requirement(text: str) -> tuple[str, set[str] | None, bool]:
    """One requirement of a label selector: a=b, a!=b, a, !a, a in (b,c), a notin (b,c). Raises Refused.

    Returns the key, the values (None for any), and whether the label must have one of them.
    """
    match = _REQUIREMENT.fullmatch(text)
    if match is None:
        raise Refused(400, "BadRequest", f"unable to parse requirement: {text!r}")
    if match["absent"]:
        return match["absent"], None, False
    if match["set"]:
        return match["name"], {each.strip() for each in match["values"].split(",")}, match["set"] == "in"
    return match["name"], {match["value"]} if match["operator"] else None, match["operator"] != "!="


def _text(document: Document, path: str) -> str:
    found = value_at(document, path)
    if path == "spec.unschedulable":
        return "true" if found else "false"
    return "" if found is None else str(found)
