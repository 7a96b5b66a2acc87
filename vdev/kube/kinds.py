"""The kinds of objects that vdev reads and writes, and where the API server has them."""

from dataclasses import dataclass
from urllib.parse import quote


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
        """As in the objects themselves: v1, resource.k8s.io/v1."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, *, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """The path of an object or, without a name, of all; without a namespace, of those in all namespaces."""
        parts = ["apis" if self.group else "api", self.api_version]
        if self.namespaced and namespace:
            parts += ["namespaces", quote(namespace, safe="")]
        parts += [self.plural, quote(name, safe=""), subresource]
        return "/" + "/".join(part for part in parts if part)

    def __str__(self) -> str:
        """As kubectl takes it: `nodes`, `resourceslices.resource.k8s.io`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


NODES = ObjectKind("", "v1", "Node", "nodes", namespaced=False)
PODS = ObjectKind("", "v1", "Pod", "pods", namespaced=True)
EVENTS = ObjectKind("", "v1", "Event", "events", namespaced=True)
RESOURCE_SLICES = ObjectKind("resource.k8s.io", "v1", "ResourceSlice", "resourceslices", namespaced=False)
RESOURCE_CLAIMS = ObjectKind("resource.k8s.io", "v1", "ResourceClaim", "resourceclaims", namespaced=True)
DEVICE_CLASSES = ObjectKind("resource.k8s.io", "v1", "DeviceClass", "deviceclasses", namespaced=False)
