"""The parts of one agent, and how they are connected. `agent.py` starts and ends them."""

from collections.abc import Collection, Sequence

from ..config import file_choice
from ..deviceplugin.registration import KubeletSocket
from ..deviceplugin.requests import Requests
from ..deviceplugin.service import ServiceState
from ..discovery.health_monitor import HealthMonitor
from ..dra.applier import Dra
from ..model.device import Key
from ..model.spec import Spec
from ..node.events import Situation
from ..observe.metrics import Metrics
from ..planning.allocation import any_cdi
from ..telemetry.applier import Telemetry
from ..telemetry.tool_files import ToolFiles
from .applier import Applier
from .cdi_files import CdiFiles
from .config_files import ConfigSource, FileChooser, NodeLabel
from .device_lists import DeviceLists, Measures
from .fault_control import FaultControl
from .handovers import HandoverActions
from .kernel_log import KernelLog
from .lock import NodeLock
from .node_choices import NodeChoices
from .node_objects import NodeApi
from .options import Options
from .pending_work import PendingWork
from .pod_holders import PodHolders
from .reconcile import Reconciler
from .retry import Retrier
from .state_file import Owner, StateFile
from .virtual_nodes import VirtualNodes

ASKING_HOLDERS = "asking the kubelet which pods hold devices"


class AgentParts:
    """Everything that an agent has; `appliers` are called besides its own."""

    def __init__(self, options: Options, appliers: Sequence[Applier]) -> None:
        self.options = options
        self._further = appliers
        self.metrics = Metrics()
        timing, clock = options.timing, options.clock
        self.pending = PendingWork(timing)
        self.retrier = Retrier(on_change=self.pending.add, timing=timing)
        self.lock = NodeLock(options.plugin_dir, on_change=self.pending.add, timing=timing)
        self.link = KubeletSocket(options.kubelet_socket, options.plugin_dir, is_ours=self.lock.is_ours)
        self.state = StateFile(
            options.state_dir,
            Owner(options.node, str(options.plugin_dir), options.boot_id),
            options.files,
            good=lambda: self.config.good,  # made below
            timing=timing,
        )
        owner = f"{options.node} {options.plugin_dir}"
        self.nodes = VirtualNodes(options.device_dir, options.host, owner=owner, timing=timing)
        self.handovers = HandoverActions(
            options.host,
            self.metrics,
            timing,
            renew=self.nodes.renew,
            record=self.state.record,
            ask=self.read_holders,
            wake=self.pending.add,
        )
        self.requests = Requests(
            self.metrics,
            handed_over=self.handovers.granted,
            pre_start=self.handovers.pre_start,
            allocate_deadline=options.allocate_deadline,
            on_granted=self._on_granted,
        )
        self.faults = FaultControl(options, self.metrics, wake=self.pending.add)
        self.node_api = NodeApi(options, self.situation, self.faults.engine.on_api, self.retrier.retry_now)
        label = NodeLabel(self.node_api.object, *file_choice.LABELS)
        chooser = FileChooser(
            options.files,
            options.node,
            label=label,
            last=self.state.kept_files,
            on_change=self.reload,
            timing=timing,
        )
        self.config = ConfigSource(chooser, options.load, options.load_again, self.metrics, clock)
        self.health = HealthMonitor(options.host, clock)
        self.cdi = CdiFiles(options.cdi_dir, timing)
        self.lists = DeviceLists(
            self.link,
            self.requests,
            on_state=self._on_state,
            faults=self.faults.engine,
            timing=timing,
            retrier=self.retrier,
        )
        self.holders = PodHolders(
            options.pod_resources_socket,
            self.link,
            requests=self.requests,
            lists=self.lists,
            faults=self.faults.engine,
            timing=timing,
        )
        self.kernel_log = KernelLog(options.node, options.host, clock)
        self.measures = Measures(self.metrics, clock)
        self.telemetry = Telemetry(
            options, self.node_api.api, on_change=self.pending.add, on_plan=lambda plan: self.tools.show(plan)
        )
        self.tools = ToolFiles(options.smi_dir, self.telemetry.measured, timing)
        self.dra = Dra(
            options,
            self.node_api.access,
            self.retrier,
            self.metrics,
            wake=self._claims_changed,
            renew=self.nodes.renew,
            faults=self.faults.engine,
        )
        self.reconciler = Reconciler(
            options,
            self.config,
            self.holders,
            self.health,
            self.metrics,
            faults=self.faults,
            retrier=self.retrier,
            lists=self.lists,
            choices=NodeChoices(options.node, self.node_api.object, self.pending.add, timing),
            appliers=(
                self.nodes,
                self.tools,  # before the CDI specifications that mount them
                self.cdi,
                self.state,
                self.measures,  # before any that waits, because a resource that stops meanwhile loses its metrics
                self.handovers,
                self.kernel_log,
                *self.node_api.appliers,
                self.dra,
                self.telemetry,
                *appliers,
            ),
            needed=self.needed,
            dra=self.dra,
            tools=self.tools,
        )
        self.started_at = clock.wall()
        self.turned_at = clock.now()  # when the last turn ended

    def needed(self, spec: Spec) -> set[Applier]:
        """The appliers that a configuration needs. Others are called until they are done with what is left."""
        found = {self.state, self.measures, self.telemetry, *self._further, *self.node_api.needed(spec)}
        for entry in spec.entries:
            if entry.virtual and entry.virtual.node:
                found.add(self.nodes)
            if entry.smi_tool:
                found.add(self.tools)
            if entry.acts_on_handovers:
                found.add(self.handovers)
            if entry.dra:
                found.add(self.dra)
        if any_cdi(spec.flags):
            found.add(self.cdi)
        if spec.faults.kernel_log:
            found.add(self.kernel_log)
        return found

    def reload(self) -> None:
        """Read the configuration again soon, and try at once what failed."""
        self.retrier.retry_now()
        self.pending.add(reload=True)

    async def read_holders(self) -> None:
        """Ask the kubelet which pods hold devices, unless that failed a moment ago."""
        await self.retrier.run(ASKING_HOLDERS, self._read_holders)

    async def _read_holders(self) -> None:
        await self.holders.refresh()
        if self.holders.readable and self.handovers in self.reconciler.appliers:
            await self.handovers.read(self.holders.named, self.holders.in_use)

    def situation(self) -> Situation:
        """What Events of the Node report besides the plan."""
        reading, services = self.config.status, self.lists.services.values()
        return Situation(
            applied=reading.applied,
            refused=reading.failed,
            reading=reading.history[0].summary if reading.history else "",
            unregistered={each.name: each.trouble for each in services if each.trouble},
            drills=self.faults.drills,
        )

    def _on_granted(self, keys: Collection[Key]) -> None:
        self.holders.note_allocated(keys)
        self.pending.ask_holders_soon()

    def _claims_changed(self) -> None:
        self.pending.add()
        self.pending.ask_holders_soon()  # only the kubelet knows which pods have claims

    def _on_state(self, resource: str, state: ServiceState) -> None:
        self.pending.add()
        self.metrics.registered.labels(resource).set(state is ServiceState.REGISTERED)
        if state is ServiceState.REGISTERED:
            self.metrics.registrations.labels(resource).inc()
            self.pending.ask_holders_soon()  # it may be another kubelet, or the first one
        elif state is ServiceState.STOPPED and resource not in self.reconciler.served.resources:
            self.metrics.forget(resource)
