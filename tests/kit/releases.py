"""The rules of Kubernetes releases other than that of the embedded API server."""

from vdev.sim.api.store import timestamp

_SPLIT_COUNTERS = (1, 35)  # the first release in which counters need their own slice
_GATES = (1, 36)  # the first release in which partitions, taints and shares are enabled by default
_GATED = (
    *("taints", "consumesCounters", "allowMultipleAllocations"),
    *("bindsToNode", "bindingConditions", "bindingFailureConditions"),
)


class Release:
    """The rules of a release. With `alpha`, partitions, taints and shares are enabled although they are alpha."""

    def __init__(self, version=(1, 36), *, alpha=False):
        self.version = version
        self._gates = alpha or version >= _GATES

    def complete(self, kind, new):
        """Set the times of taints, and drop empty lists of a ResourceSlice and fields of disabled feature gates."""
        if kind.kind != "ResourceSlice":
            return
        if not self._gates:
            new["spec"].pop("sharedCounters", None)
        _drop_empty(new["spec"], ("devices", "sharedCounters"))
        for device in new["spec"].get("devices", ()):
            if not self._gates:
                for name in _GATED:
                    device.pop(name, None)
                for each in (device.get("capacity") or {}).values():
                    each.pop("requestPolicy", None)
            _drop_empty(device, ("attributes", "capacity", "taints", "consumesCounters"))
            for taint in device.get("taints", ()):
                taint.setdefault("timeAdded", timestamp())

    def problems(self, kind, new, found):
        """Add problems to those that the store found. Before 1.35, counters may be in the slice of their devices."""
        for field, text in found:
            if self.version >= _SPLIT_COUNTERS or "exclude each other" not in text:
                yield field, text
        if kind.kind == "ResourceClaim":
            yield from _device_statuses(new.get("status") or {})


def _drop_empty(document, names):
    for name in names:
        if name in document and not document[name]:
            del document[name]


def _device_statuses(status):
    """Check that drivers report only allocated devices, and each device once."""
    results = ((status.get("allocation") or {}).get("devices") or {}).get("results") or ()
    fields = ("driver", "pool", "device", "shareID")
    allocated = [tuple(each.get(name) for name in fields) for each in results]
    keys = [tuple(each.get(name) for name in fields) for each in status.get("devices") or ()]
    for index, key in enumerate(keys):
        if key not in allocated:
            yield f"status.devices[{index}]", "must be an allocated device in the claim"
        if key in keys[:index]:
            yield f"status.devices[{index}]", "Duplicate value"
