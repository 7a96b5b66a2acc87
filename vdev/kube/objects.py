"""Objects of the API server: the kinds that vdev reads and writes; their names and times."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeAlias

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
