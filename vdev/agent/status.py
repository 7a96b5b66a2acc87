"""What the running plugin serves, as a document for people and machines: `vdev status` and `/status` show the same."""

from typing import Any, Protocol

from .. import __version__
from ..deviceplugin.registration import KubeletSocket
from ..deviceplugin.service import ResourceService, ServiceState
from ..dra.output import Dra
from ..model.device import device_document, problem_document
from ..node.events import Situation
from ..planning.resources import Resource
from .cdi_files import CdiFiles
from .config_files import ConfigSource
from .device_lists import DeviceLists, Measures
from .fault_control import FaultControl
from .handovers import HandoverActions
from .lock import NodeLock
from .node_objects import NodeApi
from .options import Options
from .pod_holders import PodHolders
from .reconcile import Reconciler
from .state_file import StateFile
from .steps import Steps


class Running(Protocol):
    """The parts of the running plugin that are looked at."""

    options: Options
    link: KubeletSocket
    lock: NodeLock
    config: ConfigSource
    holders: PodHolders
    reconciler: Reconciler
    lists: DeviceLists
    cdi: CdiFiles
    state: StateFile
    measures: Measures
    handovers: HandoverActions
    faults: FaultControl
    node_api: NodeApi
    dra: Dra
    steps: Steps
    started_at: float
    waiting: str


def situation(agent: Running) -> Situation:
    """What Events tell of beside the plan."""
    reading, services = agent.config.status, agent.lists.services.values()
    return Situation(
        applied=reading.applied,
        refused=reading.failed,
        reading=reading.history[0].summary if reading.history else "",
        unregistered={each.name: each.trouble for each in services if each.trouble},
        drills=agent.faults.drills,
        announced=dict(agent.faults.engine.announced),
    )


def status(agent: Running) -> dict[str, Any]:
    """The whole status; keys are stable and documented."""
    reload = agent.config.status
    return {
        "version": __version__,
        "node": agent.options.node,
        "startedAt": agent.started_at,
        "ready": not (missing := not_ready(agent)),
        "notReady": missing,
        "standBy": stand_by(agent),
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
            "file": str(agent.state.path) if agent.state.path else None,
            "problem": agent.state.problem.message if agent.state.problem else "",
        },
        "cdi": {"directory": str(agent.options.cdi_dir), "problem": agent.cdi.trouble},
        "config": {
            "files": [str(path) for path in agent.config.in_force.files],
            "choice": "; ".join(f"{each.file}: {each.reason}" for each in agent.config.in_force.why),
            "keptFile": str(agent.state.path) if agent.state.path else None,
            "keptAt": reload.kept_at or None,
            "lastReloadSuccessful": reload.last_was_good,
            "appliedAt": reload.applied_at or None,
            "failedAt": reload.failed_at or None,
            "applied": reload.applied,
            "failed": reload.failed,
            "history": [
                {"at": each.at, "result": each.result, "summary": each.summary, "devices": each.devices}
                for each in reload.history
            ],
        },
        "actions": agent.handovers.status(),
        "faults": agent.faults.status(),
        "nodeApi": agent.node_api.document(),
        "dra": agent.dra.document(),
        "layouts": agent.reconciler.choices.document(),
        "problems": [problem_document(problem) for problem in agent.reconciler.problems],
        "resources": [_resource(agent, resource) for resource in agent.reconciler.served.resources.values()],
    }


def ready(agent: Running) -> bool:
    return not not_ready(agent)


def stand_by(agent: Running) -> str:
    """For which other agent's end this one waits, in a sentence; empty when it does not."""
    return agent.waiting if agent.lock.stands_by else ""


def not_ready(agent: Running) -> list[str]:
    """Why the agent is not ready, a sentence each; empty when it is.

    It is when every resource is registered and the kubelet listens to it, or the Node's status has it, when
    ResourceSlices are published, when containers can get the devices, and when the files have been good at least once.
    In stand-by only the files matter: the node is another one's, and is served.
    """
    if stand_by(agent):
        return _bad_since_the_start(agent)
    if agent.waiting or not agent.lists.running or not agent.reconciler.published:
        return [agent.waiting or "starting", *map(str, agent.steps.problems)]
    services = agent.lists.services.values()
    missing = [f"{each.name}: {each.trouble or _why(each)}" for each in services if not each.ready]
    if agent.reconciler.spec.node.status and not agent.node_api.document()["status"]["written"]:
        missing.append("the Node's status does not have the resources yet")
    node_api = agent.node_api.document()
    trouble = node_api["problem"] if node_api["apiServer"] else "no API server is known"
    why = f": {trouble}" if trouble else ""
    missing += [
        f"the ResourceSlices of {driver} are not published{why}"
        for driver in sorted(agent.reconciler.base.claimable.keys() - agent.dra.slices.published.keys())
    ]
    return [*_bad_since_the_start(agent), *missing, *([agent.cdi.trouble] if agent.cdi.trouble else [])]


def _bad_since_the_start(agent: Running) -> list[str]:
    reload = agent.config.status
    if not reload.kept_at:
        return []
    return [f"the configuration is bad since the start, and the last good one is used: {reload.summary}"]


def _why(service: ResourceService) -> str:
    silent = service.state is ServiceState.REGISTERED
    return "registered, but the kubelet has not opened its stream" if silent else service.state


def _resource(agent: Running, resource: Resource) -> dict[str, Any]:
    service = agent.lists.services.get(resource.name)
    in_status = agent.reconciler.spec.node.status  # where no device plugin serves it
    holders = agent.holders.holders or {}
    changed_at = agent.measures.changed_at.get(resource.name, {})
    return {
        "name": resource.name,
        "state": str(service.state) if service else "in the Node's status" if in_status else "starting",
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
                "entry": slot.device.raw.entry,
                "selector": slot.device.selector,
                "reason": slot.health.reason,
                "injected": slot.health.injected or agent.faults.engine.removed_by((resource.name, slot.id)),
                "xids": [
                    each.number for each in agent.faults.engine.afflictions.xids.get((resource.name, slot.id), ())
                ],
                "flaps": agent.reconciler.verdicts.flaps(slot.device.raw.id),
                "changedAt": changed_at.get(slot.id),
                "holder": holders.get((resource.name, slot.id)),
            }
            for slot in resource.slots
        ],
    }
