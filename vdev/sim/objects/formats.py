"""The API server's error messages for invalid names and labels. Each function yields none for a valid value."""

import json
from collections.abc import Iterator
from typing import Any

from ...model.names import DNS_NAME, qualified_name_problem, resource_name_problem, value_problem

_LONGEST_LABEL, _LONGEST_SUBDOMAIN = 63, 253
_CHARACTERS = "lower-case letters, digits and '-', with a letter or digit at both ends"


def wrong(value: Any, why: str) -> str:
    """The message about an invalid value."""
    return f"Invalid value: {json.dumps(value, ensure_ascii=False)}: {why}"


def subdomain(text: Any) -> Iterator[str]:
    """The form of most objects' names."""
    if not isinstance(text, str) or len(text) > _LONGEST_SUBDOMAIN or not DNS_NAME.fullmatch(text):
        rule = f"at most {_LONGEST_SUBDOMAIN} characters, labels of {_CHARACTERS}, and '.' between them"
        yield wrong(text, f"must be a lowercase RFC 1123 subdomain: {rule}")


def dns_label(text: Any) -> Iterator[str]:
    if not isinstance(text, str) or len(text) > _LONGEST_LABEL or not DNS_NAME.fullmatch(text) or "." in text:
        yield wrong(text, f"must be a lowercase RFC 1123 label: at most {_LONGEST_LABEL} {_CHARACTERS}")


def qualified_name(key: str) -> Iterator[str]:
    """The form of keys of labels, taints and conditions: a name with an optional domain."""
    if problem := qualified_name_problem(key):
        yield wrong(key, problem)


def label_value(text: Any) -> Iterator[str]:
    if problem := value_problem(text) if isinstance(text, str) else "must be a string":
        yield wrong(text, problem)


def extended_resource(name: str) -> Iterator[str]:
    """The form of an extended resource's name (`acme.dev/npu`)."""
    if problem := resource_name_problem(name):
        yield wrong(name, problem)
