"""The options of an agent, made by the command line or by a test."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from ..aio.clock import SYSTEM, Clock, Timing
from ..api_server import ApiServerAddress
from ..config import Loaded
from ..hostfs import HostRoot
from ..intervals import PRODUCTION, Intervals
from ..model import telemetry
from ..model.virtual import NODE_DIRECTORY
from .service_manager import ServiceManager


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """All paths are as this process sees them; times are in seconds."""

    node: str
    files: tuple[Path, ...]  # configuration files, and directories from which the node takes one
    load: Callable[..., Loaded]  # `config.load` with the overrides and directories of this process
    plugin_dir: Path  # for the plugin's own sockets
    kubelet_socket: Path | None  # None: serve without registering
    pod_resources_socket: Path
    cdi_dir: Path
    host: HostRoot
    run_dir: Path | None = None  # for the control socket; None: there is none
    http_address: str = ""  # empty: no HTTP
    http_hosts: tuple[str, ...] = ()  # further names that HTTP requests may be addressed to
    allocate_deadline: float = 5.0
    device_dir: Path = Path(NODE_DIRECTORY)  # for placeholders; runtimes must see it under the same path
    smi_dir: Path = Path(telemetry.DIRECTORY)  # for the makers' tools; likewise
    fault_injection: bool = False  # whether people may inject faults by the control socket and by files in `fault_dir`
    fault_dir: Path | None = None
    state_dir: Path | None = None  # for the state file; None: nothing outlives the process
    service_manager: ServiceManager | None = None
    boot_wait: float = PRODUCTION.boot  # how long the kubelet's start waits for devices that are missing
    boot_id: str = ""  # of this boot of the machine, empty if it is unknown
    api_server: ApiServerAddress | None = None
    features_dir: Path = Path("/etc/kubernetes/node-feature-discovery/features.d")
    intervals: Intervals = field(default_factory=Intervals)
    clock: Clock = SYSTEM
    exit: Callable[[int], object] = os._exit  # ends the process as a fault rule says

    @property
    def timing(self) -> Timing:
        return Timing(self.intervals, self.clock)
