"""The HTTP view of a fleet (see `observe.http.application`), which names at most a hundred nodes."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from .. import __version__
from ..telemetry.exporters import page
from .controller import Fleet
from .member import Member
from .pod_devices import keys_of

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from starlette.applications import Starlette

_SHOWN = 100  # nodes or devices that are named; more are only counted


METRICS: Mapping[str, tuple[tuple[str, ...], str]] = {
    "build_info": (("version",), "1, labeled with the version"),
    "fleet_nodes": (("state",), "Nodes by state: settled, behind, failing, refused, withKubelet"),
    "fleet_devices": (("amount", "resource"), "Devices of all nodes: capacity, allocatable, held"),
    "fleet_broken_devices": ((), "Devices that are not healthy"),
    "fleet_refused_pods": ((), "Pods that a kubelet would not admit"),
    "fleet_writes_total": ((), "Write requests since the start"),
    "fleet_converged": ((), "Whether every node matches the file (1) or not yet (0)"),
    "fleet_config_refused": ((), "Whether the last reading of the files was refused (1) or is in force (0)"),
}
"""The labels of each metric, whose name begins with `vdev_`, and what it means."""


class FleetView:
    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    def status(self) -> dict[str, Any]:
        fleet = self._fleet
        members = tuple(fleet.members.values())
        late = fleet.late
        states, broken = self._states(late), list(_broken(members))
        return {
            "converged": fleet.is_settled,
            "configuration": {"refused": [*map(str, fleet.refused)], "warnings": [*map(str, fleet.warnings)]},
            "problems": [*map(str, fleet.retrier.problems)],
            "apiServer": {kind: str(error) for kind, error in tuple(fleet.cluster.trouble.items())},
            "nodes": {"total": sum(states.values()), **states},
            "behind": list(islice(self._behind(late), _SHOWN)),
            "resources": _resources(members),
            "broken": {"total": len(broken), "devices": broken[:_SHOWN]},
            "refusedPods": sum(len(each.assigned.rejected) for each in members),
            "writes": {"total": fleet.writes, "perSecond": round(fleet.writes_per_second, 1)},
        }

    @property
    def measured_nodes(self) -> Mapping[str, Member]:
        """The nodes whose devices have sensors, by name."""
        members = sorted(self._fleet.members.items())  # a copy, because this runs in a thread
        return {name: each for name, each in members if each.telemetry}

    def devices_page(self, node: str = "") -> str:
        """The metrics of a node in the format of its exporter, or those of all nodes with a label `node`. Blocks."""
        found = {name: each for name, each in self.measured_nodes.items() if node in ("", name)}
        label = next((each.telemetry.hostname_label for each in found.values() if each.telemetry), "")
        now = self._fleet.clock.now()
        return page([(name, each.sensors.measured(now)) for name, each in found.items()], label, node_label=not node)

    def registry(self) -> "CollectorRegistry":
        """A registry with the metrics of the fleet and of the process."""
        from prometheus_client import CollectorRegistry, Counter, Gauge, ProcessCollector

        registry = CollectorRegistry()
        ProcessCollector(registry=registry)  # process_*
        now = self.status()
        samples: Mapping[str, Mapping[tuple[str, ...], float]] = {
            "build_info": {(__version__,): 1},
            "fleet_nodes": {(state,): count for state, count in now["nodes"].items() if state != "total"},
            "fleet_devices": {
                (amount, name): value for name, of in now["resources"].items() for amount, value in of.items()
            },
            "fleet_broken_devices": {(): now["broken"]["total"]},
            "fleet_refused_pods": {(): now["refusedPods"]},
            "fleet_writes_total": {(): now["writes"]["total"]},
            "fleet_converged": {(): now["converged"]},
            "fleet_config_refused": {(): bool(now["configuration"]["refused"])},
        }
        for name, (labels, text) in METRICS.items():
            kind = Counter if name.endswith("_total") else Gauge
            metric = kind(f"vdev_{name}", text, labels, registry=registry)
            for values, value in samples[name].items():
                (metric.labels(*values) if labels else metric).inc(value)
        return registry

    def not_ready(self) -> Sequence[str]:
        """The kinds that the API server has not listed yet, or that cannot be followed now."""
        fleet = self._fleet
        unknown = () if fleet.has_begun else ("the API server has not listed its nodes yet",)
        return (*unknown, *(f"{kind}: {error}" for kind, error in tuple(fleet.cluster.trouble.items())))

    def application(self) -> "Starlette":
        """Return the application that serves this view. Sensors have separate pages."""
        from ..observe import http  # it imports the web server

        return http.application(
            status=self.status, registry=self.registry, not_ready=self.not_ready, page=http.FLEET_PAGE
        )

    def _states(self, late: Sequence[tuple[str, str, str]]) -> dict[str, int]:
        fleet = self._fleet
        names = (*fleet.scope.made, *fleet.members)
        found = {name: "settled" if name in fleet.members else "behind" for name in names}
        for node in fleet.nodes:
            if node.refused:
                found[node.name] = "refused"
            elif node.has_kubelet and (node.name in fleet.scope.made or fleet.scope.item_chosen(node.metadata)):
                found[node.name] = "withKubelet"  # it is left to the agent there
        found |= {node: "behind" for node, *_ in late}
        found |= {node: "failing" for node, _, why in late if why}
        counts = Counter(found.values())
        return {state: counts[state] for state in ("settled", "behind", "failing", "refused", "withKubelet")}

    def _behind(self, late: Sequence[tuple[str, str, str]]) -> Iterator[dict[str, str]]:
        """The nodes that do not match the file; those that fail come first."""
        for node in self._fleet.nodes:
            if node.refused:
                yield {"node": node.name, "what": "creating the Node", "why": node.refused}
        for name, what, why in sorted(late, key=lambda each: (not each[2], each)):
            yield {"node": name, "what": what, "why": why or "in progress"}


def _resources(members: Sequence[Member]) -> Mapping[str, Mapping[str, int]]:
    """The amounts by resource, and by driver for claims. A partitioned device for claims counts as one."""
    found: dict[str, Counter[str]] = {}
    for member in members:
        for name, amounts in (member.plan.capacity if member.plan else {}).items():
            found.setdefault(name, Counter(capacity=0, allocatable=0, held=0)).update(amounts)
        for devices in tuple(member.assigned.devices.values()):
            for name, _ in keys_of(devices):
                if name in found:
                    found[name]["held"] += 1
        claimed = member.claimed
        for driver, pool in (member.plan.pools if member.plan else {}).items():
            taken = {pool.by_name[name].group for name in claimed.get(driver, ()) if name in pool.by_name}
            capacity = len(pool.groups)
            amounts = {"capacity": capacity, "allocatable": capacity - len(pool.broken), "held": len(taken)}
            found.setdefault(driver, Counter(capacity=0, allocatable=0, held=0)).update(amounts)
    return {name: dict(of) for name, of in sorted(found.items())}


def _broken(members: Sequence[Member]) -> Iterator[dict[str, str]]:
    """The devices that are not healthy. A partitioned device that only claims can get counts as one."""
    for member in members:
        if (plan := member.plan) is None:
            continue
        broken = [
            (resource.name, slot.id, slot.health)
            for resource in plan.advertised.resources.values()
            if resource.healthy < len(resource.slots)
            for slot in resource.slots
            if not slot.health.healthy
        ]
        for driver, pool in plan.pools.items():
            for device, health in pool.broken.items():
                if not any(device in resource.raws for resource in plan.advertised.resources.values()):
                    broken.append((driver, device, health))
        for name, device, health in broken:
            where = {"node": member.node.name, "resource": name, "device": device}
            yield {**where, "why": health.reason, "injected": health.injected}
