"""The forms that Kubernetes wants of names and labels, and what it says of a text that has another one."""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_NAME = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_ENDS = "and must start and end with an alphanumeric character"
_NO_SUBDOMAIN = (
    f"a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', {_ENDS} "
    f"(e.g. 'example.com', regex used for validation is '{_SUBDOMAIN.pattern}')"
)
_NO_LABEL = (
    f"a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', {_ENDS} "
    f"(e.g. 'my-name',  or '123-abc', regex used for validation is '{_LABEL.pattern}')"
)
_NO_NAME = (
    f"name part must consist of alphanumeric characters, '-', '_' or '.', {_ENDS} "
    f"(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{_NAME.pattern}')"
)
_NO_VALUE = (
    f"a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', {_ENDS} "
    "(e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
_LONGEST, _LONGEST_SUBDOMAIN = 63, 253


def wrong(value: Any, why: str) -> str:
    """The sentence about a value."""
    return f"Invalid value: {json.dumps(value, ensure_ascii=False)}: {why}"


def one_of(allowed: Sequence[str], at: str, value: Any) -> Iterator[tuple[str, str]]:
    """What is wrong with a field of which there are few values: the field and the sentence."""
    if value not in allowed:
        supported = ", ".join(json.dumps(each) for each in allowed if each)
        yield at, f"Unsupported value: {json.dumps(value)}: supported values: {supported}"


def subdomain(text: Any) -> Iterator[str]:
    """What is wrong with the name of most objects."""
    if isinstance(text, str) and len(text) > _LONGEST_SUBDOMAIN:
        yield wrong(text, f"must be no more than {_LONGEST_SUBDOMAIN} characters")
    if not isinstance(text, str) or not _SUBDOMAIN.fullmatch(text):
        yield wrong(text, _NO_SUBDOMAIN)


def dns_label(text: Any) -> Iterator[str]:
    if isinstance(text, str) and len(text) > _LONGEST:
        yield wrong(text, f"must be no more than {_LONGEST} characters")
    if not isinstance(text, str) or not _LABEL.fullmatch(text):
        yield wrong(text, _NO_LABEL)


def driver(text: Any) -> Iterator[str]:
    if not text:
        yield "Required value"
    elif isinstance(text, str) and len(text) > _LONGEST:
        yield f"Too long: may not be more than {_LONGEST} bytes"
    elif not isinstance(text, str) or not _SUBDOMAIN.fullmatch(text.lower()):
        yield wrong(text, _NO_SUBDOMAIN)


def qualified_name(key: str) -> Iterator[str]:
    """What is wrong with the key of a label, a taint or a condition: a name, which may stand behind a domain."""
    prefix, slash, name = key.rpartition("/")
    if slash and not prefix:
        yield wrong(key, "prefix part must be non-empty")
    elif slash and len(prefix) > _LONGEST_SUBDOMAIN:
        yield wrong(key, f"prefix part must be no more than {_LONGEST_SUBDOMAIN} characters")
    elif slash and not _SUBDOMAIN.fullmatch(prefix):
        yield wrong(key, f"prefix part {_NO_SUBDOMAIN}")
    if not name:
        yield wrong(key, "name part must be non-empty")
    elif len(name) > _LONGEST:
        yield wrong(key, f"name part must be no more than {_LONGEST} bytes")
    if not _NAME.fullmatch(name):
        yield wrong(key, _NO_NAME)


def label_value(text: Any) -> Iterator[str]:
    if not isinstance(text, str):
        yield wrong(text, "must be a string")
        return
    if len(text) > _LONGEST:
        yield wrong(text, f"must be no more than {_LONGEST} bytes")
    if text and not _NAME.fullmatch(text):
        yield wrong(text, _NO_VALUE)


def extended_resource(name: str) -> Iterator[str]:
    """What is wrong with the name of an extended resource (`acme.dev/npu`): as Kubernetes 1.36 has it.

    It is checked as quota would write it, with `requests.` in front, which leaves 244 characters to the domain.
    """
    native = "/" not in name or "kubernetes.io/" in name
    if native or name.startswith("requests.") or any(qualified_name(f"requests.{name}")):
        yield wrong(name, "must be a valid extended resource name")
