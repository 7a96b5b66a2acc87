"""What the running plugin serves, as a document for people and machines: `vdev status` and `/status` show the same."""

from typing import TYPE_CHECKING, Any

from .. import __version__
from ..core.inventory.resources import Resource
from ..core.model.documents import device_document, problem_document
from ..plugin.service import ResourceService, State

if TYPE_CHECKING:
    from .agent import Agent


def status(agent: "Agent") -> dict[str, Any]:
    """The whole status; keys are stable and documented."""
    reload = agent.config.status
    return {
        "version": __version__,
        "node": agent.options.node,
        "startedAt": agent.started_at,
        "ready": not (missing := not_ready(agent)),
        "notReady": missing,
        "kubelet": {"socket": str(agent.link.socket), "present": agent.link.kubelet_present},
        "podResources": {
            "socket": str(agent.options.pod_resources_socket),
            "readable": agent.holders.readable,
            "knownFrom": agent.holders.source.name,
            "knownFromSince": agent.holders.source.since,
            "checkpointProblem": agent.holders.trouble,
            "doubted": len(agent.holders.knowledge.doubted),
        },
        "record": {
            "file": str(agent.state.record.path) if agent.state.record.path else None,
            "problem": agent.state.record.problem.message if agent.state.record.problem else "",
        },
        "cdi": {"directory": str(agent.options.cdi_dir), "problem": agent.state.cdi.trouble},
        "config": {
            "files": [str(path) for path in agent.config.in_force.files],
            "choice": "; ".join(f"{each.file}: {each.reason}" for each in agent.config.in_force.why),
            "lastReloadSuccessful": reload.last_was_good,
            "appliedAt": reload.applied_at or None,
            "failedAt": reload.failed_at or None,
            "applied": reload.applied,
            "failed": reload.failed,
            "history": [{"at": each.at, "result": each.result, "summary": each.summary} for each in reload.history],
        },
        "actions": agent.ownership.status(),
        "faults": agent.drill.status(),
        "problems": [problem_document(problem) for problem in agent.state.problems],
        "resources": [_resource(agent, resource) for resource in agent.state.served.resources.values()],
    }


def ready(agent: "Agent") -> bool:
    """Whether nothing is missing."""
    return not not_ready(agent)


def not_ready(agent: "Agent") -> list[str]:
    """Why the agent is not ready, a sentence each; empty when it is.

    It is when every resource is registered, the kubelet listens to it, and containers can get the devices.
    """
    if agent.waiting or agent.fleet is None or not agent.state.published:
        return [agent.waiting or "starting", *map(str, agent.steps.problems)]
    services = agent.fleet.services.values()
    missing = [f"{each.name}: {each.trouble or _why(each)}" for each in services if not each.ready]
    return [*missing, agent.state.cdi.trouble] if agent.state.cdi.trouble else missing


def _why(service: ResourceService) -> str:
    silent = service.state is State.REGISTERED
    return "registered, but the kubelet has not opened its stream" if silent else service.state


def _resource(agent: "Agent", resource: Resource) -> dict[str, Any]:
    service = agent.fleet.services.get(resource.name) if agent.fleet else None
    holders = agent.holders.holders or {}
    return {
        "name": resource.name,
        "state": str(service.state) if service else "starting",
        "problem": service.trouble if service else "",
        "streams": service.streams if service else 0,
        "registrations": service.registrations if service else 0,
        "socket": service.socket if service else "",
        "capacity": len(resource.slots),
        "allocatable": resource.healthy,
        "draining": resource.draining,
        "listBytes": resource.list_bytes,
        "devices": [
            device_document(slot)
            | {
                "reason": slot.health.reason,
                "injected": slot.health.injected or agent.drill.engine.removed_by((resource.name, slot.id)),
                "flaps": agent.state.verdicts.flaps(slot.device.raw.id),
                "changedAt": agent.state.changed_at.get((resource.name, slot.id)),
                "holder": holders.get((resource.name, slot.id)),
            }
            for slot in resource.slots
        ],
    }
