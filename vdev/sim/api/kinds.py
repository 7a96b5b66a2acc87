"""The kinds of objects that the API server serves. Another kind is one line more in `KINDS`."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

Document: TypeAlias = Mapping[str, Any]
Stored: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ApiKind:
    """One kind. `selectable` are its fields for selectors besides name and namespace, `immutable` those that no change
    may touch. With `generation` each change of the spec counts, with `graceful` an object that has a node stays until
    its kubelet has deleted it. With `status` it begins in phase `at_first`, if that is not empty. `actions` are
    subresources at which something else is created.
    """

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool = True
    status: bool = False
    generation: bool = False
    graceful: bool = False
    at_first: str = ""
    selectable: tuple[str, ...] = ()
    immutable: tuple[str, ...] = ()
    short: tuple[str, ...] = ()
    actions: tuple[str, ...] = ()

    @property
    def api_version(self) -> str:
        """As in objects."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def full(self) -> str:
        """As messages name it."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


_REASONS = {
    "Required value": "FieldValueRequired",
    "Duplicate value": "FieldValueDuplicate",
    "Unsupported value": "FieldValueNotSupported",
    "Forbidden": "FieldValueForbidden",
    "Not found": "FieldValueNotFound",
    "Too long": "FieldValueTooLong",
    "Too many": "FieldValueTooMany",
}
_ABOUT = tuple(f"involvedObject.{each}" for each in ("kind", "name", "namespace", "uid"))
POD_ACTIONS = {"binding": ("v1", "Binding"), "eviction": ("policy/v1", "Eviction")}  # and what is created there
DRA = "resource.k8s.io"  # whose objects are refused with fields that there are not
KINDS = (
    ApiKind("", "v1", "Namespace", "namespaces", namespaced=False, status=True, at_first="Active", short=("ns",)),
    ApiKind(
        "",
        "v1",
        "Node",
        "nodes",
        namespaced=False,
        status=True,
        selectable=("spec.unschedulable",),
        short=("no",),
    ),
    ApiKind(
        "",
        "v1",
        "Pod",
        "pods",
        status=True,
        generation=True,
        graceful=True,
        selectable=("spec.nodeName", "spec.schedulerName", "spec.restartPolicy", "status.phase"),
        short=("po",),
        actions=tuple(POD_ACTIONS),
    ),
    ApiKind("", "v1", "Event", "events", selectable=("reason", "type", *_ABOUT), short=("ev",)),
    ApiKind("", "v1", "ConfigMap", "configmaps", short=("cm",)),
    ApiKind("coordination.k8s.io", "v1", "Lease", "leases"),
    ApiKind(
        DRA,
        "v1",
        "ResourceSlice",
        "resourceslices",
        namespaced=False,
        generation=True,
        selectable=("spec.nodeName", "spec.driver"),
        immutable=("spec.driver", "spec.pool.name", "spec.nodeName"),
    ),
    ApiKind(DRA, "v1", "DeviceClass", "deviceclasses", namespaced=False, generation=True),
    ApiKind(DRA, "v1", "ResourceClaim", "resourceclaims", status=True, immutable=("spec",)),
    ApiKind(DRA, "v1", "ResourceClaimTemplate", "resourceclaimtemplates", immutable=("spec",)),
)


def value_at(document: Document, path: str) -> Any:
    """What a document has at a path like `spec.pool.name`; None where there is nothing."""
    found: Any = document
    for part in path.split("."):
        found = (found or {}).get(part)
    return found


def by_path(kinds: Iterable[ApiKind]) -> Mapping[tuple[str, str, str], ApiKind]:
    return {(each.group, each.version, each.plural): each for each in kinds}


class Refused(Exception):
    """An answer that is a no: a Status, with the seconds after which to ask again where the server says so."""

    def __init__(self, status: int, reason: str, message: str, *, after: int | None = None, **details: Any) -> None:
        super().__init__(message)
        self.status = status
        self.after = after
        self.document = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": message,
            "reason": reason,
            "details": details,
            "code": status,
        }


def not_found(kind: ApiKind, name: str) -> Refused:
    return Refused(404, "NotFound", f'{kind.full} "{name}" not found', **_about(kind, name))


def exists(kind: ApiKind, name: str) -> Refused:
    return Refused(409, "AlreadyExists", f'{kind.full} "{name}" already exists', **_about(kind, name))


def conflict(kind: ApiKind, name: str, why: str) -> Refused:
    """The object is not as the request supposes."""
    said = f'Operation cannot be fulfilled on {kind.full} "{name}": {why}'
    return Refused(409, "Conflict", said, **_about(kind, name))


def invalid(kind: ApiKind, name: str, wrong: Iterable[tuple[str, str]]) -> Refused:
    """The object is not one: field and message each."""
    full = f"{kind.kind}.{kind.group}" if kind.group else kind.kind
    causes = [{"reason": _reason_of(text), "message": text, "field": field} for field, text in wrong]
    said = ", ".join(f"{each['field']}: {each['message']}" if each["field"] else each["message"] for each in causes)
    text = f'{full} "{name}" is invalid: {said if len(causes) == 1 else f"[{said}]"}'
    return Refused(422, "Invalid", text, **{**_about(kind, name), "kind": kind.kind}, causes=causes)


def _reason_of(text: str) -> str:
    return next((reason for beginning, reason in _REASONS.items() if text.startswith(beginning)), "FieldValueInvalid")


def _about(kind: ApiKind, name: str) -> dict[str, Any]:
    return {"name": name, **({"group": kind.group} if kind.group else {}), "kind": kind.plural}
