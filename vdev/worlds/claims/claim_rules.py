"""What must hold for claims, looked at from outside: on the wire, on the disk, on the API server.

on each answer         what was prepared stands in the record, and its CDI names resolve; what was unprepared does not
after each event       no device is prepared for two claims, nor for one that a pod has of the device plugin
after a quiet moment   CDI files are those of the record; slices and labels are what the plan in force says
in the end             slices and labels are as the file says; without pods nothing is prepared, and no file is left
"""

import contextlib
import functools
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...pb import dra_v1_pb2 as pb
from ...sim import Kubelet, Phase, PodStatus
from ..api.claim_model import DRIVER, GATE, ClaimModel, pieces
from ..api.world_cluster import WorldCluster
from ..invariants import Broken, cdi_names, entries_of, in_use

if TYPE_CHECKING:
    from ...core.decide import Plan
    from ..machine.memory_calls import Answering
    from ..world_base import WorldBase

_PREFIX, _MIDDLE = "k8s.", "-claim_"
_UID = 36  # characters


Claims = dict[tuple[str, str], list[str]]
"""The names of devices, by driver and the claim's uid."""


def recorded(root: Path) -> Claims:
    """The prepared claims, as the drivers' records below the kubelet's directory have them."""
    found: Claims = {}
    for driver in entries_of(root / "plugins"):
        with (
            contextlib.suppress(FileNotFoundError, NotADirectoryError),
            open(f"{root}/plugins/{driver}/prepared-claims.json", "rb") as file,
        ):
            found |= {(driver, uid): list(devices) for uid, devices in _claims_in(file.read())}
    return found


@functools.lru_cache(maxsize=512)
def _claims_in(text: bytes) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Uid and devices of the claims in a record with this text, which is there at most events."""
    document = json.loads(text.partition(b"\n")[0])
    return tuple((each["uid"], tuple(one["device"] for one in each["devices"])) for each in document["claims"])


def files(cdi_dir: Path) -> set[tuple[str, str]]:
    """Driver and uid of the claims that have a CDI file."""
    of_claims = (
        name.removeprefix(_PREFIX).removesuffix(".json").partition(_MIDDLE)
        for name in entries_of(cdi_dir)
        if name.startswith(_PREFIX) and _MIDDLE in name and name.endswith(".json")
    )
    return {(driver, uid) for driver, _, uid in of_claims}


def judge_answer(call: "Answering", message: bytes, world: "WorldBase") -> None:
    """A driver answers; each claim here is one driver's. Raises Broken."""
    if call.method.endswith("/NodePrepareResources"):
        known = {uid for _, uid in recorded(world.kubelet.root)}
        for uid, answer in _by_uid(pb.NodePrepareResourcesResponse.FromString(message).claims):
            if answer.error:
                world.tell(f"claim {uid} is not prepared: {answer.error}")
            elif uid not in known:
                raise Broken("what is prepared stands in the record", f"claim {uid} was prepared, and is not in it")
            else:
                _resolve({name for device in answer.devices for name in device.cdi_device_ids}, world)
    elif call.method.endswith("/NodeUnprepareResources"):
        known = {uid for _, uid in recorded(world.kubelet.root)}
        left = known | {uid for _, uid in files(world.root / "cdi")}
        for uid, gone in _by_uid(pb.NodeUnprepareResourcesResponse.FromString(message).claims):
            if gone.error:
                world.tell(f"claim {uid} is not unprepared: {gone.error}")
            elif uid in left:
                where = "in the record" if uid in known else "in a CDI file"
                raise Broken("what is unprepared is gone", f"claim {uid} was unprepared, and is still {where}")


def _by_uid(claims: Any) -> list[tuple[str, Any]]:
    """The entries of a message's map, which come in another order in each process."""
    return sorted(claims.items(), key=lambda row: row[0])


def _resolve(names: set[str], world: "WorldBase") -> None:
    missing = sorted(names - cdi_names(world.root / "cdi"))
    if missing and not world.excuses.has("spoilt", now=world.now):
        raise Broken("CDI names of a prepared claim resolve", f"no file has {missing}")


def judge_devices(root: Path, pods: Iterable[PodStatus] = ()) -> None:
    """Look at what is prepared at this moment, and at what pods have of the device plugin. Raises Broken."""
    users: dict[str, str] = {
        f"{DRIVER}/{id_}": pod.name for pod in pods for resource, id_ in in_use(pod) if resource == GATE
    }
    for (driver, uid), devices in recorded(root).items():
        for piece in [piece for device in devices for piece in pieces(driver, device)]:
            other = users.setdefault(piece, uid)
            if other != uid:
                raise Broken("no device is prepared for two", f"{piece} is for {other} and for claim {uid}")


def judge_files(world: "WorldBase", pods: Iterable[PodStatus]) -> None:
    """Nothing has moved for a while: each prepared claim has its file, and no other has one. Raises Broken."""
    known, there = set(recorded(world.kubelet.root)), files(world.root / "cdi")
    if known != there and not world.excuses.has("spoilt", now=world.now):
        raise Broken("CDI files are those of prepared claims", f"prepared: {sorted(known)}, files: {sorted(there)}")
    uids = {uid for _, uid in known}
    for pod in pods:
        if pod.phase is Phase.RUNNING and not pod.terminating and (missing := sorted(_uids(pod) - uids)):
            raise Broken("the claims of a running pod are prepared", f"{missing} of {pod.name} are not in the record")


def _uids(pod: PodStatus) -> set[str]:
    """Of the pod's claims, which their CDI devices are named after."""
    names = (name for container in pod.containers for name in container.edits.cdi_devices)
    return {name.partition("=")[2][:_UID] for name in names if "claim=" in name}


def judge_published(cluster: WorldCluster, kubelet: Kubelet, plan: "Plan") -> None:
    """Nothing has moved for a while, and the server was well: it has what the plan says. Raises Broken."""
    known = {name for name, drivers in kubelet.drivers().items() if any(each.connected for each in drivers)}
    if missing := sorted(plan.pools.keys() - known):
        raise Broken("the drivers of the plan are registered", f"the kubelet has {sorted(known)}, and not {missing}")
    wanted = {driver: {each.name: len(each.taints) for each in pool.devices} for driver, pool in plan.pools.items()}
    seen = _slices(cluster)
    if seen != {driver: devices for driver, devices in wanted.items() if devices}:
        raise Broken("the slices are what the plan says", f"the server has {seen}, the plan {wanted}")
    if plan.labels:
        cluster.agent_labels()
    if (labels := _labels(cluster)) != dict(plan.labels) and not cluster.may_be_labelled:
        raise Broken("the labels are what the plan says", f"the Node has {labels}, the plan {dict(plan.labels)}")


def judge_end(cluster: WorldCluster, kubelet: Kubelet, cdi_dir: Path) -> str:
    """What is still missing until the server has what the file says; empty where nothing is."""
    prepared = recorded(kubelet.root)
    try:
        seen = _slices(cluster)
    except Broken as broken:
        return str(broken)
    listed = {id_ for pod in kubelet.pods() for resource, id_ in in_use(pod) if resource == GATE}
    missing = _unpublished(cluster, prepared, seen, listed)
    return missing if missing or kubelet.pods() else _left(prepared, seen, cdi_dir)


def _unpublished(
    cluster: WorldCluster, prepared: Claims, seen: Mapping[str, Mapping[str, int]], listed: set[str]
) -> str:
    """What slices and labels lack; `listed` is what pods have of what the device plugin listed."""
    for driver, names in _expected(cluster.model, prepared):
        wanted = names - listed
        if (devices := seen.get(driver, {}).keys()) != wanted:
            return f"{driver} publishes {sorted(devices)}, and should publish {sorted(wanted)}"
    labels = {name: value for name, value in _labels(cluster).items() if name.startswith("acme.dev/")}
    if labels != (sought := cluster.model.wanted_labels()) and not cluster.may_be_labelled:
        return f"the Node has the labels {labels}, and should have {sought}"
    return ""


def _left(prepared: Claims, seen: Mapping[str, Mapping[str, int]], cdi_dir: Path) -> str:
    """What is left of pods, when none is there."""
    if prepared:
        return f"the claims {sorted(prepared)} are prepared, and no pod is left"
    if strays := sorted(files(cdi_dir)):
        return f"the CDI files of the claims {strays} are left"
    tainted = sorted(name for devices in seen.values() for name, taints in devices.items() if taints)
    return f"{tainted} are tainted" if tainted else ""


def _expected(model: ClaimModel, prepared: Claims) -> Iterator[tuple[str, set[str]]]:
    """Each driver with what it shall publish: what the file says, and what claims have, with nothing that overlaps."""
    published = model.published()
    for driver in sorted(published.keys() | {driver for driver, _ in prepared}):
        named = published.get(driver, frozenset())
        held = {device for (one, _), devices in prepared.items() if one == driver for device in devices}
        taken = {piece for device in held - named for piece in pieces(driver, device)}
        yield driver, {each for each in named if not pieces(driver, each) & taken} | held


def _slices(cluster: WorldCluster) -> dict[str, dict[str, int]]:
    """By driver its devices, and how many taints each has. Raises Broken where a pool is not whole."""
    by_driver: dict[str, list[Mapping[str, Any]]] = {}
    for each in cluster.all("ResourceSlice"):
        by_driver.setdefault(each["spec"]["driver"], []).append(each["spec"])
    found = {}
    for driver, specs in by_driver.items():
        of = sorted((spec["pool"]["generation"], spec["pool"]["resourceSliceCount"]) for spec in specs)
        if set(of) != {(of[0][0], len(specs))}:
            raise Broken("all slices of a pool are of one generation", f"{driver}: generation and count are {of}")
        devices = {each["name"]: len(each.get("taints") or ()) for spec in specs for each in spec.get("devices") or ()}
        if devices:
            found[driver] = devices
    return found


def _labels(cluster: WorldCluster) -> dict[str, str]:
    (node,) = cluster.all("Node") or [{}]
    labels = node.get("metadata", {}).get("labels") or {}
    return {name: value for name, value in labels.items() if not name.startswith("kubernetes.io/")}
