"""Opaque configuration of claims and device classes: our DeviceConfig, and NVIDIA's GpuConfig and MigDeviceConfig.

    apiVersion: vdev.dev/v1alpha1
    kind: DeviceConfig
    env: {NAME: value}                    # more variables for the containers
    sharing: {strategy: MPS, mpsConfig: {defaultActiveThreadPercentage: 50, defaultPinnedDeviceMemoryLimit: 10Gi}}

    apiVersion: resource.nvidia.com/v1beta1
    kind: GpuConfig                       # or MigDeviceConfig; `sharing` as above

It is decoded strictly, as NVIDIA's driver does it: a misspelt key would otherwise be a setting that is silently not
there. Other kinds are ignored, unless the driver's name is that of a known maker, which refuses them. Of several that
are for a request the last one holds as a whole; those of the classes come first.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from ..errors import ClaimRefused
from ..model.device import EMPTY, Device
from ..model.names import env_name_problem
from ..model.problem import did_you_mean
from ..model.quantity import QuantityError, parse_quantity
from .claim import AllocationResult, Claim, OpaqueConfig

OURS = "vdev.dev/v1alpha1"
NVIDIAS = "resource.nvidia.com/v1beta1"
_GROUPS = frozenset(version.partition("/")[0] for version in (OURS, NVIDIAS))
_MAKERS_DRIVERS = frozenset({"gpu.nvidia.com", "gpu.amd.com"})
_STRATEGIES = ("TimeSlicing", "MPS")
_INTERVALS = ("Default", "Short", "Medium", "Long")
_ALL = 100  # per cent
_LONGEST_KIND = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Mps:
    """Limits of each client of a device under MPS: per cent of the threads, and memory in bytes (0: no limit).

    `per_device` are other limits of memory, by the device's id or its position among the devices of the request.
    """

    threads: int = 0
    memory: int = 0
    per_device: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SharingSettings:
    """What configuration comes to for a device. The interval of time-slicing shows in no container."""

    env: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    mps: Mps | None = None


class _Kind(Enum):
    """What a configuration is for."""

    ANY = (OURS, "DeviceConfig")
    WHOLE = (NVIDIAS, "GpuConfig")
    PARTITION = (NVIDIAS, "MigDeviceConfig")

    def fits(self, device: Device) -> bool:
        return self is _Kind.ANY or (self is _Kind.PARTITION) is device.is_partition


def is_foreign(config: OpaqueConfig, driver: str) -> bool:
    """Whether it is of a kind that the driver ignores."""
    given = config.parameters
    if driver in _MAKERS_DRIVERS or not isinstance(given, Mapping):
        return False
    return str(given.get("apiVersion")).partition("/")[0] not in _GROUPS


def kind_of(config: OpaqueConfig) -> str:
    """Its kind, for people, short enough for the status of a claim."""
    given = config.parameters if isinstance(config.parameters, Mapping) else {}
    written = (given.get("apiVersion"), given.get("kind"))
    return " ".join(str(each) for each in written if each)[:_LONGEST_KIND] or "an object without apiVersion and kind"


def settings_of(claim: Claim, result: AllocationResult, device: Device) -> SharingSettings:
    """The settings of an allocated device. Raises ClaimRefused for configuration that cannot be understood or used."""
    for config in reversed([each for each in claim.configs if each.covers(result)]):
        where = f"the configuration of {config.where}"
        kind, settings = _decoded(config, where)
        if kind.fits(device):
            return settings
        if config.requests:
            what = "a partition" if device.is_partition else "a whole device"
            raise ClaimRefused(f"{where}: {kind.value[1]} is not for request {result.request}, which got {what}")
    return SharingSettings()


def check_all(claim: Claim) -> None:
    """Raise ClaimRefused where any configuration is wrong, be it one that another one overrules."""
    for config in claim.configs:
        _decoded(config, f"the configuration of {config.where}")


def _decoded(config: OpaqueConfig, where: str) -> tuple[_Kind, SharingSettings]:
    given = config.parameters
    if not isinstance(given, Mapping):
        raise ClaimRefused(f"{where} is no object; it needs apiVersion and kind, such as {OURS} DeviceConfig")
    written = (given.get("apiVersion"), given.get("kind"))
    kind = next((each for each in _Kind if each.value == written), None)
    if kind is None:
        known = ", ".join(" ".join(each.value) for each in _Kind)
        raise ClaimRefused(f"{where} is of an unknown kind, {written[0]} {written[1]}; known are {known}")
    own = {"env", "sharing"} if kind is _Kind.ANY else {"sharing"}
    _check_keys(where, given, {"apiVersion", "kind", *own})
    env = {} if given.get("env") is None else _env(f"{where}: env", given["env"])
    if given.get("sharing") is None:
        return kind, SharingSettings(env=env)
    sliced = kind is not _Kind.PARTITION
    return kind, SharingSettings(env=env, mps=_sharing(f"{where}: sharing", given["sharing"], sliced=sliced))


def _env(where: str, given: object) -> Mapping[str, str]:
    for name, value in _object(where, given).items():
        if wrong := env_name_problem(str(name)):
            raise ClaimRefused(f"{where}: {wrong}")
        if not isinstance(value, str) or "\0" in value:
            raise ClaimRefused(f"{where}.{name}: {value!r} is no text; put it in quotes")
    return dict(_object(where, given))


def _sharing(where: str, given: object, *, sliced: bool) -> Mps | None:
    sharing = _object(where, given)
    _check_keys(where, sharing, {"strategy", "mpsConfig", *(("timeSlicingConfig",) if sliced else ())})
    strategy = _one_of(f"{where}.strategy", sharing.get("strategy"), _STRATEGIES)
    slicing, mps = sharing.get("timeSlicingConfig"), sharing.get("mpsConfig")
    unused = "timeSlicingConfig" if strategy == "MPS" and slicing is not None else ""
    unused = unused or ("mpsConfig" if strategy != "MPS" and mps is not None else "")
    if unused:
        raise ClaimRefused(f"{where}: {unused} is not for the strategy {strategy}; remove one of them")
    if slicing is not None:
        interval = _object(f"{where}.timeSlicingConfig", slicing)
        _check_keys(f"{where}.timeSlicingConfig", interval, {"interval"})
        _one_of(f"{where}.timeSlicingConfig.interval", interval.get("interval", "Default"), _INTERVALS)
    return _mps(f"{where}.mpsConfig", mps or {}) if strategy == "MPS" else None


def _mps(where: str, given: object) -> Mps:
    mps = _object(where, given)
    threads, memory, limits = (
        "defaultActiveThreadPercentage",
        "defaultPinnedDeviceMemoryLimit",
        "defaultPerDevicePinnedMemoryLimit",
    )
    _check_keys(where, mps, {threads, memory, limits, "multiUser"})
    if type(mps.get("multiUser", False)) is not bool:
        raise ClaimRefused(f"{where}.multiUser: {mps['multiUser']!r} is neither true nor false")
    per_cent = mps.get(threads)
    if per_cent is not None and (type(per_cent) is not int or not 0 <= per_cent <= _ALL):
        raise ClaimRefused(f"{where}.{threads}: {per_cent!r} is no number of per cent from 0 to {_ALL}")
    each = _object(f"{where}.{limits}", mps.get(limits) or {})
    return Mps(
        threads=per_cent or 0,
        memory=_amount(f"{where}.{memory}", mps[memory]) if mps.get(memory) is not None else 0,
        per_device={str(name): _amount(f"{where}.{limits}.{name}", value) for name, value in each.items()},
    )


def _amount(where: str, value: object) -> int:
    try:
        amount = parse_quantity(value) if isinstance(value, str | int) else 0
    except QuantityError as wrong:
        raise ClaimRefused(f"{where}: {wrong}") from wrong
    if amount < 2**20:  # what MPS can be told
        raise ClaimRefused(f"{where}: {value!r} is no amount of at least 1Mi")
    return amount


def _one_of(where: str, value: object, allowed: Collection[str]) -> str:
    if not isinstance(value, str) or value not in allowed:
        hint = did_you_mean(value, allowed) if isinstance(value, str) else ""
        said = "is missing" if value is None else f"{value!r} is unknown"
        raise ClaimRefused(f"{where} {said}; use one of {', '.join(allowed)}" + (f"; {hint}" if hint else ""))
    return value


def _object(where: str, value: object) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ClaimRefused(f"{where}: {value!r} is no object")
    return value


def _check_keys(where: str, given: Mapping[str, Any], allowed: Collection[str]) -> None:
    for key in given:
        if key not in allowed:
            hint = did_you_mean(str(key), allowed) or f"allowed are {', '.join(sorted(allowed))}"
            raise ClaimRefused(f"{where}: unknown key {str(key)!r}; {hint}")
