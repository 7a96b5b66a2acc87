"""Prepares a claim: one CDI specification for its allocated devices, with the same edits as from Allocate.

    <uid>-<device>[-<share>]   device nodes and mounts of a device
    <uid>_<request>            environment variables of a request, which list all of its devices
    <uid>                      the same for all requests together, if there are several

A runtime applies CDI devices one after the other, and the last value of a variable wins. So a variable that lists
devices cannot be an edit of each device. DNS labels contain no `_`, so the names are unique.
"""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ..errors import AllocationError
from ..model.device import Device, Mount, Slot, grouped
from ..model.entry import DeviceListStrategy
from ..model.quantity import QuantityError, parse_quantity
from ..model.spec import SharingKind, TimeSlicing
from ..planning import allocation, cdi
from ..planning.allocation import ContainerEdits, MpsShare
from ..planning.resources import Resource
from ..planning.sharing import mps_share
from .claim import AllocationResult, Claim, PreparedClaim, PreparedDevice
from .opaque_config import Decoded, MpsConfig, decoded_configs, ignored_kinds, settings_of
from .published_devices import PublishedPool, Record, record

_ALL = 100  # per cent
_MIB = 2**20
_MPS_PIPE, _MPS_SHM = "/tmp/nvidia-mps", "/dev/shm"  # in the container, as with NVIDIA's driver


@dataclass(frozen=True, slots=True, kw_only=True)
class _Member:
    """A device of the claim.

    `resource` generates its edits: all of them for the CDI specification, no matter which strategies the file
    configures, and without sharing.
    """

    result: AllocationResult
    device: Device
    resource: Resource
    sharing: TimeSlicing | None
    env: Mapping[str, str]
    mps: MpsConfig | None
    record: Record


def kind(driver: str) -> str:
    return f"k8s.{driver}/claim"


def file_name(driver: str, uid: str) -> str:
    """The file name of a claim's specification, in the form of the CDI library for transient specifications."""
    return f"k8s.{driver}-claim_{uid}.json"


def prepare(claim: Claim, pool: PublishedPool, node: str) -> PreparedClaim:
    """Prepare a claim on the node of the pool. Raises AllocationError with a sentence for the pod's Event."""
    driver = pool.driver
    configs = decoded_configs(claim, driver)
    members = [_member(configs, result, pool, node) for result in claim.results]
    by_request = grouped((each.result.main_request, each) for each in members)
    own_kind = kind(driver)
    requests = {name: _request_device(f"{claim.uid}_{name}", of) for name, of in by_request.items()}
    named: dict[str, cdi.CdiDevice] = {}
    devices = []
    for each in members:
        result = each.result
        name = "-".join(filter(None, (claim.uid, result.device, result.share_id)))
        named[name] = allocation.device_for_cdi(name, each.resource, each.device)
        parts = (named[name], requests[result.main_request])
        devices.append(
            PreparedDevice(
                pool=result.pool,
                device=result.device,
                requests=(result.main_request,),
                cdi=tuple(cdi.qualified(own_kind, part["name"]) for part in parts if part["containerEdits"]),
                share_id=result.share_id,
                admin=result.admin,
                id=each.device.id,
                raw=each.device.raw.id,
                slices=(each.device.slices.start, each.device.slices.stop),
                record=each.record,
                ignored=ignored_kinds(claim, driver, result),
            )
        )
    together = ""
    if len(requests) > 1:
        with contextlib.suppress(AllocationError):  # requests that cannot be used together still work one by one
            requests[""] = _request_device(claim.uid, members)
            together = cdi.qualified(own_kind, claim.uid) if requests[""]["containerEdits"] else ""
    return PreparedClaim(
        uid=claim.uid,
        namespace=claim.namespace,
        name=claim.name,
        devices=tuple(devices),
        document=cdi.document(
            own_kind, (each for each in (*named.values(), *requests.values()) if each["containerEdits"])
        ),
        together=together,
    )


def _member(configs: Decoded, result: AllocationResult, pool: PublishedPool, node: str) -> _Member:
    published = pool.by_name.get(result.device)
    what = f"device {result.device} of pool {result.pool}"
    if result.pool != node or published is None:  # a node's pool has the name of the node
        raise AllocationError(f"{what} cannot be prepared: node {node} publishes no such device")
    if published.lost:
        raise AllocationError(f"{what} cannot be prepared: it is only published for the claims that have it already")
    if published.device.raw.refused:
        raise AllocationError(f"{what} cannot be prepared: {published.device.raw.refused}")
    if not result.admin and bool(result.share_id) is not published.shared:
        was, now = ("as a share", "as a whole") if result.share_id else ("as a whole", "in shares")
        raise AllocationError(
            f"{what} was allocated {was} and is published {now} by now; delete the pod and its claim, so that new ones "
            "are allocated"
        )
    entry = pool.offered.entries[published.entry]
    env, mps = settings_of(configs, result, published.device)
    flags = pool.offered.flags.with_plugin(device_list_strategy=(DeviceListStrategy.ENVVAR,), pass_device_specs=True)
    return _Member(
        result=result,
        device=published.device,
        resource=replace(pool.offered, name=entry.resource, flags=flags, sharing=None),
        sharing=pool.offered.sharing,
        env=env,
        mps=mps,
        record=record(pool, published),
    )


def _request_device(name: str, members: Sequence[_Member]) -> cdi.CdiDevice:
    """A CDI device with the variables that list these devices, and with their common mounts."""
    whole = ContainerEdits()
    by_resource = grouped((each.resource.name, each) for each in members)
    for of in by_resource.values():
        slots = [Slot(each.device.id, each.device) for each in of]
        got = allocation.container_edits(of[0].resource, slots)
        for variable, value in got.env.items():
            before = whole.env.get(variable)
            whole.env[variable] = value if before in (None, value) else f"{before},{value}"
    positions = {each: number for number, each in enumerate(dict.fromkeys(each.device.id for each in members))}
    for of in by_resource.values():
        shares = [share for each in of if (share := _mps_share(each, positions)) is not None]
        allocation.mps_limits(whole, shares)
        if shares:
            whole.env["CUDA_MPS_PIPE_DIRECTORY"] = _MPS_PIPE
            whole.mounts |= {path: Mount("", path, tmpfs=True) for path in (_MPS_PIPE, _MPS_SHM)}
    own = dict(whole.env)
    for each in members:
        for variable, value in each.env.items():
            if variable in own:
                raise AllocationError(
                    f"the configuration sets {variable}, which the driver sets itself; remove it there"
                )
            whole.env[variable] = value
    return cdi.cdi_device(name, env=whole.env, mounts=whole.mounts.values())


def _mps_share(member: _Member, positions: dict[str, int]) -> MpsShare | None:
    """The MPS limits of a device, from the configuration or otherwise from its share; None without MPS."""
    position = positions[member.device.id]
    mps, sharing = member.mps, member.sharing
    if mps is not None:
        _check_devices(mps, positions)
        limits, others = mps.default_per_device_pinned_memory_limit, mps.default_pinned_device_memory_limit
        memory = limits.get(member.device.id, limits.get(str(position), others))
        return MpsShare(position, memory // _MIB, mps.default_active_thread_percentage)
    if not member.result.share_id or sharing is None or sharing.kind is not SharingKind.MPS:
        return None
    consumed = {name.rpartition("/")[2]: value for name, value in member.result.consumed.items()}
    count = _amount(consumed.get("slots", "1"))
    mib, percent = mps_share(member.device, count) if member.device.replicas else (0, 0)
    if "memory" in consumed:
        mib = _amount(consumed["memory"]) // _MIB
        percent = max(1, _ALL * mib * _MIB // member.device.memory) if member.device.memory else 0
    return MpsShare(position, mib, min(_ALL, percent))


def _check_devices(mps: MpsConfig, positions: dict[str, int]) -> None:
    known = {*positions, *map(str, positions.values())}
    for name in mps.default_per_device_pinned_memory_limit:
        if name not in known:
            raise AllocationError(
                f"the configuration limits the memory of {name!r}, which is neither the id of a device of the request "
                f"nor its position, 0 to {len(positions) - 1}"
            )


def _amount(text: str) -> int:
    try:
        return parse_quantity(text)
    except QuantityError as wrong:
        raise AllocationError(f"the claim was given a capacity that vdev cannot read: {wrong}") from wrong
