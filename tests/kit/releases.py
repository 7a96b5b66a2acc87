"""The rules of other releases of Kubernetes than the one that the embedded API server stands for."""

from vdev.sim.api.rules import Rules

_SPLIT_COUNTERS = (1, 35)  # since when counters have slices of their own
_GATES = (1, 36)  # since when fields of partitions, taints and shares are on by default
_GATED = (
    *("taints", "consumesCounters", "allowMultipleAllocations"),
    *("bindsToNode", "bindingConditions", "bindingFailureConditions"),
)


class Release(Rules):
    """Those of a version. With `alpha` the gates of partitions, taints and shares are on though they are alpha, `more`
    says what else is wrong with an object.
    """

    def __init__(self, version=Rules.version, *, alpha=False):
        super().__init__()
        self.version = version
        self.more = lambda _kind, _old, _new: ()
        self._gates = alpha or version >= _GATES

    def complete(self, kind, new, *, now):
        """Without the fields of gates that are off."""
        if kind.kind == "ResourceSlice" and not self._gates:
            new["spec"].pop("sharedCounters", None)
            for device in new["spec"].get("devices") or ():
                for name in _GATED:
                    device.pop(name, None)
                for each in (device.get("capacity") or {}).values():
                    each.pop("requestPolicy", None)
        super().complete(kind, new, now=now)

    def problems(self, kind, old, new):
        """Counters beside their devices are wrong since they have slices of their own."""
        for field, text in super().problems(kind, old, new):
            if self.version >= _SPLIT_COUNTERS or "sharedCounters exclude each other" not in text:
                yield field, text
        yield from self.more(kind, old, new)
