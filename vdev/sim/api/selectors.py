"""Label and field selectors of lists and watches."""

from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

from .kinds import ApiKind, Document, Refused, value_at

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
    """One requirement of a label selector: a=b, a!=b, a, !a, a in (b,c), a notin (b,c)."""
    text = text.strip()
    for word, wanted in ((" notin ", False), (" in ", True)):
        name, found, values = text.partition(word)
        if found:
            return _among(name.strip(), values, wanted=wanted)
    for word, wanted in (("!=", False), ("==", True), ("=", True)):
        name, found, value = text.partition(word)
        if found:
            return _is(name.strip(), value.strip(), wanted=wanted)
    return (lambda have: text[1:] not in have) if text.startswith("!") else (lambda have: text in have)


def _among(name: str, values: str, *, wanted: bool) -> Callable[[_Labels], bool]:
    among = {each.strip() for each in values.strip().removeprefix("(").removesuffix(")").split(",")}
    return lambda have: (have.get(name) in among) is wanted


def _is(name: str, value: str, *, wanted: bool) -> Callable[[_Labels], bool]:
    return lambda have: (have.get(name) == value) is wanted


def _text(document: Document, path: str) -> str:
    found = value_at(document, path)
    return "" if found is None else str(found)
