"""The options that shape what is advertised and injected."""

from dataclasses import dataclass
from enum import StrEnum


class MigStrategy(StrEnum):
    """How partitions are advertised: not at all, as the device's own resource, or under names of their own."""

    NONE = "none"
    SINGLE = "single"
    MIXED = "mixed"


class DeviceListStrategy(StrEnum):
    """How the list of allocated devices reaches the container's runtime; NVIDIA's names."""

    ENVVAR = "envvar"
    VOLUME_MOUNTS = "volume-mounts"
    CDI_ANNOTATIONS = "cdi-annotations"
    CDI_CRI = "cdi-cri"

    @property
    def is_cdi(self) -> bool:
        """Whether a CDI specification file must exist for it."""
        return self is DeviceListStrategy.CDI_ANNOTATIONS or self is DeviceListStrategy.CDI_CRI


class DeviceIdStrategy(StrEnum):
    """What names a device inside the container: its id or its index."""

    UUID = "uuid"
    INDEX = "index"


class AllocationPolicy(StrEnum):
    """How shared devices and partitions are preferred: spread over their parents, or filling one after the other."""

    DISTRIBUTED = "distributed"
    PACKED = "packed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Flags:
    """The options that shape what is advertised and injected; NVIDIA's names, defaults and meaning."""

    mig_strategy: MigStrategy = MigStrategy.NONE
    fail_on_init_error: bool = True
    driver_root: str = "/"
    dev_root: str = "/"
    mps_root: str = ""
    pass_device_specs: bool = False
    device_list_strategies: tuple[DeviceListStrategy, ...] = (DeviceListStrategy.ENVVAR,)
    device_id_strategy: DeviceIdStrategy = DeviceIdStrategy.UUID
    cdi_annotation_prefix: str = "cdi.k8s.io/"
    gdrcopy_enabled: bool = False
    gds_enabled: bool = False
    mofed_enabled: bool = False
    shared_devices_allocation_policy: AllocationPolicy = AllocationPolicy.DISTRIBUTED


DEFAULT_FLAGS = Flags()
