"""What is wrong with a selector of nodes, as pods and slices have it: field and message each. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any

from . import formats

_AMONG, _THERE, _COMPARED = ("In", "NotIn"), ("Exists", "DoesNotExist"), ("Gt", "Lt")
_FIELD = "metadata.name"


def causes(at: str, selector: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Of the whole selector, which needs a term."""
    terms = selector.get("nodeSelectorTerms") or ()
    if not terms:
        yield f"{at}.nodeSelectorTerms", "Required value: must have at least one node selector term"
    for index, each in enumerate(terms):
        yield from term(f"{at}.nodeSelectorTerms[{index}]", each)


def term(at: str, written: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for index, each in enumerate(written.get("matchExpressions") or ()):
        yield from _expression(f"{at}.matchExpressions[{index}]", each)
    for index, each in enumerate(written.get("matchFields") or ()):
        yield from _field(f"{at}.matchFields[{index}]", each)


def _expression(at: str, requirement: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    operator, values = requirement.get("operator", ""), requirement.get("values") or ()
    if operator in _AMONG and not values:
        yield f"{at}.values", "Required value: must be specified when `operator` is 'In' or 'NotIn'"
    elif operator in _THERE and values:
        yield f"{at}.values", "Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
    elif operator in _COMPARED and len(values) != 1:
        yield f"{at}.values", "Required value: must be specified single value when `operator` is 'Lt' or 'Gt'"
    elif operator not in (*_AMONG, *_THERE, *_COMPARED):
        yield f"{at}.operator", formats.wrong(operator, "not a valid selector operator")
    yield from ((f"{at}.key", text) for text in formats.qualified_name(str(requirement.get("key", ""))))
    for index, each in enumerate(values):
        yield from ((f"{at}.values[{index}]", text) for text in formats.label_value(each))


def _field(at: str, requirement: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    operator, values = requirement.get("operator", ""), requirement.get("values") or ()
    if operator not in _AMONG:
        yield f"{at}.operator", formats.wrong(operator, "not a valid selector operator")
    elif len(values) != 1:
        yield f"{at}.values", "Required value: must be only one value when `operator` is 'In' or 'NotIn' for node field"
    if (key := requirement.get("key", "")) != _FIELD:
        yield f"{at}.key", formats.wrong(key, "not a valid field selector key")
