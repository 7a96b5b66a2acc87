"""All that a tool is told of one device at one moment."""

import hashlib
import uuid
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from ..dra.attributes import DRIVER_VERSION, FIRST_RENDER, card
from ..model.device import Device, bus_id
from ..model.entry import EntrySpec
from ..model.geometry import PIN, instance_id
from ..model.sources import VirtualSource
from ..model.telemetry import PhysicsModel, SmiTool
from ..planning.plan import Plan
from ..planning.resources import numbers
from .amd import GTT, NAMESPACE, SPEEDS, serial_number
from .dcgm import DRIVER
from .simulation import DeviceConditions, Part, SensorReading, SimulatedDevice, Throttle

MIB = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A device as a tool shows it.

    `whole` are the sensors of the device that it is or belongs to, `part` those of the partition. `minor` counts the
    devices of the maker on the node, of which there are `count`. `lost`: it cannot be reached any more. `holders` is
    how many containers have it. `peers` are the numbers of links to others, by device id. `slices` are the memory
    slices of the whole device, 0 where it cannot be cut. `wall` is the time, in seconds since the epoch.
    """

    device: Device
    physics: PhysicsModel
    whole: SensorReading
    part: SensorReading | None = None
    minor: int = 0
    count: int = 1
    lost: bool = False
    holders: int = 0
    peers: Mapping[str, int] = field(default_factory=dict)
    slices: int = 0
    wall: float = 0.0

    @property
    def attributes(self) -> Mapping[str, str]:
        """What the file or the preset says of the device as a whole."""
        return self.device.raw.attributes

    @property
    def own(self) -> SensorReading:
        """The sensors of what the container has."""
        return self.part or self.whole

    @property
    def process_mib(self) -> int:
        """The memory that the program of one container has, in MiB."""
        return self.own.memory_used_mib // self.holders if self.holders else 0

    @property
    def written(self) -> datetime:
        return datetime.fromtimestamp(self.wall, UTC)


def assignments(values: Mapping[str, object]) -> str:
    """The values as shell assignments, one a line, whatever they hold."""
    return "".join(f"{key}={quoted(str(value))}\n" for key, value in values.items())


def quoted(text: str) -> str:
    """The text as one word of a shell; control characters, which no line has, become blanks."""
    plain = text if text.isprintable() else "".join(each if each.isprintable() else " " for each in text)
    return "'" + plain.replace("'", "'\\''") + "'"


CUDA = "13.0"
"""Of devices whose attribute cudaVersion says nothing."""

_LIMITS_RELATIVE = ("ada-lovelace", "hopper", "blackwell")  # tell how far they are from their highest temperature
_NEEDS_RESET = frozenset({46, 48, 62, 64, 74, 79, 95, 110, 119, 120, 136, 140, 143, 154, 155, 158})
"""Xids whose resolution in NVIDIA's catalog is to reset the GPU."""
_REMAP_PENDING = 63  # the Xid of a row that is remapped at the next reset
_VIDEO = 0.78  # of the graphics clock is that of the video engines
_NONE = "N/A"


def nvidia_data(shown: Shown) -> str:
    """The contents of the file `nvidia`."""
    return assignments({**_identity(shown), **_sensors(shown), **_errors(shown), **_partition(shown)})


def _identity(shown: Shown) -> Mapping[str, object]:
    known, raw, physics = shown.attributes, shown.device.raw, shown.physics
    address = bus_id(raw, shown.minor)
    domain, bus, place = address.split(":")
    digest = hashlib.sha256(raw.id.encode()).hexdigest()
    cluster = known.get("fabricClusterUuid", "")
    return {
        "written": shown.written.strftime("%a %b %e %H:%M:%S %Y"),
        "written_csv": shown.written.strftime("%Y/%m/%d %H:%M:%S.%f")[:-3],
        "driver": known.get("driverVersion", DRIVER),
        "cuda": known.get("cudaVersion", CUDA),
        "lost": "GPU is lost" if shown.lost else "",
        "name": known.get("model") or known.get("product") or raw.entry,
        "brand": known.get("brand", "Tesla" if known.get("model", "").startswith("Tesla") else "NVIDIA"),
        "architecture": known.get("architecture", _NONE).replace("-", " ").title() or _NONE,
        "compute_cap": known.get("computeCapability", _NONE),
        "uuid": raw.id,
        "serial": str(int(digest[:16], 16))[:13].ljust(13, "0"),
        "pdi": f"0x{digest[16:32]}",
        "minor": shown.minor,
        "bus_id": f"0000{address}".upper(),
        "pci_domain": domain.upper(),
        "pci_bus": bus.upper(),
        "pci_device": place.partition(".")[0].upper(),
        "pci_id": known.get("pciDeviceId", _NONE),
        "pci_sub_id": known.get("pciSubsystemId", _NONE),
        "vbios": known.get("vbiosVersion", _NONE),
        "board_id": f"0x{int(bus, 16) * 256:x}",
        "board_part": known.get("boardPartNumber", _NONE),
        "gpu_part": known.get("gpuPartNumber", _NONE),
        "inforom": known.get("inforomVersion", _NONE),
        "inforom_ecc": _NONE,
        "numa": raw.numa[0] if raw.numa else "",
        "persistence": "Enabled",
        "mig": _mig(shown),
        "ecc": "Enabled",
        "link_gen": physics.pcie_generation,
        "link_gen_max": physics.pcie_generation,
        "link_width": physics.pcie_lanes,
        "link_width_max": physics.pcie_lanes,
        "links": physics.links,
        "link_speed": f"{physics.link_speed / 2:.3f}",
        "nvlinks": " ".join(f"{peer}={count}" for peer, count in shown.peers.items()),
        "fabric_state": "Completed" if cluster else _NONE,
        "fabric_status": "Success" if cluster else _NONE,
        "fabric_clique": known.get("fabricCliqueId", "0") if cluster else _NONE,
        "fabric_cluster": cluster or _NONE,
    }


def _mig(shown: Shown) -> str:
    if not shown.slices:
        return _NONE
    return "Enabled" if shown.device.is_partition else "Disabled"


def _sensors(shown: Shown) -> Mapping[str, object]:
    now, physics = shown.whole, shown.physics
    whole = _mig(shown) != "Enabled"  # instances share the engines, and what each does is told nowhere

    def percent(value: float) -> object:
        return round(value) if whole else _NONE

    relative = shown.attributes.get("architecture") in _LIMITS_RELATIVE
    idle = bool(now.throttle & Throttle.IDLE)
    rests = idle and now.memory_clock_mhz < physics.peak_memory_clock / 2
    hottest, temperature = round(physics.throttle_temperature), round(now.temperature_c)
    memory_temperature = now.memory_temperature_c
    return {
        "total": now.memory_total_mib,
        "reserved": now.memory_reserved_mib,
        "used": now.memory_used_mib,
        "free": now.memory_free_mib,
        "bar1": _bar1(shown),
        "util": percent(now.gpu_percent),
        "mem_util": percent(now.copy_percent),
        "enc_util": percent(now.encoder_percent),
        "dec_util": percent(now.decoder_percent),
        "idle_util": percent(0),
        "process_memory": shown.process_mib,
        "temp": temperature,
        "temp_margin": hottest - temperature if relative else _NONE,
        "temp_shutdown": round(physics.shutdown_temperature),
        "temp_slowdown": round(physics.slowdown_temperature),
        "temp_max": hottest,
        "mem_temp": _NONE if memory_temperature is None else round(memory_temperature),
        "power": f"{now.power_w:.2f}",
        "power_limit": f"{physics.peak_power:.2f}",
        "power_least": _NONE,
        "fan": _NONE,
        "pstate": "P8" if rests else "P0",
        "clock": now.sm_clock_mhz,
        "mem_clock": now.memory_clock_mhz,
        "video_clock": round(now.sm_clock_mhz * _VIDEO),
        "max_clock": round(physics.peak_clock),
        "max_mem_clock": round(physics.peak_memory_clock),
        "max_video_clock": round(physics.peak_clock * _VIDEO),
        "why_mask": f"0x{int(now.throttle):016X}",
        "why_idle": _active(idle),
        "why_power": _active(False),
        "why_hw": _active(bool(now.throttle & Throttle.HARDWARE)),
        "why_hot": _active(bool(now.throttle & Throttle.SOFTWARE_THERMAL)),
        "pcie_tx": round(now.pcie_tx_bytes_s / 1000),
        "pcie_rx": round(now.pcie_rx_bytes_s / 1000),
        "replays": now.pcie_replays,
    }


def _active(is_so: bool) -> str:
    return "Active" if is_so else "Not Active"


def _bar1(shown: Shown) -> int:
    """The smallest power of two that maps all memory, in MiB."""
    return 1 << max(8, (shown.whole.memory_total_mib - 1).bit_length())


def _errors(shown: Shown) -> Mapping[str, object]:
    now = shown.whole
    return {
        "dram_corrected": now.ecc_corrected,
        "dram_uncorrected": now.ecc_uncorrected,
        "sram_corrected": 0,
        "sram_uncorrected": 0,
        "sram_parity": 0,
        "sram_exceeded": "No",
        "corrected": now.ecc_corrected,
        "uncorrected": now.ecc_uncorrected,
        "remapped_corrected": 0,
        "remapped_uncorrected": now.remapped_rows,
        "remapped_pending": "Yes" if now.xid == _REMAP_PENDING else "No",
        "remapped_failed": "Yes" if now.remap_failed else "No",
        "recovery": "Reset" if now.xid in _NEEDS_RESET else "None",
    }


def _partition(shown: Shown) -> Mapping[str, object]:
    device, part = shown.device, shown.part
    if part is None:
        return {"mig_uuid": ""}
    told, size = device.attributes, max(1, len(device.slices))
    return {
        "mig_uuid": device.id,
        "mig_profile": device.profile.partition(PIN)[0],
        "mig_gi": instance_id(shown.slices, device.slices),
        "mig_ci": 0,
        "mig_sms": told.get("multiprocessors", _NONE),
        "mig_ce": told.get("engines.copy", 0),
        "mig_enc": told.get("engines.encoder", 0),
        "mig_dec": told.get("engines.decoder", 0),
        "mig_ofa": told.get("engines.ofa", 0),
        "mig_jpg": told.get("engines.jpeg", 0),
        "mig_total": part.memory_total_mib,
        "mig_reserved": part.memory_reserved_mib,
        "mig_used": part.memory_used_mib,
        "mig_free": part.memory_free_mib,
        "mig_bar1": (_bar1(shown) - shown.whole.memory_total_mib) * size // (shown.slices or 1),
        "mig_uncorrected": 0,
    }


AMD_DRIVER, ROCM, TOOL = DRIVER_VERSION, "7.0.2", "26.0.2+39589fda"
"""Of devices whose attributes driverVersion and rocmVersion say nothing."""
_GFX = {"0x74a1": "gfx942", "0x74a5": "gfx942"}


def amd_data(shown: Shown) -> str:
    """The contents of the file `amd`."""
    known, device, physics, whole, own = shown.attributes, shown.device, shown.physics, shown.whole, shown.own
    raw = device.raw
    digest = hashlib.sha256(device.id.encode()).hexdigest()
    compute, memory = _modes(shown)
    model = known.get("pciDeviceId", "0x0000").lower()
    address = bus_id(raw, shown.minor)
    speed = SPEEDS.get(physics.pcie_generation, 32)
    total = own.memory_total_mib
    number = card(device, shown.minor, shown.count, max(1, shown.slices))
    values: Mapping[str, object] = {
        "written": shown.written.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "tool": TOOL,
        "rocm": known.get("rocmVersion", ROCM),
        "driver": known.get("driverVersion", AMD_DRIVER),
        "lost": "GPU is lost" if shown.lost else "",
        "name": known.get("model") or known.get("product") or raw.entry,
        "bdf": f"{address[:-1]}{_partition_id(shown) if device.is_partition else 0}",
        "uuid": str(uuid.uuid5(NAMESPACE, device.id)),
        "hip_uuid": f"GPU-{digest[:16]}",
        "kfd_id": int(digest[16:20], 16),
        "node_id": number + 2,
        "card": number,
        "oam": shown.minor,
        "render": FIRST_RENDER + number,
        "partition_id": _partition_id(shown),
        "compute_partition": compute,
        "memory_partition": memory,
        "serial": known.get("serialNumber", serial_number(raw.id)),
        "model_number": known.get("modelNumber", "N/A"),
        "device_id": model,
        "vbios": known.get("vbiosVersion", "N/A"),
        "gfx_version": known.get("gfxVersion", _GFX.get(model, "N/A")),
        "compute_units": device.attributes.get("computeUnits", "N/A"),
        "numa": raw.numa[0] if raw.numa else "",
        "pcie_width": physics.pcie_lanes,
        "pcie_speed": speed,
        "pcie_gen": physics.pcie_generation,
        "pcie_bandwidth": round((whole.pcie_rx_bytes_s + whole.pcie_tx_bytes_s) * 8 / 1e6),
        "replays": whole.pcie_replays,
        "gfx": round(own.gpu_percent),
        "umc": round(own.copy_percent),
        "power": round(whole.power_w),
        "power_cap": round(physics.peak_power),
        "energy": whole.energy_mj // 1000,
        "throttle": "THROTTLED" if whole.throttle & ~Throttle.IDLE else "UNTHROTTLED",
        "temp": round(whole.temperature_c),
        "temp_edge": round(whole.temperature_c),
        "mem_temp": "N/A" if whole.memory_temperature_c is None else round(whole.memory_temperature_c),
        "temp_slowdown": round(physics.throttle_temperature),
        "temp_shutdown": round(physics.shutdown_temperature),
        "clock": whole.sm_clock_mhz,
        "min_clock": round(physics.idle_clock),
        "max_clock": round(physics.peak_clock),
        "mem_clock": whole.memory_clock_mhz,
        "min_mem_clock": round(physics.idle_memory_clock),
        "max_mem_clock": round(physics.peak_memory_clock),
        "vram_total": total,
        "vram_used": own.memory_used_mib + own.memory_reserved_mib,
        "vram_free": own.memory_free_mib,
        "gtt": GTT,
        "corrected": whole.ecc_corrected,
        "uncorrected": whole.ecc_uncorrected,
        "process_memory": shown.process_mib,
        "process_memory_bytes": shown.process_mib * MIB,
        "cu_occupancy": round(own.gpu_percent),
    }
    return assignments(values)


def _modes(shown: Shown) -> tuple[str, str]:
    """The compute and memory modes, such as CPX and NPS4: the profile's name says both."""
    profile = shown.device.profile.partition(PIN)[0]
    if not profile:
        return ("SPX", "NPS1") if shown.slices else ("N/A", "N/A")
    compute, _, memory = profile.upper().partition("_")
    return compute, memory or "NPS1"


def _partition_id(shown: Shown) -> int:
    device = shown.device
    return device.slices.start // max(1, len(device.slices)) if device.is_partition else 0


_LINK = 100  # the score of one NVLink between two devices


@dataclass(frozen=True, slots=True, kw_only=True)
class Equipped:
    """A device that containers get with a tool; `Shown` says what the fields are."""

    tool: SmiTool
    device: Device
    physics: PhysicsModel
    minor: int
    count: int
    peers: Mapping[str, int] = field(default_factory=dict)
    slices: int = 0

    def unloaded(self, now: float) -> tuple[SensorReading, SensorReading]:
        """The sensors of the whole device and its own, before anything is known of them."""
        raw = self.device.raw
        conditions = DeviceConditions(physics=self.physics, memory=raw.memory, parts=(Part(id=raw.id),))
        whole = SimulatedDevice(conditions, now).read(now)
        if not self.device.is_partition:
            return whole, whole
        total = self.device.memory // MIB
        return whole, replace(whole, memory_total_mib=total, memory_free_mib=total, memory_reserved_mib=0)

    def data(self, whole: SensorReading, own: SensorReading, *, holders: int, lost: bool, wall: float) -> str:
        """What the tool's file says at one moment."""
        shown = Shown(
            device=self.device,
            physics=self.physics,
            whole=whole,
            part=own if self.device.is_partition else None,
            minor=self.minor,
            count=self.count,
            lost=lost or whole.lost,
            holders=holders,
            peers=self.peers,
            slices=self.slices,
            wall=wall,
        )
        return nvidia_data(shown) if self.tool is SmiTool.NVIDIA else amd_data(shown)


def equipped(plan: Plan) -> dict[str, Equipped]:
    """The devices with a tool, by id."""
    found: dict[str, tuple[EntrySpec, Device]] = {}
    for resource in plan.base.everything.values():
        for device in resource.by_device.values():
            if device.raw.tools:
                found.setdefault(device.id, (resource.entries[device.raw.entry], device))
    if not found:
        return {}
    tools = {device.raw.id: entry.smi or SmiTool.NVIDIA for entry, device in found.values()}
    links = _links(found.values())
    minors, counts = numbers(plan.base), Counter(tools.values())
    return {
        each: Equipped(
            tool=tools[device.raw.id],
            device=device,
            physics=plan.loads[entry.name].physics if entry.name in plan.loads else PhysicsModel(),
            minor=minors[device.raw.id],
            count=counts[tools[device.raw.id]],
            peers=links.get(device.raw.id, {}),
            slices=entry.geometry.slices if entry.geometry is not None else 0,
        )
        for each, (entry, device) in found.items()
    }


def held(plan: Plan) -> frozenset[str]:
    """The devices that pods have, by id: of device plugins, and by claims."""
    uses = [each for each in plan.holdings.claimed if each.driver in plan.pools]
    claimed = (plan.pools[use.driver].by_name.get(use.device) for use in uses)
    return plan.held | {each.device.id for each in claimed if each is not None}


def published(plan: Plan) -> frozenset[str]:
    """The devices that claims can have, or have though the configuration lost them, by id."""
    return frozenset(each.device.id for pool in plan.pools.values() for each in pool.by_name.values())


def _links(found: Collection[tuple[EntrySpec, Device]]) -> Mapping[str, Mapping[str, int]]:
    """How many links lead from each raw device to which others, by their ids."""
    entries = {entry.name: entry for entry, _ in found}
    ids = {(device.raw.entry, device.raw.index): device.raw.id for _, device in found}
    links: dict[str, dict[str, int]] = {}
    for name, entry in entries.items():
        pairs = entry.source.links if isinstance(entry.source, VirtualSource) else {}
        for (one, other), score in pairs.items():
            ends = ids.get((name, one)), ids.get((name, other))
            if one != other and score >= _LINK and ends[0] is not None and ends[1] is not None:
                links.setdefault(ends[0], {})[ends[1]] = score // _LINK
                links.setdefault(ends[1], {})[ends[0]] = score // _LINK
    return links
