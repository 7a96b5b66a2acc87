"""Pods and container edits as text and as JSON. Pure."""

from typing import Any

from .objects.container_edits import Edits
from .objects.pods import ContainerStatus, PodStatus


def render_pod(pod: PodStatus) -> str:
    """A pod and its containers with their devices and edits; of a pod that has ended, only the reason."""
    head = f"{pod.spec.key} {'Terminating' if pod.terminating else pod.phase.value}"
    if pod.reason:
        head += f": {pod.reason}: {pod.message}"
    rows = [head]
    if not pod.phase.terminal:
        for container in pod.containers:
            rows += _container(container)
    return "\n".join(rows)


def pod_json(pod: PodStatus) -> dict[str, Any]:
    """A pod and its containers with their devices and edits."""
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
    """The edits of a container, with the keys of vdev's configuration file."""
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
