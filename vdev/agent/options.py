"""Where and how an agent works: made by the command line, or by a test."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from .. import config
from ..aio.clock import SYSTEM, Clock, Timing
from ..api_server import ApiServerAddress
from ..config import Loaded, Texts
from ..hostfs import HostRoot
from ..intervals import PRODUCTION, Intervals
from ..model import telemetry, virtual_node
from ..observe.service_manager import ServiceManager


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """All paths are this process's own view; times are in seconds.

    `files` are configuration files, and directories from which the node takes one. `load` reads files under the
    process's overrides, with `partial=True` leaving out what is wrong; `load_again` loads the texts that it once read.
    `plugin_dir` is where the plugin's own sockets go; `kubelet_socket` None means to serve without registering.
    `run_dir` is where the control socket goes; None: there is none. `http_address` is where the HTTP side listens;
    empty: nowhere. `http_hosts` are further names that it answers to. `fault_injection`: people may inject faults
    through the control socket and by files in `fault_dir`; those of the configuration need no permission. Faults go by
    `clock`, and end the process by `exit`. `device_dir` is for stand-ins of devices that do not exist,
    `smi_dir` for the makers' tools that containers get; container runtimes must see both under the same paths.
    `state_dir` is for what must outlive the process; None: nothing does. `boot_id` tells one boot of the machine from
    another; empty: unknown. `service_manager` is told how the agent is; None: nobody is. It is told of the start once
    what was listed before is there again, or after `boot_wait`. `api_server` is asked and told of the node where the
    configuration wants that; None: there is none. `features_dir` is where Node Feature Discovery finds files with
    labels. `intervals` says how long the agent waits for what.
    """

    node: str
    files: tuple[Path, ...]
    load: Callable[..., Loaded]
    plugin_dir: Path
    kubelet_socket: Path | None
    pod_resources_socket: Path
    cdi_dir: Path
    host: HostRoot
    run_dir: Path | None = None
    http_address: str = ""
    http_hosts: tuple[str, ...] = ()
    allocate_deadline: float = 5.0
    device_dir: Path = Path(virtual_node.DIRECTORY)
    smi_dir: Path = Path(telemetry.DIRECTORY)
    fault_injection: bool = False
    fault_dir: Path | None = None
    state_dir: Path | None = None
    service_manager: ServiceManager | None = None
    boot_wait: float = PRODUCTION.boot
    boot_id: str = ""
    api_server: ApiServerAddress | None = None
    features_dir: Path = Path("/etc/kubernetes/node-feature-discovery/features.d")
    load_again: Callable[[Texts], Loaded] = config.load_again
    intervals: Intervals = field(default_factory=Intervals)
    clock: Clock = SYSTEM
    exit: Callable[[int], object] = os._exit

    @property
    def timing(self) -> Timing:
        return Timing(self.intervals, self.clock)
