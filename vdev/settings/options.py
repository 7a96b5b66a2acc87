"""The table of the process's options: flags, environment variables, defaults, help, and their keys in the file.

Names, aliases and variables of the plugin's options are those of NVIDIA/k8s-device-plugin v0.20.0.
"""

from dataclasses import dataclass
from enum import Enum, StrEnum

from ..core.model import virtual_node
from ..core.spec import AllocationPolicy, DeviceIdStrategy, DeviceListStrategy, MigStrategy


class Group(Enum):
    """Options that belong together; the value is their heading in the help."""

    FILES = "configuration files"
    PRESETS = "presets"
    PLUGIN = "what is advertised and injected (each is a key of the file too; the flag wins)"
    UNUSED = "accepted for NVIDIA's command lines and not used"
    NODE = "the node"
    KUBELET = "the kubelet"
    PROCESS = "the process"


class Kind(Enum):
    """The form of a value."""

    TEXT = "text"
    BOOLEAN = "boolean"
    LIST = "list"  # repeated, or with commas
    PATHS = "paths"  # repeated; in the environment with commas or colons


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option. `key` is its path in the configuration file, or empty for an option of the process alone."""

    name: str
    group: Group
    help: str
    env: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    kind: Kind = Kind.TEXT
    metavar: str = ""
    default: str = ""
    choices: tuple[str, ...] = ()
    key: str = ""

    @property
    def flag(self) -> str:
        """`--name`."""
        return f"--{self.name}"

    @property
    def dest(self) -> str:
        """The attribute of the parsed arguments."""
        return self.name.replace("-", "_")


def _words(enum: type[StrEnum]) -> tuple[str, ...]:
    return tuple(each.value for each in enum)


OPTIONS = (
    Option(
        name="config-file",
        group=Group.FILES,
        env=("CONFIG_FILE", "VDEV_CONFIG_FILE"),
        kind=Kind.PATHS,
        metavar="FILE",
        help="configuration file, or a directory from which the node takes one; repeat it to join files by section",
    ),
    Option(
        name="presets-dir",
        group=Group.PRESETS,
        env=("VDEV_PRESETS_DIR",),
        kind=Kind.PATHS,
        metavar="DIR",
        help="directory with preset files of your own, beside the file's presetsDir; may be repeated",
    ),
    Option(
        name="mig-strategy",
        group=Group.PLUGIN,
        env=("MIG_STRATEGY",),
        choices=_words(MigStrategy),
        default="none",
        key="flags.migStrategy",
        help="how partitions are advertised",
    ),
    Option(
        name="fail-on-init-error",
        group=Group.PLUGIN,
        env=("FAIL_ON_INIT_ERROR",),
        kind=Kind.BOOLEAN,
        default="true",
        key="flags.failOnInitError",
        help="fail at start-up on any error, rather than serve what is right",
    ),
    Option(
        name="driver-root",
        aliases=("nvidia-driver-root",),
        group=Group.PLUGIN,
        env=("NVIDIA_DRIVER_ROOT",),
        metavar="DIR",
        default="/",
        key="flags.nvidiaDriverRoot",
        help="what stands before the host's side of device nodes and mounts",
    ),
    Option(
        name="dev-root",
        aliases=("nvidia-dev-root",),
        group=Group.PLUGIN,
        env=("NVIDIA_DEV_ROOT",),
        metavar="DIR",
        default="the driver root",
        key="flags.nvidiaDevRoot",
        help="what stands before the host's side of device nodes",
    ),
    Option(
        name="mps-root",
        group=Group.PLUGIN,
        env=("MPS_ROOT",),
        metavar="DIR",
        default="none",
        key="flags.mpsRoot",
        help="directory of the MPS daemon on the host; sharing.mps needs it",
    ),
    Option(
        name="pass-device-specs",
        group=Group.PLUGIN,
        env=("PASS_DEVICE_SPECS",),
        kind=Kind.BOOLEAN,
        default="false",
        key="flags.plugin.passDeviceSpecs",
        help="hand the real device nodes to the container as well",
    ),
    Option(
        name="device-list-strategy",
        group=Group.PLUGIN,
        env=("DEVICE_LIST_STRATEGY",),
        kind=Kind.LIST,
        choices=_words(DeviceListStrategy),
        default="envvar",
        key="flags.plugin.deviceListStrategy",
        help="how the list of devices reaches the runtime; several with commas or repeated",
    ),
    Option(
        name="device-id-strategy",
        group=Group.PLUGIN,
        env=("DEVICE_ID_STRATEGY",),
        choices=_words(DeviceIdStrategy),
        default="uuid",
        key="flags.plugin.deviceIDStrategy",
        help="what names a device inside the container",
    ),
    Option(
        name="cdi-annotation-prefix",
        group=Group.PLUGIN,
        env=("CDI_ANNOTATION_PREFIX",),
        metavar="PREFIX",
        default="cdi.k8s.io/",
        key="flags.plugin.cdiAnnotationPrefix",
        help="prefix of the annotation's key under cdi-annotations",
    ),
    Option(
        name="shared-devices-allocation-policy",
        group=Group.PLUGIN,
        env=("SHARED_DEVICES_ALLOCATION_POLICY",),
        choices=_words(AllocationPolicy),
        default="distributed",
        key="flags.plugin.sharedDevicesAllocationPolicy",
        help="spread replicas and partitions over the devices, or pack them",
    ),
    Option(
        name="gdrcopy-enabled",
        group=Group.PLUGIN,
        env=("GDRCOPY_ENABLED",),
        kind=Kind.BOOLEAN,
        default="false",
        key="flags.gdrcopyEnabled",
        help="set NVIDIA_GDRCOPY=enabled in containers with NVIDIA devices",
    ),
    Option(
        name="gds-enabled",
        group=Group.PLUGIN,
        env=("GDS_ENABLED",),
        kind=Kind.BOOLEAN,
        default="false",
        key="flags.gdsEnabled",
        help="set NVIDIA_GDS=enabled in containers with NVIDIA devices",
    ),
    Option(
        name="mofed-enabled",
        group=Group.PLUGIN,
        env=("MOFED_ENABLED",),
        kind=Kind.BOOLEAN,
        default="false",
        key="flags.mofedEnabled",
        help="set NVIDIA_MOFED=enabled in containers with NVIDIA devices",
    ),
    Option(
        name="nvidia-cdi-hook-path",
        aliases=("nvidia-ctk-path",),
        group=Group.UNUSED,
        env=("NVIDIA_CDI_HOOK_PATH", "NVIDIA_CTK_PATH"),
        metavar="FILE",
        default="/usr/bin/nvidia-ctk",
        key="flags.plugin.nvidiaCTKPath",
        help="CDI hooks of NVIDIA's toolkit",
    ),
    Option(
        name="driver-root-ctr-path",
        aliases=("container-driver-root",),
        group=Group.UNUSED,
        env=("DRIVER_ROOT_CTR_PATH", "CONTAINER_DRIVER_ROOT"),
        metavar="DIR",
        default="/driver-root",
        key="flags.plugin.containerDriverRoot",
        help="where the driver root is in the plugin's container",
    ),
    Option(
        name="device-discovery-strategy",
        group=Group.UNUSED,
        env=("DEVICE_DISCOVERY_STRATEGY",),
        choices=("auto", "nvml", "tegra"),
        default="auto",
        key="flags.deviceDiscoveryStrategy",
        help="how NVIDIA's plugin finds devices",
    ),
    Option(
        name="imex-channel-ids",
        group=Group.UNUSED,
        env=("IMEX_CHANNEL_IDS",),
        kind=Kind.LIST,
        choices=("0",),
        default="none",
        key="imex.channelIDs",
        help="IMEX channels",
    ),
    Option(
        name="imex-required",
        group=Group.UNUSED,
        env=("IMEX_REQUIRED",),
        kind=Kind.BOOLEAN,
        default="false",
        key="imex.required",
        help="whether the IMEX channels must exist",
    ),
    Option(
        name="cdi-feature-flags",
        group=Group.UNUSED,
        env=("CDI_FEATURE_FLAGS",),
        help="options of NVIDIA's CDI library",
    ),
    Option(
        name="cdi-disable-hooks",
        group=Group.UNUSED,
        env=("CDI_DISABLE_HOOKS",),
        help="CDI hooks of NVIDIA's toolkit that are left out",
    ),
    Option(
        name="node-name",
        group=Group.NODE,
        env=("NODE_NAME",),
        metavar="NAME",
        default="the host's name",
        help="name of this node, which onNodes is compared with",
    ),
    Option(
        name="host-root",
        group=Group.NODE,
        env=("VDEV_HOST_ROOT",),
        metavar="DIR",
        default="/",
        help="where the host's /dev and /sys are found; what the kubelet is told stays the host's own path",
    ),
    Option(
        name="cdi-dir",
        group=Group.NODE,
        env=("VDEV_CDI_DIR",),
        metavar="DIR",
        default="/var/run/cdi",
        help="directory for CDI specifications",
    ),
    Option(
        name="device-dir",
        group=Group.NODE,
        env=("VDEV_DEVICE_DIR",),
        metavar="DIR",
        default=virtual_node.DIRECTORY,
        help="directory for nodes and files that stand in for virtual devices; the runtime must find them there",
    ),
    Option(
        name="state-dir",
        group=Group.NODE,
        env=("VDEV_STATE_DIR",),
        metavar="DIR",
        default="/var/lib/vdev, or $XDG_STATE_HOME/vdev for other users than root",
        help="directory for what must outlive the process, above all what was listed to the kubelet",
    ),
    Option(
        name="no-state",
        group=Group.NODE,
        env=("VDEV_NO_STATE",),
        kind=Kind.BOOLEAN,
        default="false",
        help="keep nothing over a restart; an edit that comes with it may hand out again what pods hold",
    ),
    Option(
        name="kubelet-dir",
        group=Group.KUBELET,
        env=("VDEV_KUBELET_DIR",),
        metavar="DIR",
        default="/var/lib/kubelet",
        help="the kubelet's root: device-plugins/ and pod-resources/ are below it",
    ),
    Option(
        name="kubelet-socket",
        group=Group.KUBELET,
        env=("KUBELET_SOCKET",),
        metavar="FILE",
        default="device-plugins/kubelet.sock below --kubelet-dir",
        help="where to register; '' to serve without registering",
    ),
    Option(
        name="log-level",
        group=Group.PROCESS,
        env=("VDEV_LOG_LEVEL",),
        choices=("debug", "info", "warning", "error"),
        default="info",
        help="the least important messages that are logged",
    ),
    Option(
        name="log-format",
        group=Group.PROCESS,
        env=("VDEV_LOG_FORMAT",),
        choices=("auto", "console", "json"),
        default="auto",
        help="form of the log; auto is console on a terminal, else json",
    ),
    Option(
        name="http-address",
        group=Group.PROCESS,
        env=("VDEV_HTTP_ADDRESS",),
        metavar="HOST:PORT",
        default="off",
        help="serve a live page, /metrics, /healthz, /readyz and /status here, such as 127.0.0.1:8080",
    ),
    Option(
        name="http-hosts",
        group=Group.PROCESS,
        env=("VDEV_HTTP_HOSTS",),
        kind=Kind.LIST,
        metavar="NAME",
        default="none",
        help="further names that HTTP requests may be addressed to, such as vdev.example.com or *.example.com",
    ),
    Option(
        name="enable-fault-injection",
        group=Group.PROCESS,
        env=("VDEV_ENABLE_FAULT_INJECTION",),
        kind=Kind.BOOLEAN,
        default="false",
        help="let people inject failures with vdev fault, vdev device and --fault-dir",
    ),
    Option(
        name="fault-dir",
        group=Group.PROCESS,
        env=("VDEV_FAULT_DIR",),
        metavar="DIR",
        help="directory whose YAML files are fault rules, in force while they are there",
    ),
    Option(
        name="run-dir",
        group=Group.PROCESS,
        env=("VDEV_RUN_DIR",),
        metavar="DIR",
        default="/run/vdev, or a directory of the user's own without root",
        help="directory of the socket by which vdev status reaches the running plugin",
    ),
)
