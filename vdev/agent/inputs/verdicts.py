"""What is known of each device's health beyond discovery: its probe's verdict, and whether it stays where it is.

Keyed by raw device id. The probes run in `health`, what presence means is decided in `core.health.flapping`; here both
are joined, and flaps counted.
"""

from collections.abc import Collection, Iterable, Mapping

from ...aio.timing import Timing
from ...core.health import flapping
from ...core.inventory.resources import Inventory
from ...core.model.device import Health
from ...core.spec import VirtualSource
from ...health import HealthMonitor, Target
from ...observe.metrics import Metrics
from .discovered import Scan


class Verdicts:
    """The verdicts of one node's devices."""

    def __init__(self, monitor: HealthMonitor, metrics: Metrics, *, timing: Timing) -> None:
        self.monitor = monitor
        self._metrics = metrics
        self._intervals, self._clock = timing
        self._presence: dict[str, flapping.FlapHistory] = {}
        self._resources: dict[str, str] = {}  # of the probed devices
        self._counted: dict[str, int] = {}  # flaps of the probe that are in the metric already

    def current(self) -> Mapping[str, Health]:
        """The verdict on every device of which there is one."""
        probed = {raw: report.health for raw, report in self.monitor.verdicts.items()}
        return probed | flapping.verdicts(self._presence, self._clock.now(), self._intervals)

    def again_at(self, begun: float) -> float | None:
        """The (monotonic) time after `begun` at which a verdict changes by itself, or None."""
        return flapping.look_again_at(self._presence, begun, self._intervals)

    def flaps(self, raw: str) -> int:
        """How often the device turned from good to bad, by its probe, or went away."""
        report, there = self.monitor.verdicts.get(raw), self._presence.get(raw)
        return (report.flaps if report else 0) + (there.losses if there else 0)

    def probe(self, scan: Scan, left_out: Collection[str] = ()) -> None:
        """Probe the devices of this scan but those left out, and no others."""
        targets = {
            raw.id: Target(entry.health, raw, entry.resource_of(raw))
            for name, entry in scan.entries.items()
            if entry.health is not None
            for raw in scan.devices[name]
            if raw.id not in left_out
        }
        self._resources = {raw: target.resource for raw, target in targets.items()}
        self.monitor.update(targets)

    def scanned(self, before: Scan, after: Scan, served: Inventory, left_out: Collection[str] = ()) -> None:
        """Note what went away or came back between two scans, of entries that the configuration left as they were.

        What was `left_out` is another entry's device, and its loss is counted there.
        """
        for name, found in after.found.items():
            entry, old = after.entries[name], before.found.get(name)
            if old is None or entry != before.entries.get(name) or isinstance(entry.source, VirtualSource):
                continue
            lost, came = old.by_id.keys() - found.by_id.keys(), found.by_id.keys() - old.by_id.keys()
            self._presence = flapping.observe(
                self._presence, lost=lost, came=came, now=self._clock.now(), intervals=self._intervals
            )
            for each in lost.difference(left_out):
                self._metrics.flaps.labels(entry.resource_of(old.by_id[each])).inc()
        self._forget(after, served)

    def _forget(self, scan: Scan, served: Inventory) -> None:
        if not self._presence:
            return
        known = (*(found.by_id for found in scan.found.values()), *(each.raws for each in served.resources.values()))
        self._presence = {raw: each for raw, each in self._presence.items() if any(raw in some for some in known)}

    def reported(self, devices: Collection[str]) -> None:
        """Count the flaps of the devices whose probe has news."""
        for raw in devices:
            report, before = self.monitor.verdicts.get(raw), self._counted.get(raw, 0)
            if report is not None and report.flaps != before:
                self._metrics.flaps.labels(self._resources[raw]).inc(max(0, report.flaps - before))
                self._counted[raw] = report.flaps
        self._counted = _only(self._counted, self.monitor.verdicts)


def _only(counted: dict[str, int], known: Iterable[str]) -> dict[str, int]:
    """Without those that are not probed any more; a device that comes back starts anew."""
    return {raw: counted[raw] for raw in known if raw in counted} if counted else counted
