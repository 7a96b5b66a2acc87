"""The kinds of objects that the API server serves. Another kind is one line more in `KINDS`."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

Document: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ApiKind:
    """One kind. `selectable` are its fields for selectors besides name and namespace, `immutable` those that no change
    may touch. With `generation` each change of the spec counts, with `graceful` an object that has a node stays until
    its kubelet has deleted it.
    """

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool = True
    status: bool = False
    generation: bool = False
    graceful: bool = False
    selectable: tuple[str, ...] = ()
    immutable: tuple[str, ...] = ()
    short: tuple[str, ...] = ()

    @property
    def api_version(self) -> str:
        """As in objects."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def full(self) -> str:
        """As messages name it."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


_ABOUT = tuple(f"involvedObject.{each}" for each in ("kind", "name", "namespace", "uid"))
_DRA = "resource.k8s.io"
KINDS = (
    ApiKind("", "v1", "Namespace", "namespaces", namespaced=False, status=True, short=("ns",)),
    ApiKind("", "v1", "Node", "nodes", False, status=True, selectable=("spec.unschedulable",), short=("no",)),
    ApiKind(
        "", "v1", "Pod", "pods", status=True, graceful=True, selectable=("spec.nodeName", "status.phase"), short=("po",)
    ),
    ApiKind("", "v1", "Event", "events", selectable=("reason", "type", *_ABOUT), short=("ev",)),
    ApiKind("", "v1", "ConfigMap", "configmaps", short=("cm",)),
    ApiKind("coordination.k8s.io", "v1", "Lease", "leases"),
    ApiKind(
        _DRA,
        "v1",
        "ResourceSlice",
        "resourceslices",
        namespaced=False,
        generation=True,
        selectable=("spec.nodeName", "spec.driver"),
        immutable=("spec.driver", "spec.pool.name", "spec.nodeName"),
    ),
    ApiKind(_DRA, "v1", "DeviceClass", "deviceclasses", namespaced=False, generation=True),
    ApiKind(_DRA, "v1", "ResourceClaim", "resourceclaims", status=True, immutable=("spec",)),
    ApiKind(_DRA, "v1", "ResourceClaimTemplate", "resourceclaimtemplates", immutable=("spec",)),
)


def value_at(document: Document, path: str) -> Any:
    """What a document has at a path like `spec.pool.name`; None where there is nothing."""
    found: Any = document
    for part in path.split("."):
        found = (found or {}).get(part)
    return found


def by_path(kinds: Iterable[ApiKind]) -> Mapping[tuple[str, str, str], ApiKind]:
    """The kinds by group, version and plural, as paths have them."""
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
    """There is no such object."""
    return Refused(404, "NotFound", f'{kind.full} "{name}" not found', name=name, kind=kind.plural)


def conflict(kind: ApiKind, name: str, why: str) -> Refused:
    """The object is not as the request supposes."""
    said = f'Operation cannot be fulfilled on {kind.full} "{name}": {why}'
    return Refused(409, "Conflict", said, name=name, kind=kind.plural)


def invalid(kind: ApiKind, name: str, wrong: Iterable[tuple[str, str]]) -> Refused:
    """The object is not one: field and message each."""
    found = [{"reason": "FieldValueInvalid", "message": text, "field": field} for field, text in wrong]
    said = ", ".join(_sentences(found))
    text = f'{kind.kind} "{name}" is invalid: {said if len(found) == 1 else f"[{said}]"}'
    return Refused(422, "Invalid", text, name=name, kind=kind.kind, causes=found)


def _sentences(found: Iterable[Mapping[str, str]]) -> Iterator[str]:
    for each in found:
        yield f"{each['field']}: {each['message']}" if each["field"] else each["message"]
