"""The `Driver` protocol: a node with a kubelet and a plugin on which scenarios are played.

`embedded_driver` is the embedded kubelet, and the tests have a real cluster.
"""

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, Final, Protocol

from ...errors import VdevError
from ..device_manager.device_table import Capacity
from ..objects.pods import PodStatus

# Keys in a scenario that stand for the names which the plugin has registered.
RESOURCE: Final = "{resource}"
DRIVER: Final = "{driver}"


class ScenarioError(VdevError):
    """A scenario failed; the text says what was seen instead."""


class StepFailed(ScenarioError):
    """A step of a scenario failed. Steps are counted from 1."""

    def __init__(self, title: str, step: int, why: str) -> None:
        super().__init__(f"{title}: step {step}: {why}")
        self.step = step
        self.why = why


class Capability(Enum):
    """What only some drivers can do. A step that needs a missing capability is skipped, with a reason."""

    CLOCK = "clock"  # move the kubelet's time
    KUBELET = "kubelet"  # stop and start the kubelet
    PLUGIN = "plugin"  # stop and start the plugin's process
    HOST_NODES = "host-nodes"  # create and remove device nodes
    EDITS = "edits"  # see the environment, mounts and device nodes of a container
    FINDINGS = "findings"  # the embedded kubelet's findings
    REGISTRATIONS = "registrations"  # the kubelet's counter of registrations
    REBOOT = "reboot"  # reboot the node, and start the plugin before the kubelet
    REBOOT_KUBELET_FIRST = "reboot-kubelet-first"  # the same, with the kubelet first
    REASONS = "reasons"  # why the plugin reports a device as Unhealthy
    DRA = "dra"  # claims, slices and classes, and a scheduler
    PUBLISHING = "publishing"  # the plugin can reach the API server, where it publishes slices
    DRIVERS = "drivers"  # the kubelet's connections to DRA drivers
    ROLL = "roll"  # a rolling update: the new plugin starts before the old one ends
    KILL = "kill"  # SIGKILL for the plugin
    HOOK = "hook"  # run commands given on the command line


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


class Driver(Protocol):
    """A node with a kubelet and a plugin."""

    capabilities: frozenset[Capability]

    async def configure(self, text: str) -> None:
        """Replace the plugin's configuration; the first call starts the plugin."""

    async def act(self, action: Action) -> None:
        """Do something to the kubelet or the plugin."""

    async def advance_clock(self, seconds: float) -> None:
        """Let time pass for the kubelet."""

    async def create_pod(self, manifest: Mapping[str, Any]) -> None:
        """Create a pod on the node."""

    async def delete_pod(self, name: str, *, force: bool = False) -> None:
        """Delete a pod without a grace period; with `force` from the API server, without waiting for the kubelet."""

    async def create_object(self, document: Mapping[str, Any]) -> None:
        """Create an object in the API server."""

    async def delete_object(self, kind: str, name: str, namespace: str) -> None:
        """Delete an object from the API server."""

    async def restart_container(self, pod: str) -> None:
        """Let the pod's first app container die and start again."""

    async def device_node(self, path: str, *, make: bool) -> None:
        """Create or remove a device node of the host."""

    async def hook(self, name: str) -> None:
        """Run the command of a hook to its end."""

    async def names(self, placeholder: str) -> Sequence[str]:
        """The names for `{resource}` or `{driver}`: those that plugins have registered so far."""

    async def node(self) -> Capacity:
        """The device plugins' part of the node status."""

    async def pod(self, name: str) -> PodStatus | None:
        """The current status of a pod, None if it does not exist."""

    async def slices(self, driver: str) -> Sequence[str] | None:
        """The devices in a driver's newest slices for the node; None if it has no slice."""

    async def claim(self, name: str) -> Sequence[str] | None:
        """The devices allocated to a claim in namespace `default`; None if there is no such claim."""

    async def drivers(self, driver: str) -> int:
        """How many instances of a driver the kubelet is connected to."""

    async def events(self, pod: str) -> Sequence[str]:
        """The events on a pod, as `reason: message`."""

    async def registrations(self, resource: str) -> int:
        """How often a resource was registered since the kubelet started counting."""

    async def reasons(self) -> Mapping[tuple[str, str], str]:
        """The plugin's reasons for Unhealthy devices, by resource and device id; empty if it does not answer."""

    async def errors(self, also: frozenset[str] = frozenset()) -> list[str]:
        """Mistakes of the plugin: error findings, and warnings with one of these codes."""

    async def causes(self) -> list[str]:
        """Known reasons why an expectation may not have come true yet."""

    async def change(self) -> None:
        """Return soon, and early if something changed. Raises ScenarioError if the plugin ended by itself."""
