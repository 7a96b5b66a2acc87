"""Journal entries as text for people and as JSON for programs. Pure."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, assert_never

from . import journal
from .lint import Finding
from .objects.container_edits import Edits
from .objects.node_devices import Capacity
from .objects.pods import ContainerStatus, PodStatus

NOTHING = Capacity({}, {})
_INDENT = " " * 9
_EVENTS: Mapping[type, str] = {
    journal.Lifecycle: "kubelet",
    journal.Registered: "registered",
    journal.RegistrationWaits: "registrationWaits",
    journal.RegistrationFailed: "registrationFailed",
    journal.PluginLost: "pluginLost",
    journal.Listed: "listed",
    journal.NodeChanged: "node",
    journal.PodChanged: "pod",
    journal.PodDeleted: "podDeleted",
    journal.PodWaiting: "podWaiting",
    journal.ManifestRefused: "manifestRefused",
    journal.DriverRegistered: "driverRegistered",
    journal.DriverRefused: "driverRefused",
    journal.DriverGone: "driverGone",
    journal.SlicesDeleted: "slicesDeleted",
    journal.ClaimChanged: "claim",
    Finding: "finding",
}
"""What programs call the kinds of entries; most of what they read of one are its fields."""


def render_entry(entry: journal.Entry, before: Capacity = NOTHING) -> str:
    """An entry as one line or a few; empty for what the following entry says better. `before` is the node until now."""
    match entry:
        case journal.Lifecycle():
            return _line("kubelet", f"{entry.what}{'; plugins register at ' + entry.detail if entry.detail else ''}")
        case journal.Registered():
            extra = [*(["pre-start"] if entry.options.pre_start_required else [])]
            extra += ["preferred allocation"] if entry.options.preferred_allocation else []
            again = " again" if entry.again else ""
            return _line("plugin", f"{entry.resource} registered{again} ({', '.join([entry.endpoint, *extra])})")
        case journal.RegistrationWaits():
            text = f"called Register, but nothing answers at {entry.endpoint}: serve before you register"
            return _line("plugin", f"{entry.resource} {text}")
        case journal.RegistrationFailed():
            return _line("plugin", f"{entry.resource or 'unnamed'} refused ({entry.endpoint}): {entry.error}")
        case journal.PluginLost():
            return _line("plugin", f"{entry.resource} disconnected: {entry.error}; all its devices are unhealthy now")
        case journal.Listed():
            return ""  # The node says the same in numbers, if they changed.
        case journal.NodeChanged():
            return render_node(entry.node, before)
        case journal.PodChanged():
            return render_pod(entry.pod)
        case journal.PodDeleted():
            return _line("pod", f"{entry.pod.spec.key} deleted")
        case journal.PodWaiting():
            return _line("pod", f"{entry.pod} waits: {entry.reason}")
        case journal.ManifestRefused():
            place = f"{entry.path}:{entry.line}" if entry.line else entry.path
            return _line("pod", f"{place} refused: {entry.error}")
        case journal.DriverRegistered():
            return _line("driver", f"{entry.driver} registered ({entry.service}, {entry.endpoint})")
        case journal.DriverRefused():
            return _line("plugin", f"refused ({entry.socket}): {entry.error}")
        case journal.DriverGone():
            return _line("driver", f"{entry.driver} is gone ({entry.endpoint}): {entry.why}")
        case journal.SlicesDeleted():
            of = f" of {entry.driver}" if entry.driver else ""
            return _line("slices", f"{entry.count}{of} deleted by the kubelet: {entry.why}")
        case journal.ClaimChanged():
            return _line(
                "claim", f"{entry.claim} {entry.what}{': ' if entry.devices else ''}{', '.join(entry.devices)}"
            )
        case Finding():
            return _line("finding", str(entry))
        case _:
            assert_never(entry)


def render_node(node: Capacity, before: Capacity = NOTHING) -> str:
    """The plugin resources whose numbers are not those of `before`, one line each."""
    rows = []
    for resource in _changed(node, before):
        was = ""
        if resource in before.capacity:
            was = f" (was {before.capacity[resource]} and {before.allocatable.get(resource, 0)})"
        numbers = f"capacity {node.capacity[resource]}, allocatable {node.allocatable.get(resource, 0)}"
        rows.append(_line("node", f"{resource}  {numbers}{was}"))
    return "\n".join(rows)


def render_pod(pod: PodStatus) -> str:
    """A pod, why it was refused, and for each container what it got."""
    head = f"{pod.spec.key} {'Terminating' if pod.terminating else pod.phase.value}"
    if pod.reason:
        head += f": {pod.reason}: {pod.message}"
    rows = [head]
    if not pod.phase.terminal:
        for container in pod.containers:
            rows += _container(container)
    return _line("pod", f"\n{_INDENT}".join(rows))


def entry_json(entry: journal.Entry, before: Capacity = NOTHING) -> dict[str, Any]:
    """An entry as a JSON object; `event` says its kind. `before` is the node until now."""
    return {"event": _EVENTS[type(entry)], **_fields(entry, before)}


def _fields(entry: journal.Entry, before: Capacity) -> dict[str, Any]:
    match entry:
        case journal.Registered():
            options = {
                "preStartRequired": entry.options.pre_start_required,
                "getPreferredAllocationAvailable": entry.options.preferred_allocation,
            }
            return asdict(entry) | {"options": options}
        case journal.NodeChanged():
            return node_json(entry.node, before)
        case journal.PodChanged():
            return pod_json(entry.pod)
        case journal.PodDeleted():
            return {"name": entry.pod.name, "namespace": entry.pod.namespace}
        case Finding():
            return asdict(entry) | {"severity": entry.severity.value}
        case _:
            return asdict(entry)


def node_json(node: Capacity, before: Capacity = NOTHING) -> dict[str, Any]:
    """Capacity and allocatable of the plugin resources whose numbers are not those of `before`."""
    changed = _changed(node, before)
    return {
        "capacity": {resource: node.capacity[resource] for resource in changed},
        "allocatable": {resource: node.allocatable.get(resource, 0) for resource in changed},
    }


def pod_json(pod: PodStatus) -> dict[str, Any]:
    """A pod with all that its containers got."""
    return {
        "name": pod.name,
        "namespace": pod.namespace,
        "uid": pod.uid,
        "phase": pod.phase.value,
        "reason": pod.reason,
        "message": pod.message,
        "terminating": pod.terminating,
        "containers": [
            {
                "name": container.name,
                "kind": container.kind.value,
                "running": container.running,
                "waiting": container.waiting,
                "message": container.message,
                "restarts": container.restarts,
                "devices": {resource: list(ids) for resource, ids in container.devices.items()},
                "claims": {claim: list(ids) for claim, ids in container.claims.items()},
                "allocatedResourcesStatus": container.allocated_resources_status,
                **edits_json(container.edits),
            }
            for container in pod.containers
        ],
    }


def edits_json(edits: Edits) -> dict[str, Any]:
    """What plugins change in a container, with the names of the configuration file."""
    return {
        "env": dict(edits.envs),
        "deviceNodes": [
            {"hostPath": node.host_path, "containerPath": node.container_path, "permissions": node.permissions}
            for node in edits.devices
        ],
        "mounts": [
            {"hostPath": mount.host_path, "containerPath": mount.container_path, "readOnly": mount.read_only}
            for mount in edits.mounts
        ],
        "annotations": dict(edits.annotations),
        "cdiDevices": list(edits.cdi_devices),
    }


def _container(container: ContainerStatus) -> list[str]:
    devices = "; ".join(f"{resource}: {', '.join(ids)}" for resource, ids in sorted(container.devices.items()))
    rows = [f"  {container.name}{'' if container.kind.value == 'app' else f' ({container.kind.value})'}  {devices}"]
    rows += [f"    claim       {claim}: {', '.join(ids)}" for claim, ids in sorted(container.claims.items())]
    if container.waiting:
        rows.append(f"    waits: {container.waiting}: {container.message}")
    for resource, health in sorted(container.health.items()):
        bad = [id_ for id_, state in sorted(health.items()) if state != "Healthy"]
        rows += [f"    unhealthy: {resource}: {', '.join(bad)}"] if bad else []
    edits = container.edits
    rows += [f"    env         {name}={value}" for name, value in sorted(edits.envs.items())]
    rows += [f"    device      {n.host_path} -> {n.container_path} ({n.permissions})" for n in edits.devices]
    rows += [
        f"    mount       {mount.host_path} -> {mount.container_path}{' (read-only)' if mount.read_only else ''}"
        for mount in edits.mounts
    ]
    rows += [f"    annotation  {key}={value}" for key, value in sorted(edits.annotations.items())]
    rows += [f"    cdi         {name}" for name in edits.cdi_devices]
    return [row.rstrip() for row in rows]


def _changed(node: Capacity, before: Capacity) -> list[str]:
    """The resources that the node shows otherwise than before, or for the first time."""
    return sorted(
        resource
        for resource, count in node.capacity.items()
        if (count, node.allocatable.get(resource)) != (before.capacity.get(resource), before.allocatable.get(resource))
    )


def _line(kind: str, text: str) -> str:
    return f"{kind:<{len(_INDENT)}}{text}"
