"""What Kubernetes refuses of Nodes: taints, amounts, conditions, addresses."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ...objects import formats

Document = Mapping[str, Any]
_CONDITION = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_FEATURE = re.compile(r"[A-Z][A-Za-z0-9]*(/[A-Za-z][A-Za-z0-9]*)*")
_QUANTITY = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]+)?")
_WHOLE = re.compile(r"[0-9]+([kMGTPE]|[KMGTPE]i|e[0-9]+)?")  # as such amounts are given back
_STANDARD = {"cpu", "memory", "pods", "ephemeral-storage", "storage"}
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def causes(document: Document) -> Iterator[tuple[str, str]]:
    """What is wrong with a Node: field and message each."""
    yield from _taints((document.get("spec") or {}).get("taints") or ())
    status = document.get("status") or {}
    for field in ("capacity", "allocatable"):
        for name, quantity in (status.get(field) or {}).items():
            yield from ((f"status.{field}.{name}", text) for text in _resource(name, quantity))
    yield from _named_places(status)
    seen: set[str] = set()
    for index, each in enumerate(status.get("conditions") or ()):
        at = f"status.conditions[{index}]"
        kind = each.get("type", "")
        if not _CONDITION.fullmatch(kind):
            yield f"{at}.type", f'Invalid value: "{kind}": must be a name'
        if kind in seen:
            yield f"{at}.type", f'Duplicate value: "{kind}"'
        seen.add(kind)
        if each.get("status") not in ("True", "False", "Unknown"):
            yield f"{at}.status", 'Unsupported value: supported values: "False", "True", "Unknown"'


def _named_places(status: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Of a node's addresses, and of the features that its kubelet declares."""
    addresses = status.get("addresses") or ()
    for index, each in enumerate(addresses):
        if each in addresses[:index]:
            yield f"status.addresses[{index}]", f"Duplicate value: {json.dumps(each)}"
    for index, each in enumerate(status.get("declaredFeatures") or ()):
        if not _FEATURE.fullmatch(str(each)):
            why = "must start with an UpperCamelCase segment, with subsequent segments separated by '/'"
            yield f"status.declaredFeatures[{index}]", formats.wrong(each, f'invalid feature name "{each}": {why}')


def _taints(taints: Iterable[Document]) -> Iterator[tuple[str, str]]:
    seen: set[tuple[Any, Any]] = set()
    for index, each in enumerate(taints):
        at, key, effect = f"spec.taints[{index}]", each.get("key") or "", each.get("effect") or ""
        yield from ((f"{at}.key", text) for text in formats.qualified_name(key))
        yield from ((f"{at}.value", text) for text in formats.label_value(each.get("value") or ""))
        yield from formats.one_of(_EFFECTS, f"{at}.effect", effect)
        if (key, effect) in seen:
            yield at, f'Duplicate value: "{key}:{effect}": taints must be unique by key and effect pair'
        seen.add((key, effect))


def _resource(name: str, quantity: Any) -> Iterator[str]:
    own = name in _STANDARD or name.startswith(("hugepages-", "attachable-volumes-"))
    if not isinstance(quantity, str) or not _QUANTITY.fullmatch(quantity):
        yield f"Invalid value: {json.dumps(quantity)}: quantities must match the regular expression …"
    elif quantity.startswith("-"):
        yield f'Invalid value: "{quantity}": must be greater than or equal to 0'
    elif not own and not _WHOLE.fullmatch(quantity):
        yield f'Invalid value: "{quantity}": must be an integer'
    if not own:
        if "/" not in name:
            yield f'Invalid value: "{name}": must be a standard resource type or fully qualified'
        yield from formats.qualified_name(name)
