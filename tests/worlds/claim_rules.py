"""The invariants of claims, checked from outside: on the wire, on the disk, on the API server.

on each answer         prepared claims are in the checkpoint, and their CDI names resolve; unprepared claims are not
after each event       no device is prepared for two claims, or for a claim while a pod has it from the device plugin
after a quiet moment   CDI files match the checkpoint, and slices match the plan in force
at the end             slices match the file; without pods no claim is prepared and no CDI file is left
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.worlds.claim_model import DRIVER, GATE, ClaimModel, pieces
from tests.worlds.grpc_calls import Answering
from tests.worlds.invariants import Broken, cdi_names, in_use
from tests.worlds.world_cluster import WorldCluster
from vdev.pb import dra_v1_pb2 as pb
from vdev.sim import Kubelet, Phase, PodStatus

if TYPE_CHECKING:
    from tests.worlds.world import World
    from vdev.planning.plan import DesiredState

_PREFIX = f"k8s.{DRIVER}-claim_"
_UID = 36  # characters


def recorded(root: Path) -> dict[str, list[str]]:
    """The devices by the uid of their claim, from the driver's checkpoint below the kubelet's directory."""
    try:
        text = (root / "plugins" / DRIVER / "prepared-claims.json").read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return {}
    claims = json.loads(text.partition(b"\n")[0])["claims"]
    return {each["uid"]: [one["device"] for one in each["devices"]] for each in claims}


def files(cdi_dir: Path) -> set[str]:
    """The uids of the claims that have a CDI file."""
    return {path.stem.removeprefix(_PREFIX) for path in cdi_dir.glob(f"{_PREFIX}*.json")}


def judge_answer(call: Answering, message: bytes, world: "World") -> None:
    """Check the answer of a driver. Raises Broken."""
    if call.method.endswith("/NodePrepareResources"):
        known = recorded(world.kubelet.root)
        for uid, answer in _by_uid(pb.NodePrepareResourcesResponse.FromString(message).claims):
            if answer.error:
                world.tell(f"claim {uid} is not prepared: {answer.error}")
            elif uid not in known:
                raise Broken("what is prepared stands in the record", f"claim {uid} was prepared, and is not in it")
            else:
                _resolve({name for device in answer.devices for name in device.cdi_device_ids}, world)
    elif call.method.endswith("/NodeUnprepareResources"):
        known = recorded(world.kubelet.root)
        left = known.keys() | files(world.root / "cdi")
        for uid, gone in _by_uid(pb.NodeUnprepareResourcesResponse.FromString(message).claims):
            if gone.error:
                world.tell(f"claim {uid} is not unprepared: {gone.error}")
            elif uid in left:
                where = "in the record" if uid in known else "in a CDI file"
                raise Broken("what is unprepared is gone", f"claim {uid} was unprepared, and is still {where}")


def _by_uid(claims: Any) -> list[tuple[str, Any]]:
    """The entries of a message's map, sorted, because the order of the map differs between processes."""
    return sorted(claims.items(), key=lambda row: row[0])


def _resolve(names: set[str], world: "World") -> None:
    missing = sorted(names - cdi_names(world.root / "cdi"))
    if missing and not world.excuses.has("spoilt", now=world.now):
        raise Broken("CDI names of a prepared claim resolve", f"no file has {missing}")


def judge_devices(root: Path, pods: Iterable[PodStatus] = ()) -> None:
    """Check the prepared claims against each other and against the device plugin's pods. Raises Broken."""
    users: dict[str, str] = {id_: pod.name for pod in pods for resource, id_ in in_use(pod) if resource == GATE}
    for uid, devices in recorded(root).items():
        for piece in [piece for device in devices for piece in pieces(device)]:
            other = users.setdefault(piece, uid)
            if other != uid:
                raise Broken("no device is prepared for two", f"{piece} is for {other} and for claim {uid}")


def judge_files(world: "World", pods: Iterable[PodStatus]) -> None:
    """After a quiet moment, check that exactly the prepared claims have a CDI file. Raises Broken."""
    known, there = recorded(world.kubelet.root).keys(), files(world.root / "cdi")
    if known != there and not world.excuses.has("spoilt", now=world.now):
        raise Broken("CDI files are those of prepared claims", f"prepared: {sorted(known)}, files: {sorted(there)}")
    for pod in pods:
        if pod.phase is Phase.RUNNING and not pod.terminating and (missing := sorted(_uids(pod) - known)):
            raise Broken("the claims of a running pod are prepared", f"{missing} of {pod.name} are not in the record")


def _uids(pod: PodStatus) -> set[str]:
    """The uids of the pod's claims, by the names of their CDI devices."""
    names = (name for container in pod.containers for name in container.edits.cdi_devices)
    return {name.partition("=")[2][:_UID] for name in names if "claim=" in name}


def judge_published(cluster: WorldCluster, kubelet: Kubelet, plan: "DesiredState") -> None:
    """After a quiet moment, check that drivers and slices match the plan. Raises Broken."""
    known = {name for name, drivers in kubelet.drivers().items() if any(each.connected for each in drivers)}
    if missing := sorted(plan.pools.keys() - known):
        raise Broken("the drivers of the plan are registered", f"the kubelet has {sorted(known)}, and not {missing}")
    wanted = {each.name: len(each.taints) for pool in plan.pools.values() for each in pool.devices}
    if (seen := _slices(cluster)) != wanted:
        raise Broken("the slices are what the plan says", f"the server has {seen}, the plan {wanted}")


def judge_end(cluster: WorldCluster, model: ClaimModel, kubelet: Kubelet, cdi_dir: Path) -> str:
    """The difference between the server's slices and the file; empty if they match."""
    prepared = recorded(kubelet.root)
    try:
        seen = _slices(cluster)
    except Broken as broken:
        return str(broken)
    listed = {id_ for pod in kubelet.pods() for resource, id_ in in_use(pod) if resource == GATE}
    wanted = _expected(model, prepared) - listed
    if seen.keys() != wanted:
        return f"{sorted(seen)} are published, and {sorted(wanted)} should be"
    return "" if kubelet.pods() else _left(prepared, seen, cdi_dir)


def _expected(model: ClaimModel, prepared: Mapping[str, list[str]]) -> set[str]:
    """The devices of the file and of claims, without those that overlap a claimed device."""
    named = model.published()
    held = {device for devices in prepared.values() for device in devices}
    taken = {piece for device in held - named for piece in pieces(device)}
    return {each for each in named if not pieces(each) & taken} | held


def _left(prepared: Mapping[str, list[str]], seen: Mapping[str, int], cdi_dir: Path) -> str:
    """The claims, CDI files and taints that are left without pods; empty if there are none."""
    if prepared:
        return f"the claims {sorted(prepared)} are prepared, and no pod is left"
    if strays := sorted(files(cdi_dir)):
        return f"the CDI files of the claims {strays} are left"
    tainted = sorted(name for name, taints in seen.items() if taints)
    return f"{tainted} are tainted" if tainted else ""


def _slices(cluster: WorldCluster) -> dict[str, int]:
    """The published devices with the number of their taints. Raises Broken if the pool is incomplete."""
    specs = [each["spec"] for each in cluster.all("ResourceSlice")]
    of = sorted((spec["pool"]["generation"], spec["pool"]["resourceSliceCount"]) for spec in specs)
    if of and set(of) != {(of[0][0], len(specs))}:
        raise Broken("all slices of a pool are of one generation", f"generation and count are {of}")
    return {each["name"]: len(each.get("taints") or ()) for spec in specs for each in spec.get("devices") or ()}
