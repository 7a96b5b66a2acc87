"""The status document, readiness and metrics of an agent. `vdev status` and `/status` show the same document."""

import functools
import platform
from typing import TYPE_CHECKING, Any

from .. import __version__
from ..deviceplugin.service import ServiceState
from ..model.device import device_document, problem_document
from ..planning.resources import Resource

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from .agent import Agent


def status(agent: "Agent") -> dict[str, Any]:
    """Return the status document; its keys are stable and documented."""
    config = agent.config
    return {
        "version": __version__,
        "node": agent.options.node_name,
        "startedAt": agent.started_at,
        "ready": not (missing := not_ready(agent)),
        "notReady": missing,
        "standBy": agent.lock.stand_by,
        "kubelet": {"socket": str(agent.link.socket), "present": agent.link.identity is not None},
        "podResources": {
            "socket": str(agent.options.pod_resources_socket),
            "readable": agent.holders.readable,
            "knownFrom": agent.holders.source,
            "knownFromSince": agent.holders.source_since,
            "checkpointProblem": agent.holders.checkpoint.trouble,
            "doubted": len(agent.holders.known.unlisted),
        },
        "record": {
            "file": str(agent.state.path) if agent.state.path else None,
            "problem": "".join(problem.message for problem in agent.state.problems),
        },
        "cdi": {"directory": str(agent.options.cdi_dir), "problem": agent.cdi.trouble},
        "config": {
            "files": [str(each.file) for each in config.in_force],
            "choice": "; ".join(f"{each.file.name}: {each.reason}" for each in config.in_force if each.reason),
            "keptFile": str(agent.state.path) if agent.state.path else None,
            "keptAt": config.kept_at or None,
            "lastReloadSuccessful": config.last_was_good,
            "appliedAt": config.applied_at or None,
            "failedAt": config.failed_at or None,
            "applied": config.applied,
            "failed": config.failed,
            "history": list(config.history),
        },
        "actions": agent.handovers.status(),
        "faults": agent.faults.store.status(),
        "nodeApi": agent.node_api.document(),
        "dra": agent.dra.document(),
        "layouts": agent.layouts.document(),
        "problems": [problem_document(problem) for problem in agent.reconciler.problems],
        "resources": [_resource(agent, resource) for resource in agent.reconciler.advertised.resources.values()],
    }


def stalled(agent: "Agent") -> str:
    """Return why the reconciler hangs; empty if it does not, or has not started."""
    silent = agent.options.clock.now() - agent.reconciled_at
    if not agent.lists.running or silent <= agent.options.intervals.stalled:
        return ""
    return f"the reconciler has not finished a step for {silent:.0f} s"


def not_ready(agent: "Agent") -> list[str]:
    """Return why the agent is not ready, a sentence for each reason; empty if it is.

    It is ready if every resource is registered and the kubelet listens, or the Node's status has the resource; if
    ResourceSlices are published; if containers can get the devices; and if the files have been good at least once. In
    stand-by only the files matter, because another agent serves the node.
    """
    missing = []
    if agent.config.kept_at:
        why = agent.config.summary
        missing.append(f"the configuration is bad since the start, and the last good one is used: {why}")
    if agent.lock.stand_by:
        return missing
    if not agent.lists.running or not agent.reconciler.published:
        return [agent.lock.trouble or "starting", *map(str, agent.retrier.problems)]
    services, node_api = agent.lists.services.values(), agent.node_api.document()
    for each in services:
        if not each.ready:
            is_silent = each.state is ServiceState.REGISTERED
            why = "registered, but the kubelet has not opened its stream" if is_silent else each.state
            missing.append(f"{each.name}: {each.trouble or why}")
    if agent.reconciler.spec.node.status and not node_api["status"]["written"]:
        missing.append("the Node's status does not have the resources yet")
    trouble = node_api["problem"] if node_api["apiServer"] else "no API server is known"
    why = f": {trouble}" if trouble else ""
    missing += [
        f"the ResourceSlices of {driver} are not published{why}"
        for driver in sorted(agent.reconciler.base.claimable.keys() - agent.dra.slices.published.keys())
    ]
    return [*missing, *([agent.cdi.trouble] if agent.cdi.trouble else [])]


def _resource(agent: "Agent", resource: Resource) -> dict[str, Any]:
    service = agent.lists.services.get(resource.name)
    in_status = agent.reconciler.spec.node.status  # then no device plugin serves it
    faults, holders = agent.faults.engine.active_faults, agent.holders.holders or {}
    changed_at = agent.measures.changed_at.get(resource.name, {})
    return {
        "name": resource.name,
        "state": str(service.state) if service else "in the Node's status" if in_status else "starting",
        "problem": service.trouble if service else "",
        "streams": service.servicer.streams if service else 0,
        "registrations": service.registrations if service else 0,
        "socket": service.socket if service else "",
        "capacity": len(resource.slots),
        "allocatable": resource.healthy,
        "draining": resource.draining,
        "listBytes": resource.list_bytes,
        "devices": [
            device_document(slot)
            | {
                "entry": slot.device.raw.entry,
                "selector": slot.device.selector,
                "reason": slot.health.reason,
                "injected": slot.health.injected or faults.unplugged_by((resource.name, slot.id)),
                "xids": [each.number for each in faults.xids.get((resource.name, slot.id), ())],
                "flaps": agent.health.flaps[slot.device.raw.id],
                "changedAt": changed_at.get(slot.id),
                "holder": holders.get((resource.name, slot.id)),
            }
            for slot in resource.slots
        ],
    }


def registry(agent: "Agent") -> "CollectorRegistry":
    """Return the metrics, with gauges set now."""
    agent.reconciler.measure()
    agent.measures.measure()
    agent.dra.measure()
    for name, service in tuple(agent.lists.services.items()):
        agent.metrics.streams.labels(name).set(service.servicer.streams)
    return agent.metrics.registry


async def serve_http(agent: "Agent") -> None:
    """Show the agent to people, probes and Prometheus until cancelled. Raises HostError."""
    from ..observe import http  # it imports a web server

    application = http.application(
        status=functools.partial(status, agent),
        registry=functools.partial(registry, agent),
        not_ready=functools.partial(not_ready, agent),
        telemetry=agent.telemetry.for_page,
        stalled=functools.partial(stalled, agent),
        stand_by=lambda: agent.lock.stand_by,
    )
    hosts = (agent.options.node_name, platform.node(), *agent.options.http_hosts)
    await http.serve(agent.options.http_address, application, hosts=hosts)
