"""Objects of the API server: the kinds that vdev reads and writes; names, times, and owners of fields."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeAlias

Object: TypeAlias = Mapping[str, Any]

MANAGER = "vdev"
"""The field manager of writes."""


@dataclass(frozen=True, slots=True)
class ObjectKind:
    """A kind of object; `group` is empty for the core group."""

    group: str
    version: str
    name: str
    plural: str
    namespaced: bool

    @property
    def api_version(self) -> str:
        """The field `apiVersion` of the objects: v1, resource.k8s.io/v1."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def __str__(self) -> str:
        """The kind as an argument of kubectl: `nodes`, `resourceslices.resource.k8s.io`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


NODES = ObjectKind("", "v1", "Node", "nodes", namespaced=False)
PODS = ObjectKind("", "v1", "Pod", "pods", namespaced=True)
EVENTS = ObjectKind("", "v1", "Event", "events", namespaced=True)
RESOURCE_SLICES = ObjectKind("resource.k8s.io", "v1", "ResourceSlice", "resourceslices", namespaced=False)
RESOURCE_CLAIMS = ObjectKind("resource.k8s.io", "v1", "ResourceClaim", "resourceclaims", namespaced=True)
DEVICE_CLASSES = ObjectKind("resource.k8s.io", "v1", "DeviceClass", "deviceclasses", namespaced=False)


def metadata_of(document: Object | None) -> Mapping[str, Any]:
    """The metadata of an object; empty if it has none."""
    return (document or {}).get("metadata") or {}


def key_of(document: Object) -> str:
    """`namespace/name`, or the name of an object without a namespace."""
    metadata = document["metadata"]
    namespace = metadata.get("namespace")
    return f"{namespace}/{metadata['name']}" if namespace else str(metadata["name"])


def timestamp(wall: float) -> str:
    """A Unix time in the format of Kubernetes (RFC 3339, UTC)."""
    return datetime.fromtimestamp(wall, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


# --- the fields of an object that a field manager owns ----------------------------------------------------------------

# Source: `metadata.managedFields`, in the format `fieldsV1` of structured-merge-diff: `f:` is a key, `k:` an item of a
# list by its key fields. The next server-side apply of a manager changes or removes its fields.


def owned(
    document: Mapping[str, Any], *path: str, manager: str = MANAGER, subresource: str = "", by_apply: bool = True
) -> frozenset[str]:
    """The keys below a path that the manager owns; for a list, the keys of its items.

    With `by_apply` False, this includes keys that it owns by writes other than an apply.
    """
    mine = (each for each in _fields(document, path) if each.is_of(manager, subresource, by_apply=by_apply))
    return frozenset(each.key for each in mine)


def owned_by_others(
    document: Mapping[str, Any], *path: str, manager: str = MANAGER, subresource: str = ""
) -> Mapping[str, str]:
    """The keys below a path that other managers own, or this one by writes other than an apply; each with its owner.

    A manager that owns only fields of a list item, as a kubelet does in its conditions, does not own the item.
    """
    others = (each for each in _fields(document, path) if not each.is_of(manager, subresource, by_apply=True))
    return {each.key: str(each.entry.get("manager")) for each in others if each.is_whole}


class _Field(NamedTuple):
    key: str
    is_whole: bool
    entry: Mapping[str, Any]  # of managedFields

    def is_of(self, manager: str, subresource: str, *, by_apply: bool) -> bool:
        entry = self.entry
        is_its = entry.get("manager") == manager and (entry.get("subresource") or "") == subresource
        return is_its and (not by_apply or entry.get("operation") == "Apply")


def _fields(document: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[_Field]:
    for entry in metadata_of(document).get("managedFields") or ():
        fields = entry.get("fieldsV1") or {}
        for step in path:
            fields = fields.get(f"f:{step}") or {}
        for field, below in fields.items():
            kind, _, key = field.partition(":")
            if kind == "f":
                yield _Field(key, True, entry)
            elif kind == "k":
                for value in json.loads(key).values():
                    yield _Field(str(value), "." in below, entry)
