"""What Kubernetes refuses of pods, as far as it is about where they run and what they get."""

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from ...objects import formats, node_selectors
from ...objects.amounts import exact

Document = Mapping[str, Any]
_POLICIES = ("Always", "OnFailure", "Never")
_PULLS = ("Always", "IfNotPresent", "Never")
_OPERATORS, _EFFECTS = ("Equal", "Exists"), ("NoSchedule", "PreferNoSchedule", "NoExecute")
_OF_CONTAINERS = ("cpu", "memory", "ephemeral-storage")
_HUGE = "hugepages-"
_MOST_PORT, _LONGEST_DEADLINE = 65535, 2**31 - 1
_ENVIRONMENT = re.compile(r"[ -<>-~]+")


def causes(pod: Document) -> Iterator[tuple[str, str]]:
    """What is wrong with a pod: field and message each."""
    spec = pod.get("spec") or {}
    claims = [str(each.get("name", "")) for each in spec.get("resourceClaims") or ()]
    volumes = {each.get("name") for each in spec.get("volumes") or ()}
    if not spec.get("containers"):
        yield "spec.containers", "Required value"
    names: set[str] = set()
    for field in ("containers", "initContainers"):
        for index, each in enumerate(spec.get(field) or ()):
            at = f"spec.{field}[{index}]"
            yield from _container(at, each, names, volumes)
            yield from _resources(f"{at}.resources", each.get("resources") or {}, claims)
    yield from _claims(spec.get("resourceClaims") or ())
    for index, each in enumerate(spec.get("tolerations") or ()):
        yield from _toleration(f"spec.tolerations[{index}]", each)
    yield from _places(spec)
    yield from _gates(spec.get("schedulingGates") or (), spec)
    yield from formats.one_of(_POLICIES, "spec.restartPolicy", spec.get("restartPolicy", "Always"))
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline <= _LONGEST_DEADLINE:
        why = f"must be between 1 and {_LONGEST_DEADLINE}, inclusive"
        yield "spec.activeDeadlineSeconds", formats.wrong(deadline, why)
    yield from _status(pod.get("status") or {}, claims)


def _container(at: str, container: Document, names: set[str], volumes: Collection[Any]) -> Iterator[tuple[str, str]]:
    name = container.get("name", "")
    if not name:
        yield f"{at}.name", "Required value"
    else:
        yield from ((f"{at}.name", text) for text in formats.dns_label(name))
    if name in names:
        yield f"{at}.name", f"Duplicate value: {json.dumps(name)}"
    names.add(name)
    if not container.get("image"):
        yield f"{at}.image", "Required value"
    yield from formats.one_of(_PULLS, f"{at}.imagePullPolicy", container.get("imagePullPolicy", "Always"))
    yield from _inside(at, container, volumes)


def _inside(at: str, container: Document, volumes: Collection[Any]) -> Iterator[tuple[str, str]]:
    """Of ports, variables and mounts."""
    for index, each in enumerate(container.get("ports") or ()):
        if not (port := each.get("containerPort")):
            yield f"{at}.ports[{index}].containerPort", "Required value"
        elif not 0 < port <= _MOST_PORT:
            why = f"must be between 1 and {_MOST_PORT}, inclusive"
            yield f"{at}.ports[{index}].containerPort", formats.wrong(port, why)
    for index, each in enumerate(container.get("env") or ()):
        if not (variable := each.get("name")):
            yield f"{at}.env[{index}].name", "Required value"
        elif not _ENVIRONMENT.fullmatch(variable):
            why = "a valid environment variable name must consist only of printable ASCII characters other than '='"
            yield f"{at}.env[{index}].name", formats.wrong(variable, why)
    for index, each in enumerate(container.get("volumeMounts") or ()):
        if each.get("name") not in volumes:
            yield f"{at}.volumeMounts[{index}].name", f"Not found: {json.dumps(each.get('name', ''))}"
        if not each.get("mountPath"):
            yield f"{at}.volumeMounts[{index}].mountPath", "Required value"


def _resources(at: str, resources: Document, claims: Sequence[str]) -> Iterator[tuple[str, str]]:
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for field, amounts in (("limits", limits), ("requests", requests)):
        for name, amount in amounts.items():
            yield from ((f"{at}.{field}[{name}]", text) for text in _amount(name, amount))
    for name in requests:
        limit, request = (exact(each.get(name)) for each in (limits, requests))
        if name in limits and limit is not None and request is not None:
            if not _overcommitted(name) and request != limit:
                why = f"must be equal to {name} limit of {limits[name]}"
                yield f"{at}.requests", formats.wrong(str(requests[name]), why)
            elif request > limit:
                why = f"must be less than or equal to {name} limit of {limits[name]}"
                yield f"{at}.requests", formats.wrong(str(requests[name]), why)
        elif name not in limits and not _overcommitted(name):
            yield f"{at}.limits", "Required value: Limit must be set for non overcommitable resources"
    if any(each.startswith(_HUGE) for each in requests) and not {"cpu", "memory"} & requests.keys():
        yield at, "Forbidden: HugePages require cpu or memory"
    seen: list[Document] = []
    for index, each in enumerate(resources.get("claims") or ()):
        yield from _used(f"{at}.claims[{index}]", each, claims, seen)
        seen.append(each)


def _overcommitted(name: str) -> bool:
    return ("/" not in name or "kubernetes.io/" in name) and not name.startswith(_HUGE)


def _amount(name: str, amount: Any) -> Iterator[str]:
    native = name in _OF_CONTAINERS or name.startswith(_HUGE)
    yield from formats.qualified_name(name)
    if "/" not in name and not native:
        standard = name in ("pods", "storage")
        yield formats.wrong(
            name, f"must be a standard resource {'for containers' if standard else 'type or fully qualified'}"
        )
    elif "/" in name and "kubernetes.io/" not in name and any(formats.extended_resource(name)):
        yield formats.wrong(name, "doesn't follow extended resource name standard")
    if (number := exact(amount)) is None:
        return
    if number < 0:
        yield formats.wrong(str(amount), "must be greater than or equal to 0")
    elif not native and "/" in name and number != int(number):
        yield formats.wrong(str(amount), "must be an integer")


def _used(at: str, used: Document, claims: Sequence[str], seen: Sequence[Document]) -> Iterator[tuple[str, str]]:
    """Of what a container has of the pod's claims."""
    name, request = used.get("name", ""), used.get("request", "")
    if not name:
        yield at, "Required value"
    elif name not in claims:
        which = f": {', '.join(claims)}" if claims else " which is empty"
        yield at, f"Not found: {json.dumps(name)}: must be one of the names in pod.spec.resourceClaims{which}"
    if request:
        yield from ((f"{at}.request", text) for text in formats.dns_label(request))
    same = [each.get("request", "") for each in seen if each.get("name") == name]
    if request in same or "" in same or (same and not request):
        yield at, f"Duplicate value: {json.dumps(f'{name}/{request}' if request in same and request else name)}"


def _claims(claims: Sequence[Document]) -> Iterator[tuple[str, str]]:
    seen: set[str] = set()
    for index, each in enumerate(claims):
        at, name = f"spec.resourceClaims[{index}]", each.get("name", "")
        if not name:
            yield f"{at}.name", "Required value"
        elif name in seen:
            yield f"{at}.name", f"Duplicate value: {json.dumps(name)}"
        else:
            yield from ((f"{at}.name", text) for text in formats.dns_label(name))
        seen.add(name)
        forms = [form for form in ("resourceClaimName", "resourceClaimTemplateName") if each.get(form) is not None]
        for form in forms:
            yield from ((f"{at}.{form}", text) for text in formats.subdomain(each[form]))
        if len(forms) > 1:
            why = "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
            yield at, formats.wrong(each, why)
        elif not forms:
            yield at, formats.wrong(each, "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`")


def _toleration(at: str, toleration: Document) -> Iterator[tuple[str, str]]:
    key, operator, value = (toleration.get(field) or "" for field in ("key", "operator", "value"))
    if key:
        yield from ((f"{at}.key", text) for text in formats.qualified_name(key))
    elif operator != "Exists":
        why = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
        yield f"{at}.operator", formats.wrong(operator, why)
    if toleration.get("tolerationSeconds") is not None and toleration.get("effect") != "NoExecute":
        why = "effect must be 'NoExecute' when `tolerationSeconds` is set"
        yield f"{at}.effect", formats.wrong(toleration.get("effect", ""), why)
    if operator in ("", "Equal"):
        yield from ((f"{at}.operator", text) for text in formats.label_value(value))
    elif operator == "Exists" and value:
        yield f"{at}.operator", formats.wrong(value, "value must be empty when `operator` is 'Exists'")
    yield from formats.one_of(_OPERATORS, f"{at}.operator", operator or "Equal")
    yield from formats.one_of(_EFFECTS, f"{at}.effect", toleration.get("effect") or "NoExecute")


def _places(spec: Document) -> Iterator[tuple[str, str]]:
    if node := spec.get("nodeName"):
        yield from (("spec.nodeName", text) for text in formats.subdomain(node))
    for key, value in (spec.get("nodeSelector") or {}).items():
        yield from (("spec.nodeSelector", text) for text in formats.qualified_name(key))
        yield from (("spec.nodeSelector", text) for text in formats.label_value(value))
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    at = "spec.affinity.nodeAffinity"
    if (required := affinity.get("requiredDuringSchedulingIgnoredDuringExecution")) is not None:
        yield from node_selectors.causes(f"{at}.requiredDuringSchedulingIgnoredDuringExecution", required)
    for index, each in enumerate(affinity.get("preferredDuringSchedulingIgnoredDuringExecution") or ()):
        term = f"{at}.preferredDuringSchedulingIgnoredDuringExecution[{index}]"
        if not 1 <= (each.get("weight") or 0) <= 100:  # the API's limit
            yield f"{term}.weight", formats.wrong(each.get("weight", 0), "must be in the range 1-100")
        yield from node_selectors.term(f"{term}.preference", each.get("preference") or {})
    for index, each in enumerate(spec.get("topologySpreadConstraints") or ()):
        if (each.get("maxSkew") or 0) < 1:
            at = f"spec.topologySpreadConstraints[{index}].maxSkew"
            yield at, formats.wrong(each.get("maxSkew", 0), "must be greater than zero")


def _gates(gates: Sequence[Document], spec: Document) -> Iterator[tuple[str, str]]:
    seen: set[str] = set()
    for index, each in enumerate(gates):
        name = each.get("name", "")
        yield from ((f"spec.schedulingGates[{index}]", text) for text in formats.qualified_name(name))
        if name in seen:
            yield f"spec.schedulingGates[{index}]", f"Duplicate value: {json.dumps(name)}"
        seen.add(name)
    if gates and spec.get("nodeName"):
        yield "spec.nodeName", "Forbidden: cannot be set until all schedulingGates have been cleared"


def _status(status: Document, claims: Sequence[str]) -> Iterator[tuple[str, str]]:
    if nominated := status.get("nominatedNodeName"):
        yield from (("status.nominatedNodeName", text) for text in formats.subdomain(nominated))
    for index, each in enumerate(status.get("resourceClaimStatuses") or ()):
        if each.get("name") not in claims:
            why = "must match the name of an entry in `spec.resourceClaims`"
            yield f"status.resourceClaimStatuses[{index}].name", formats.wrong(each.get("name", ""), why)
