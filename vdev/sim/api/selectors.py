"""Label and field selectors of lists and watches."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

from .kinds import ApiKind, Document, Refused, value_at

_KEY = r"(?:[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_VALUE = r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?"
_REQUIREMENT = re.compile(
    rf"\s*(?:!\s*(?P<absent>{_KEY})"
    rf"|(?P<name>{_KEY})\s*(?:\s(?P<among>in|notin)\s*\((?P<values>\s*{_VALUE}\s*(?:,\s*{_VALUE}\s*)*)\)"
    rf"|(?P<sign>==|=|!=|<|>)\s*(?P<value>{_VALUE}))?)\s*"
)
_INTEGER = re.compile(r"[+-]?[0-9]+")
Chosen: TypeAlias = Callable[[Document], bool]
_Labels: TypeAlias = Mapping[str, str]


def selection(kind: ApiKind, namespace: str, params: Mapping[str, str]) -> Chosen:
    """Which objects a request is about. Raises Refused."""
    fields = list(_fields(kind, params.get("fieldSelector", "")))
    labels = [_label(each) for each in _split(params.get("labelSelector", ""))]

    def chosen(document: Document) -> bool:
        metadata = document["metadata"]
        have = metadata.get("labels") or {}
        return (
            (not namespace or metadata.get("namespace") == namespace)
            and all((_text(document, path) == value) is wanted for path, value, wanted in fields)
            and all(test(have) for test in labels)
        )

    return chosen


def _fields(kind: ApiKind, text: str) -> Iterator[tuple[str, str, bool]]:
    for each in filter(None, text.split(",")):
        name, equals, value = each.partition("=")
        if not equals:
            raise Refused(400, "BadRequest", f'invalid selector: "{each}"; can\'t understand "{each}"')
        wanted = not name.endswith("!")
        name = name.removesuffix("!")
        if name not in ("metadata.name", "metadata.namespace", *kind.selectable):
            raise Refused(400, "BadRequest", f"field label not supported: {name}")
        yield name, value.removeprefix("="), wanted


def _split(text: str) -> Iterator[str]:
    depth, part = 0, ""
    for character in text:
        depth += (character == "(") - (character == ")")
        if character == "," and not depth:
            yield part
            part = ""
        else:
            part += character
    if part:
        yield part


def _label(text: str) -> Callable[[_Labels], bool]:
    """One requirement of a label selector: a=b, a!=b, a, !a, a in (b,c), a notin (b,c), a>1, a<1. Raises Refused."""
    hit = _REQUIREMENT.fullmatch(text)
    if hit is None:
        raise Refused(400, "BadRequest", f"unable to parse requirement: {text!r}")
    if hit["absent"]:
        return lambda have: hit["absent"] not in have
    name, among, sign, value = hit["name"], hit["among"], hit["sign"], hit["value"] or ""
    if among:
        wanted = {each.strip() for each in hit["values"].split(",")}
        return lambda have: (have.get(name) in wanted) is (among == "in")
    if not sign:
        return lambda have: name in have
    if sign in "<>":
        if not _INTEGER.fullmatch(value):
            text = (
                f"values[0][{name}]: Invalid value: {value!r}: for 'Gt', 'Lt' operators, the value must be an integer"
            )
            raise Refused(400, "BadRequest", f"unable to parse requirement: {text}")
        return lambda have: _compares(have.get(name, ""), sign, int(value))
    return lambda have: (have.get(name) == value) is (sign != "!=")


def _compares(has: str, sign: str, limit: int) -> bool:
    return bool(_INTEGER.fullmatch(has)) and (int(has) > limit if sign == ">" else int(has) < limit)


def _text(document: Document, path: str) -> str:
    found = value_at(document, path)
    return "" if found is None else str(found)
