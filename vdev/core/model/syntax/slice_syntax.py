"""What Kubernetes takes in a ResourceSlice: names of drivers, devices and attributes, versions, and the limits.

Source: the validation of resource.k8s.io/v1 in Kubernetes 1.36.
"""

import re

from .names import DNS_NAME

MAX_DRIVER = 63
MAX_STRING = 64
MAX_IDENTIFIER = 32
MAX_ENTRIES = 32
"""Attributes and capacities of a device together."""

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MAX_DEVICE = 63
_NUMBER = r"(0|[1-9][0-9]*)"
_PRE_RELEASE = r"(0|[1-9][0-9]*|[0-9]*[A-Za-z-][0-9A-Za-z-]*)"
_VERSION = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(-{_PRE_RELEASE}(\.{_PRE_RELEASE})*)?(\+[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?"
)


def driver_problem(name: str) -> str:
    """Why `name` cannot be that of a driver, or the empty string."""
    if len(name) > MAX_DRIVER:
        return f"{name[:20]!r}… has {len(name)} characters; the name of a driver has at most {MAX_DRIVER}"
    if not DNS_NAME.fullmatch(name):
        return f"{name!r} is not the name of a driver, which is a DNS name in lower case, such as gpu.example.com"
    return ""


def attribute_problem(name: str) -> str:
    """Why `name` cannot be that of an attribute, or the empty string: an identifier, perhaps with a domain in front."""
    domain, slash, rest = name.rpartition("/")
    if slash and (not DNS_NAME.fullmatch(domain) or len(domain) > MAX_DRIVER):
        wrong = f"{domain!r} before '/' is not a DNS name in lower case of at most {MAX_DRIVER} characters"
    elif not _IDENTIFIER.fullmatch(rest):
        wrong = f"{rest!r} may hold letters, digits and '_', and does not begin with a digit"
    elif len(rest) > MAX_IDENTIFIER:
        wrong = f"{rest!r} has {len(rest)} characters; at most {MAX_IDENTIFIER} are allowed"
    else:
        return ""
    return f"{name!r} is not the name of an attribute: {wrong}"


def string_problem(text: str) -> str:
    """Why `text` cannot be the value of an attribute, or the empty string."""
    size = len(text.encode())
    if size > MAX_STRING:
        return f"{text[:20]!r}… has {size} bytes; a string in a ResourceSlice has at most {MAX_STRING}"
    return ""


def version_problem(text: str) -> str:
    """Why `text` cannot be a version, or the empty string: three numbers, as Semantic Versioning 2.0.0 has them."""
    if len(text) > MAX_STRING:
        return f"{text[:20]!r}… has {len(text)} characters; a version has at most {MAX_STRING}"
    if not _VERSION.fullmatch(text):
        return f"{text!r} is not a version: it is three numbers without leading zeros, such as 580.95.5"
    return ""


def qualified(name: str, driver: str) -> str:
    """An attribute's name with its domain, which is the driver's where it has none of its own."""
    return name if "/" in name else f"{driver}/{name}"


def identifier(text: str) -> str:
    """The name of an attribute made of any text, or the empty string where nothing is left of it."""
    name = re.sub(r"[^A-Za-z0-9_]+", "_", text).strip("_")[:MAX_IDENTIFIER].strip("_")
    return f"_{name}"[:MAX_IDENTIFIER] if name[:1].isdigit() else name


def dns_label(text: str) -> str:
    """A DNS label made of any text, or the empty string where nothing is left of it; different texts may share one."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:_MAX_DEVICE].strip("-")
