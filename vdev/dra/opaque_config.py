"""Opaque configuration of claims and device classes: vdev's DeviceConfig, NVIDIA's GpuConfig and MigDeviceConfig.

    apiVersion: vdev.dev/v1alpha1
    kind: DeviceConfig
    env: {NAME: value}                    # additional variables for the containers
    sharing: {strategy: MPS, mpsConfig: {defaultActiveThreadPercentage: 50, defaultPinnedDeviceMemoryLimit: 10Gi}}

    apiVersion: resource.nvidia.com/v1beta1
    kind: GpuConfig                       # or MigDeviceConfig; `sharing` as above

It is decoded strictly, as by NVIDIA's driver, so a misspelled key is an error. Other kinds are ignored, except if the
driver has the name of a known vendor's driver, which refuses them. If a request has several configurations, only the
last one counts; configurations of classes come first.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, Self

from pydantic import BeforeValidator, ValidationError, model_validator

from ..errors import AllocationError
from ..model.device import EMPTY, Device
from ..model.scalars import Amount, EnvName, Flag, Text, Whole, between, one_of
from ..model.section import Section, refuse
from .claim import AllocationResult, Claim, OpaqueConfig

OURS = "vdev.dev/v1alpha1"
NVIDIAS = "resource.nvidia.com/v1beta1"
_GROUPS = frozenset(version.partition("/")[0] for version in (OURS, NVIDIAS))
_MAKERS_DRIVERS = frozenset({"gpu.nvidia.com", "gpu.amd.com"})

_Limit = Annotated[Amount, between(2**20)]  # the MPS variables have whole MiB


class MpsConfig(Section):
    """Limits for each client of a device under MPS; 0: no limit.

    The keys of the limits per device are device ids, or positions among the devices of the request.
    """

    default_active_thread_percentage: Annotated[Whole, between(0, 100)] = 0
    default_pinned_device_memory_limit: _Limit = 0
    default_per_device_pinned_memory_limit: Mapping[str, _Limit] = {}
    multi_user: Flag = False


class _TimeSlicingConfig(Section):
    """Accepted, but without effect on containers."""

    interval: Annotated[str, BeforeValidator(lambda given: one_of(given, ("Default", "Short", "Medium", "Long")))] = ""


class _PartitionSharing(Section):
    strategy: Annotated[str, BeforeValidator(lambda given: one_of(given, ("TimeSlicing", "MPS")))]
    mps_config: MpsConfig = MpsConfig()

    @model_validator(mode="after")
    def _is_of_its_strategy(self) -> Self:
        other = "time_slicing_config" if self.strategy == "MPS" else "mps_config"
        if other in self.model_fields_set:
            key = type(self).model_fields[other].alias
            refuse(f"{key} is not for the strategy {self.strategy}", "remove one of them")
        return self


class _Sharing(_PartitionSharing):
    time_slicing_config: _TimeSlicingConfig | None = None


class _MigDeviceConfig(Section):
    """Configuration for partitions, for whole devices, or for both (`partitions` is None)."""

    partitions: ClassVar[bool | None] = True
    api_version: str
    kind: str
    sharing: _PartitionSharing | None = None


class _GpuConfig(_MigDeviceConfig):
    partitions: ClassVar[bool | None] = False
    sharing: _Sharing | None = None


class _DeviceConfig(_GpuConfig):
    partitions: ClassVar[bool | None] = None
    env: Mapping[EnvName, Text] = {}


_KINDS: Mapping[str, type[_MigDeviceConfig]] = {
    f"{OURS} DeviceConfig": _DeviceConfig,
    f"{NVIDIAS} GpuConfig": _GpuConfig,
    f"{NVIDIAS} MigDeviceConfig": _MigDeviceConfig,
}


def _is_foreign(config: OpaqueConfig, driver: str) -> bool:
    """Whether the driver ignores configuration of this kind."""
    group = str(config.parameters.get("apiVersion")).partition("/")[0]
    return driver not in _MAKERS_DRIVERS and group not in _GROUPS


def _kind_of(config: OpaqueConfig) -> str:
    written = (config.parameters.get("apiVersion"), config.parameters.get("kind"))
    return " ".join(str(each) for each in written if each) or "an object without apiVersion and kind"


Decoded = Sequence[tuple[OpaqueConfig, _MigDeviceConfig]]


def decoded_configs(claim: Claim, driver: str) -> Decoded:
    """The configurations that the driver uses. Raises AllocationError if any is invalid, even an overridden one."""
    return [(each, _decoded(each)) for each in claim.configs if not _is_foreign(each, driver)]


def ignored_kinds(claim: Claim, driver: str, result: AllocationResult) -> tuple[str, ...]:
    """The kinds of configuration for an allocated device that the driver ignores, for the status of the claim."""
    return tuple(_kind_of(each) for each in claim.configs if _is_foreign(each, driver) and each.covers(result))


def settings_of(
    configs: Decoded, result: AllocationResult, device: Device
) -> tuple[Mapping[str, str], MpsConfig | None]:
    """The variables for an allocated device, and its MPS limits if the configuration requests MPS.

    Raises AllocationError for configuration that the device cannot have.
    """
    for config, decoded in reversed([each for each in configs if each[0].covers(result)]):
        if decoded.partitions in (None, device.is_partition):
            sharing = decoded.sharing
            mps = sharing.mps_config if sharing and sharing.strategy == "MPS" else None
            return decoded.env if isinstance(decoded, _DeviceConfig) else EMPTY, mps
        if config.requests:
            what = "a partition" if device.is_partition else "a whole device"
            raise AllocationError(
                f"{config.where}: {decoded.kind} is not for request {result.request}, which got {what}"
            )
    return EMPTY, None


def _decoded(config: OpaqueConfig) -> _MigDeviceConfig:
    model = _KINDS.get(_kind_of(config))
    if model is None:
        raise AllocationError(
            f"{config.where} is of an unknown kind, {_kind_of(config)}; known are {', '.join(_KINDS)}"
        )
    try:
        return model.model_validate(config.parameters)
    except ValidationError as wrong:
        raise AllocationError(f"{config.where}: {_first_of(wrong)}") from wrong


def _first_of(wrong: ValidationError) -> str:
    first = wrong.errors()[0]
    what = "unknown key" if first["type"] == "extra_forbidden" else first["msg"]
    hint = first.get("ctx", {}).get("hint", "")
    return f"{'.'.join(map(str, first['loc']))}: {what}" + (f"; {hint}" if hint else "")
