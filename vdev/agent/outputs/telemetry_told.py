"""What a plan tells the sensors, and what they tell of a device: values, and functions of them."""

from collections.abc import Mapping, Sequence
from typing import Any

from ...core.decide import Plan
from ...core.model.device import Device, base_id
from ...core.model.telemetry import Range
from ...core.telemetry.sensor_readings import Throttle
from ...core.telemetry.sensors import LoadSituation, MeasuredDevice, User


def by_device(faults: "Mapping[tuple[str, str], Sequence[Any]]") -> dict[str, list[Any]]:
    """What faults do, by the id of a device or partition alone."""
    found: dict[str, list[Any]] = {}
    for (_, device), each in faults.items():
        found.setdefault(device, []).extend(each)
    return found


def users_of(plan: Plan, node: str) -> tuple[dict[str, list[User]], dict[str, list[Device]]]:
    """Who has each device, by its id, and which partitions claims have cut, by raw device."""
    found: dict[str, dict[User, None]] = {}
    claimed: dict[str, dict[str, Device]] = {}
    for key, pod in sorted((plan.holdings.holders or {}).items()):
        namespace, _, name = pod.partition("/")
        user = User(namespace, name, plan.holdings.containers.get(key, ""))
        found.setdefault(base_id(key[1]), {})[user] = None
    for use in plan.holdings.claimed:
        pool = plan.pools.get(use.driver)
        published = pool.by_name.get(use.device) if pool and use.pool == node else None
        if published is not None:
            namespace, _, name = use.pod.partition("/")
            user = User(namespace, name, use.container, use.claim, use.driver, use.pool, use.device)
            found.setdefault(published.device.id, {})[user] = None
            if published.device.is_partition:
                claimed.setdefault(published.group, {})[published.device.id] = published.device
    return {device: list(users) for device, users in found.items()}, {
        raw: list(devices.values()) for raw, devices in claimed.items()
    }


def load_of(plan: Plan, node: str, wishes: Mapping[str, Range]) -> LoadSituation:
    """What loads the devices of the node by this plan, and who has each device."""
    users, claimed = users_of(plan, node)
    return LoadSituation(
        devices=plan.devices,
        base=plan.base,
        loads=plan.loads,
        users=users,
        claimed=claimed,
        xids=by_device({key: [error.number for error in errors] for key, errors in plan.xids.items()}),
        sensors=by_device(plan.sensors),
        wishes=wishes,
        seed=plan.seed,
        node=node,
    )


def in_short(measured: MeasuredDevice) -> list[float | None]:
    """Load, temperature, power, and used and all of the memory; None for each of one that is lost."""
    own, whole = measured.own, measured.whole
    if whole.lost:
        return [None] * 5
    numbers = (own.gpu_percent, whole.temperature_c, whole.power_w, own.memory_used_mib, own.memory_total_mib)
    return [round(each) for each in numbers]


def document(measured: MeasuredDevice) -> dict[str, Any]:
    """All of it, for `vdev top`; keys are stable and documented."""
    fixture, own, whole = measured.fixture, measured.own, measured.whole
    part = f":{fixture.device.part}" if fixture.is_cut else ""
    return {
        "id": fixture.device.id,
        "entry": fixture.device.raw.entry,
        "resource": fixture.resource,
        "parent": fixture.device.raw.id if fixture.device.is_partition else "",
        "index": fixture.device.ordinal,
        "deviceIndex": f"{fixture.device.raw.index}{part}",
        "profile": fixture.device.profile,
        "health": "Healthy" if fixture.health.healthy else "Unhealthy",
        "reason": fixture.health.reason,
        "injected": fixture.health.injected,
        "lost": whole.lost,
        "xid": whole.xid,
        "load": round(own.gpu_percent, 1),
        "memoryUsedMiB": own.memory_used_mib,
        "memoryTotalMiB": own.memory_total_mib,
        "temperature": round(whole.temperature_c, 1),
        "power": round(whole.power_w, 1),
        "powerLimit": fixture.physics.peak_power,
        "energy": whole.energy_mj // 1000,
        "clock": whole.sm_clock_mhz,
        "throttled": bool(whole.throttle & ~Throttle.IDLE),
        "eccCorrected": whole.ecc_corrected,
        "eccUncorrected": whole.ecc_uncorrected,
        "holders": [
            {"namespace": each.namespace, "pod": each.pod, "container": each.container} for each in fixture.users
        ],
    }
