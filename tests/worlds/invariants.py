"""The invariants of all worlds, checked from outside: on the wire, in the kubelet, on the disk.

on each message        allocated devices were listed as Healthy, and their CDI names can be resolved
on each finding        the embedded kubelet has only findings that a fault rule or a slow machine explains
after each event       no hardware is on two pods, no id is in two lists, held devices are listed
after a quiet moment   lists, node status, and CDI files match the plan in force
at the end             the node has the devices of the file and the held ones; without pods, exactly those of the file
"""

import json
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.worlds.node_model import RULES, NodeModel, clashes
from vdev.pb import deviceplugin_v1beta1_pb2 as pb
from vdev.sim import Finding, Kind, Kubelet, Phase, PodStatus

if TYPE_CHECKING:
    from vdev.planning.plan import DesiredState

EXPLAINED = {  # findings that fault rules, or a slow machine, may cause
    "slow-rpc": ("slow", "hang"),
    "hung-rpc": ("hang",),
    "cdi-spec": ("spoilt",),
    "cdi-unresolved": ("spoilt",),
    "registered-before-serving": ("lost", "swapped"),
}
# A plugin cannot know whether a slow kubelet has seen the end of a stream.
_OF_SLOWNESS = ("slow-rpc", "registered-before-serving", "registered-while-streaming")
_PATIENCE = 60.0  # seconds for which the effects of a rule may last after its end


@dataclass(frozen=True, slots=True)
class Broken(Exception):
    """An invariant does not hold."""

    rule: str
    text: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.text}"


class Excuses:
    """Recent events that explain findings, by name, with the times until which they count."""

    def __init__(self) -> None:
        self._until: dict[str, float] = {}

    def note(self, name: str, until: float) -> None:
        self._until[name] = max(until, self._until.get(name, 0.0))

    def rules(self, chosen: Iterable[int], until: float) -> None:
        """Note that the file has these fault rules until a time. Their effects may last longer."""
        for each in chosen:
            self.note(_rule(each), until + _PATIENCE)

    def end(self, chosen: Iterable[int], now: float) -> None:
        for each in chosen:
            self._until[_rule(each)] = now + _PATIENCE

    def has(self, *names: str, now: float) -> bool:
        return any(self._until.get(name, -1.0) >= now for name in names)


def _rule(number: int) -> str:
    return RULES[number].partition("name: ")[2].partition(",")[0]


def judge_finding(finding: Finding, excuses: Excuses, now: float) -> None:
    """Check a finding of the embedded kubelet. Raises Broken unless it is explained."""
    if finding.code == "device-given-twice":  # never the plugin's fault
        return
    by = EXPLAINED.get(finding.code, ())
    if finding.code in _OF_SLOWNESS and excuses.has("slow machine", now=now):
        return
    if not excuses.has(*by, now=now):
        raise Broken("the embedded kubelet finds nothing", str(finding))


class Grants:
    """Follows the lists of a plugin on the wire, and checks that it allocates only listed devices."""

    def __init__(self, cdi_dir: Path, excuses: Excuses) -> None:
        self._cdi_dir = cdi_dir
        self._excuses = excuses
        self._lists: dict[object, deque[tuple[float, frozenset[str]]]] = {}  # by stream's server

    def listed(self, server: object, message: bytes, now: float) -> None:
        found = pb.ListAndWatchResponse.FromString(message)
        healthy = frozenset(each.ID for each in found.devices if each.health == "Healthy")
        self._lists.setdefault(server, deque(maxlen=50)).append((now, healthy))

    def granted(self, server: object, asked: bytes, message: bytes, *, since: float, now: float) -> None:
        """Check a successful Allocate that came at `since`. Raises Broken."""
        lists = self._lists.get(server, deque())
        before = [healthy for at, healthy in lists if at < since][-1:]
        known = frozenset().union(*before, *(healthy for at, healthy in lists if at >= since))
        request = pb.AllocateRequest.FromString(asked)
        wanted = {id_ for each in request.container_requests for id_ in each.devices_ids}
        if strange := sorted(wanted - known):
            raise Broken("what is granted is listed and Healthy", f"{strange} was granted")
        if not self._excuses.has("spoilt", now=now):
            self._resolve(pb.AllocateResponse.FromString(message))

    def _resolve(self, answer: pb.AllocateResponse) -> None:
        names: set[str] = set()
        for container in answer.container_responses:
            names.update(each.name for each in container.cdi_devices)
            for key, value in container.annotations.items():
                if key.startswith("cdi.k8s.io/"):
                    names.update(value.split(","))
        if names and (missing := sorted(names - cdi_names(self._cdi_dir))):
            raise Broken("CDI names of an answer resolve", f"no file in the CDI directory has {missing}")


def cdi_names(directory: Path) -> set[str]:
    """The qualified names of all devices in the CDI files of a directory."""
    found: set[str] = set()
    for path in directory.glob("*.json"):
        document = json.loads(path.read_bytes())
        found.update(f"{document['kind']}={each['name']}" for each in document["devices"])
    return found


def in_use(pod: PodStatus) -> Iterator[tuple[str, str]]:
    """The devices that a pod's containers use or may still use; a finished init container uses none."""
    if pod.phase.terminal:
        return
    for each in pod.containers:
        if each.kind is Kind.INIT and pod.phase is Phase.RUNNING:
            continue
        for resource, ids in each.devices.items():
            for id_ in ids:
                yield resource, id_


def judge_pods(pods: Iterable[PodStatus]) -> None:
    """Check the present pods. Raises Broken."""
    if found := clashes([(pod.name, set(in_use(pod))) for pod in pods]):
        raise Broken("no device is on two pods", "; ".join(found))


def judge_lists(kubelet: Kubelet) -> None:
    """Check the present lists, as the kubelet has read them. Raises Broken."""
    counts = Counter(id_ for devices in kubelet.listed().values() for id_ in devices)
    if twice := sorted(id_ for id_, count in counts.items() if count > 1):
        raise Broken("an id is in one list", f"{twice} is in two")


def judge_held(kubelet: Kubelet, pods: Iterable[PodStatus]) -> None:
    """Check that all devices of these pods are in a list. Raises Broken."""
    listed = kubelet.listed()
    for pod in pods:
        for resource, id_ in in_use(pod):
            if id_ not in listed.get(resource, ()):
                raise Broken("what a pod holds is listed", f"{id_} of {pod.name} is not in the list of {resource}")


def judge_outputs(kubelet: Kubelet, plan: "DesiredState", cdi_dir: Path, excuses: Excuses, now: float) -> None:
    """After a quiet moment, check that lists, capacity and CDI files match the plan. Raises Broken."""
    wanted = {
        name: {slot.id: slot.health.healthy for slot in resource.slots}
        for name, resource in plan.served.resources.items()
    }
    seen = {name: {id_: each == "Healthy" for id_, each in ids.items()} for name, ids in kubelet.listed().items()}
    for name in sorted(seen.keys() | wanted.keys()):
        if seen.get(name, {}) != wanted.get(name, {}):
            text = f"of {name} the kubelet has {seen.get(name, {})}, the plan {wanted.get(name, {})}"
            raise Broken("the lists are what the plan says", text)
    shown = {name: int(count) for name, count in kubelet.node().capacity.items() if count and name in wanted}
    counts = {name: len(ids) for name, ids in wanted.items() if ids}
    if shown != counts:
        raise Broken("the node's capacity is what the plan says", f"the node shows {shown}, the plan has {counts}")
    if not excuses.has("spoilt", now=now):
        names = {f"{kind}={each['name']}" for kind, file in plan.cdi.items() for each in file["devices"]}
        if missing := sorted(names - cdi_names(cdi_dir)):
            raise Broken("the CDI files have what the plan says", f"no file has {missing}")


def judge_end(kubelet: Kubelet, wanted: Mapping[str, frozenset[str]], claimed: Iterable[str] = ()) -> str:
    """The difference between the node and the file; empty if the node has the devices of the file and the held ones.

    A device that overlaps a held or claimed one may wait for it: it is unlisted if it has the same id, else Unhealthy.
    """
    held = {each for pod in kubelet.pods() for each in in_use(pod)}
    ids = {id_ for _, id_ in held} | {*claimed}
    listed = kubelet.listed()
    for name in sorted(wanted.keys() | listed.keys()):
        devices = listed.get(name, {})
        if missing := sorted(wanted.get(name, frozenset()) - devices.keys() - ids):
            return f"{missing} is missing from the list of {name}"
        if extra := sorted(id_ for id_ in devices.keys() - wanted.get(name, frozenset()) if (name, id_) not in held):
            return f"{extra} should have left the list of {name}, for no pod has it"
        wait = {id_ for id_ in devices if any(NodeModel.overlaps(id_, other) for other in ids)}
        if sick := sorted(id_ for id_, each in devices.items() if each != "Healthy" and id_ not in wait):
            return f"{sick} of {name} is Unhealthy"
    if lost := sorted((name, id_) for name, id_ in held if id_ not in listed.get(name, {})):
        return f"{lost} is held and not listed"
    return ""
