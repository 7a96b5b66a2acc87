"""Scenarios as values: the steps, what can be expected, and the `Driver` protocol of a node to play them on.

`scenario_file` reads them, `play` plays them, `embedded_driver` is the embedded node.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, Protocol

from ...errors import VdevError
from ..objects.node_devices import Capacity
from ..objects.pods import PodStatus


@dataclass(frozen=True, slots=True)
class Amount:
    """An expected number, and how what is seen compares with it. None: the number that was remembered."""

    count: int | None = None
    comparison: str = ""  # empty: equal; "at least" or "less than"

    def met(self, seen: int, remembered: int) -> bool:
        """Whether what is seen is what is expected."""
        expected = remembered if self.count is None else self.count
        match self.comparison:
            case "at least":
                return seen >= expected
            case "less than":
                return seen < expected
            case _:
                return seen == expected

    def in_words(self, remembered: int) -> str:
        """As a message says it."""
        number = f"{remembered} as remembered" if self.count is None else str(self.count)
        return f"{self.comparison} {number}".strip()


class ScenarioError(VdevError):
    """An expectation of a scenario was not met; the text says what was seen instead."""


class StepFailed(ScenarioError):
    """A step failed: its number, counted from 1, and why."""

    def __init__(self, title: str, step: int, why: str) -> None:
        super().__init__(f"{title}: step {step}: {why}")
        self.step = step
        self.why = why


class Capability(Enum):
    """What only some drivers can do. A step that the driver cannot do is skipped, with a reason."""

    CLOCK = "clock"  # move the kubelet's time
    KUBELET = "kubelet"  # stop and start the kubelet
    PLUGIN = "plugin"  # stop and start the plugin's process
    HOST_NODES = "host-nodes"  # make and remove device nodes
    EDITS = "edits"  # see what a container gets
    FINDINGS = "findings"  # the embedded kubelet's findings
    REGISTRATIONS = "registrations"  # the kubelet's counter of registrations
    REBOOT = "reboot"  # let the node go down and come back, the plugin before the kubelet
    REBOOT_KUBELET_FIRST = "reboot-kubelet-first"  # the same, the kubelet before the plugin
    REASONS = "reasons"  # why the plugin calls a device Unhealthy
    DRA = "dra"  # claims, slices and classes, and a scheduler
    PUBLISHING = "publishing"  # the plugin is led to the API server, where it can publish slices
    DRIVERS = "drivers"  # the kubelet's connections to DRA drivers
    ROLL = "roll"  # a rolling update of the plugin: the new one beside the old
    KILL = "kill"  # end the plugin's process as by kill -9
    HOOK = "hook"  # run commands from outside the scenario


class Action(Enum):
    """A step without arguments."""

    RESTART_KUBELET = "restartKubelet"
    CRASH_KUBELET = "crashKubelet"
    START_KUBELET = "startKubelet"
    RESTART_PLUGIN = "restartPlugin"
    STOP_PLUGIN = "stopPlugin"
    START_PLUGIN = "startPlugin"
    KILL_PLUGIN = "killPlugin"
    REBOOT_PLUGIN_FIRST = "rebootPluginFirst"
    REBOOT_KUBELET_FIRST = "rebootKubeletFirst"
    ROLL_PLUGIN = "rollPlugin"


ANY: Final = "any"


@dataclass(frozen=True, slots=True)
class Expect:
    """What must be seen in the end, and then for `stays` seconds. `pods` has None for a pod that must not exist,
    `unhealthy` the reasons of devices that must be listed as Unhealthy, by resource and id. `slices` has the devices
    that a DRA driver publishes for the node, in any order (None: no slice; ANY: at least one slice, if it can publish
    any), `claims` those allocated to a claim (None: no such claim), `drivers` how many instances are connected.
    `no_warnings` are codes of findings that must not be there although they are no errors.
    """

    node: Mapping[str, tuple[Amount, Amount]] = field(default_factory=dict)
    pods: Mapping[str, Mapping[str, Any] | None] = field(default_factory=dict)
    registrations: Mapping[str, Amount] = field(default_factory=dict)
    unhealthy: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    no_error_findings: bool = False
    slices: Mapping[str, Sequence[str] | None] = field(default_factory=dict)
    claims: Mapping[str, Sequence[str] | None] = field(default_factory=dict)
    drivers: Mapping[str, Amount] = field(default_factory=dict)
    no_warnings: frozenset[str] = frozenset()
    stays: float = 0.0


POD_STEPS = frozenset({"createPod", "deletePod", "forceDeletePod", "restartContainer"})


@dataclass(frozen=True, slots=True)
class Step:
    """A step by its name in the file, and what is written there for it: an `Expect`, the name of a pod, a path, a
    document; None for an `Action` and for `remember`.
    """

    name: str
    value: Any = None


@dataclass(frozen=True, slots=True)
class Scenario:
    """One file. `configuration` is the plugin's first configuration, empty where it needs none; `pods` are manifests by
    the name of the pod. `lines` has each step's place in the file and its text, for reports.

    `hardware` says which pieces of hardware a device id stands for; two pods must never have one piece. It is looked at
    after each step and while an expectation is waited for. `objects` are created before the plugin starts.
    """

    title: str
    configuration: str
    steps: tuple[Step, ...]
    pods: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    requires: frozenset[Capability] = frozenset()
    hardware: Mapping[str, frozenset[str]] = field(default_factory=dict)
    objects: tuple[Mapping[str, Any], ...] = ()
    lines: tuple[tuple[int, str], ...] = ()

    @property
    def expectations(self) -> list[Expect]:
        """What its steps expect."""
        return [step.value for step in self.steps if step.name == "expect"]


class Driver(Protocol):
    """A node with a kubelet and a plugin on it, to which things can be done."""

    capabilities: frozenset[Capability]

    async def configure(self, text: str) -> None:
        """Replace the plugin's configuration; starts the plugin the first time."""

    async def act(self, action: Action) -> None:
        """Do something to the kubelet or the plugin."""

    async def advance_clock(self, seconds: float) -> None:
        """Let time pass for the kubelet."""

    async def create_pod(self, manifest: Mapping[str, Any]) -> None:
        """Create a pod that is bound to the node."""

    async def delete_pod(self, name: str, *, force: bool = False) -> None:
        """Delete a pod, at once; with `force` from the API server, whatever its node does."""

    async def create_object(self, document: Mapping[str, Any]) -> None:
        """Create an object of the API server."""

    async def delete_object(self, kind: str, name: str, namespace: str) -> None:
        """Delete an object of the API server."""

    async def restart_container(self, pod: str) -> None:
        """Let the pod's first app container die and start again."""

    async def device_node(self, path: str, *, make: bool) -> None:
        """Make or remove a device node of the host."""

    async def hook(self, name: str) -> None:
        """Run the command for this name, to its end."""

    async def names(self, placeholder: str) -> Sequence[str]:
        """What `{resource}` or `{driver}` stands for: the names that plugins have registered so far."""

    async def node(self) -> Capacity:
        """What the node status shows."""

    async def pod(self, name: str) -> PodStatus | None:
        """A pod as it is, None if there is none."""

    async def slices(self, driver: str) -> Sequence[str] | None:
        """The devices of the newest generation of a driver's slices for the node, in order; None without a slice."""

    async def claim(self, name: str) -> Sequence[str] | None:
        """The devices allocated to a claim of namespace `default`, None if there is no such claim."""

    async def drivers(self, driver: str) -> int:
        """To how many instances of a driver the kubelet is connected."""

    async def events(self, pod: str) -> Sequence[str]:
        """The events on a pod, as `reason: message`."""

    async def registrations(self, resource: str) -> int:
        """How often a resource was registered since the kubelet started counting."""

    async def reasons(self) -> Mapping[tuple[str, str], str]:
        """Why the plugin calls devices Unhealthy, by resource and device id; empty while it does not answer."""

    async def errors(self, also: frozenset[str] = frozenset()) -> list[str]:
        """What was found wrong with the plugin: error findings, and warnings with one of these codes."""

    async def causes(self) -> list[str]:
        """Why what is expected may not have come true yet, as far as the node knows."""

    async def change(self) -> None:
        """Return soon, and early if something changed. Raises ScenarioError if the plugin ended by itself."""
