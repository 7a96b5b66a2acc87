"""The node on which scenarios run: an embedded kubelet in a temporary directory, and a plugin.

For `vdev sim --exec`, the plugin is any command. Tests run the same scenarios with a plugin in their own process, and
on a node of a real cluster by a class with the same methods.
"""

import asyncio
import contextlib
import os
import re
import shlex
import shutil
import tempfile
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from ...aio.clock import LeapClock
from ...errors import UsageError
from ...hostfs import write_atomic
from ..api.store import ApiObjects
from ..device_manager import device_checkpoint
from ..device_manager.device_table import Capacity
from ..dra.pools import gather
from ..kubelet import kubelet_directory
from ..kubelet.kubelet import Kubelet
from ..kubelet.kubelet_directory import KubeletPaths
from ..kubelet_life import Timings
from ..lint import Finding, Severity
from ..node_objects import NodeObjects
from ..objects.pods import PodStatus
from .plugin_process import GRACE_SECONDS, LAST_LINES, CommandPlugin, PluginPlaces, last_words
from .scenario import RESOURCE, ObjectName, ScenarioError

PLACEHOLDERS = ("kubelet_dir", "plugin_dir", "cdi_dir", "dir", "configuration", "kubeconfig")
_TAIL = 1_000  # characters of a hook's output that an error shows
_PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")
_POLL_SECONDS = 0.1
_REGISTRATION_EVENTS = ("registered", "registrationFailed", "registrationWaits")
_START_SECONDS = 30.0
_END_SECONDS = 0.3  # the end of a connection is detected before the end of the plugin's process


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeOptions:
    command: str = ""  # starts the plugin
    hooks: Mapping[str, str] = field(default_factory=dict)  # commands by name
    resources: tuple[str, ...] = ()  # values of `{resource}`; empty for all registered resources
    allow: frozenset[str] = frozenset()  # codes of findings to ignore
    strict: bool = False
    again: bool = False  # restart the plugin if it exits
    timeout: float = 30.0  # limit in seconds for a call, a hook or the end of the plugin
    kubelet_dir: Path | None = None  # None: a temporary directory for each scenario
    node_name: str = "sim-node"
    compat: str = "1.36"
    seed: int = 0

    def mentions(self, placeholder: str) -> bool:
        """Whether the command or a hook uses a placeholder."""
        return any(f"{{{placeholder}}}" in each for each in (self.command, *self.hooks.values()))


class EmbeddedNode:
    """A node, as an async context manager. A finding or an unexpected end of the plugin fails the current step.

    Each step of a scenario is the method with the name of its key.

    The node has an API server if the command or a hook uses {kubeconfig}. It resolves CDI names if one uses {cdi_dir}.

    Args:
        options: the command and the kubelet's options
        log: the file to which the plugin's output is appended; None for a temporary file
        plugin: creates the plugin; None for the command
        kubelet_options: additional options of `Kubelet`
    """

    def __init__(
        self,
        options: NodeOptions,
        log: Path | None = None,
        *,
        plugin: Callable[[PluginPlaces], CommandPlugin] | None = None,
        **kubelet_options: Any,
    ) -> None:
        self._options = options
        self._log = log
        self._make_plugin = plugin or self._command
        self._kubelet_options = kubelet_options
        self._has_api = options.mentions("kubeconfig")
        self._clock = LeapClock()
        self.sees_edits = True
        self.sees_slices = self._has_api  # a driver cannot publish slices without an API server

    async def __aenter__(self) -> Self:
        options = self._options
        async with contextlib.AsyncExitStack() as stack:
            temporary = tempfile.TemporaryDirectory(prefix="scenario-", ignore_cleanup_errors=True)
            root = Path(stack.enter_context(temporary))
            kubelet_dir = options.kubelet_dir or root / "k"
            self._places = PluginPlaces.below(root, kubelet_dir=kubelet_dir, node_name=options.node_name, log=self._log)
            await asyncio.to_thread(_forget_node, KubeletPaths(kubelet_dir))
            api = None
            if self._has_api:
                from ..api.server import ApiServer  # most nodes do without the web server

                api = await stack.enter_async_context(ApiServer())
            kubelet_options = {
                "node_name": options.node_name,
                "timings": Timings(bound=options.timeout),
                "strict": options.strict,
                "compat": options.compat,
                "seed": options.seed,
                "host_root": Path("/") if options.strict else None,
                "cdi_dir": self._places.cdi_dir if options.mentions("cdi_dir") else None,
                "objects": None if api is None else ApiObjects(api.objects),
                **self._kubelet_options,
            }
            self.kubelet = Kubelet(kubelet_dir, clock=self._clock, **kubelet_options)
            self._objects = self.kubelet.objects
            self._plugin = self._make_plugin(self._places)
            self._configured = False
            await stack.enter_async_context(self.kubelet)
            stack.push_async_callback(self.stop_plugin)
            if api is not None:
                NodeObjects(self.kubelet).register()
                await asyncio.to_thread(Path(_words(self._places)["kubeconfig"]).write_text, api.kubeconfig())
            self._open = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._open.aclose()

    # --- steps --------------------------------------------------------------------------------------------------------

    async def edit_configuration(self, text: str) -> None:
        """Replace the plugin's configuration with a rename, like an editor. The first call starts the plugin."""
        await asyncio.to_thread(write_atomic, self._places.configuration, text.encode())
        if not self._configured:
            self._configured = True
            await asyncio.to_thread(self._places.run_dir.mkdir, exist_ok=True)
            await self._plugin.start()

    async def restart_kubelet(self) -> None:
        await self.kubelet.restart(wait=False)

    async def crash_kubelet(self) -> None:
        await self.kubelet.crash()

    async def start_kubelet(self) -> None:
        await self.kubelet.start(wait=False)

    async def restart_plugin(self) -> None:
        await self._plugin.stop()
        await self._plugin.start()

    async def stop_plugin(self) -> None:
        await self._plugin.stop()

    async def start_plugin(self) -> None:
        await self._plugin.start()

    async def kill_plugin(self) -> None:
        await self._plugin.kill()

    async def roll_plugin(self) -> None:
        old, self._plugin = self._plugin, self._make_plugin(self._places)
        await self._plugin.start()
        await old.stop()

    async def reboot_plugin_first(self) -> None:
        await self._power_off()
        await self._plugin.start()
        if not await self._starts(lambda: kubelet_directory.sockets(self.kubelet.device_plugin_dir)):
            raise ScenarioError(f"the plugin opened no socket within {_START_SECONDS:g} s of its start")
        await self.kubelet.start(readmit=False)
        # On a real node, a running plugin sends its lists long before the kubelet reads its pods. A busy machine must
        # not change this order.
        had = {resource for pod in self.kubelet.pods() for each in pod.containers for resource in each.devices}
        await self._starts(lambda: had <= self.kubelet.listed().keys())
        await self.kubelet.readmit()

    async def reboot_kubelet_first(self) -> None:
        await self._power_off()
        await self.kubelet.start()
        await self._plugin.start()

    async def _power_off(self) -> None:
        """Shut down the node: stop containers and processes, and remove the files that a reboot removes."""
        await self.kubelet.power_off()
        await self._plugin.stop()
        await asyncio.to_thread(shutil.rmtree, self._places.cdi_dir, ignore_errors=True)
        await asyncio.to_thread(kubelet_directory.remove_sockets, self.kubelet.device_plugin_dir)

    async def _starts(self, condition: Callable[[], object]) -> bool:
        """Wait for a condition while a plugin starts. Returns False if it is not true in time."""
        end = time.monotonic() + _START_SECONDS
        while not condition() and time.monotonic() < end:
            await self.change()
            await self.check()
        return bool(condition())

    async def advance_clock(self, seconds: float) -> None:
        """Advance the kubelet's clock, and run everything that is due."""
        self._clock.advance(seconds)
        await self.change()

    async def create_pod(self, manifest: Mapping[str, Any]) -> None:
        await self.kubelet.run_pod(manifest)

    async def delete_pod(self, name: str) -> None:
        """Delete a pod without a grace period."""
        await self.kubelet.delete_pod(name)

    async def force_delete_pod(self, name: str) -> None:
        """Delete a pod from the API server without waiting for the kubelet."""
        await self.kubelet.delete_pod(name, force=True)

    async def restart_container(self, pod: str) -> None:
        await self.kubelet.restart_container(pod)

    async def create_object(self, document: Mapping[str, Any]) -> None:
        await self._objects.create(document["kind"], document)

    async def delete_object(self, name: ObjectName) -> None:
        await self._objects.delete(name.kind, name.name, name.namespace)

    async def hook(self, name: str) -> None:
        """Run the command of a hook. Raises ScenarioError if it fails."""
        argv, seconds = split_command(self._options.hooks[name], _words(self._places)), self._options.timeout
        log = self._places.configuration.with_name("hook")
        log.unlink(missing_ok=True)  # that of the hook before
        try:
            async with asyncio.timeout(seconds):
                code = await CommandPlugin(argv, log=log, environ=self._environ()).run()
        except TimeoutError:
            raise ScenarioError(f"hook {name}: {shlex.join(argv)} did not end within {seconds:g} s") from None
        except ScenarioError as error:
            raise ScenarioError(f"hook {name}: {error}") from error
        if code:
            output = log.read_text(errors="replace")[-_TAIL:].strip() or "it printed nothing"
            raise ScenarioError(f"hook {name}: {shlex.join(argv)} ended with exit code {code}: {output}")

    # --- the state of the node ----------------------------------------------------------------------------------------

    async def names(self, placeholder: str) -> Sequence[str]:
        """Return the values of `{resource}` or `{driver}`: those of --resource, or all that have registered so far."""
        if placeholder == RESOURCE and self._options.resources:
            return self._options.resources
        event, field = ("registered", "resource") if placeholder == RESOURCE else ("driverRegistered", "driver")
        return sorted({each.fields[field] for each in self.kubelet.journal.of(event)})

    async def node(self) -> Capacity:
        """Return capacity and allocatable of plugin resources in the node status."""
        return self.kubelet.node()

    async def pod(self, name: str) -> PodStatus | None:
        """Return the current status of a pod, or None if it does not exist."""
        return next((pod for pod in self.kubelet.pods() if pod.name == name), None)

    async def events(self, pod: str) -> Sequence[str]:
        """Return the Warning events on a pod, as `reason: message`."""
        return [f"{each.reason}: {each.message}" for each in self.kubelet.events if each.pod == f"default/{pod}"]

    async def slices(self, driver: str) -> Sequence[str] | None:
        """Return the devices in a driver's newest slices for the node, or None if it has no slice."""
        known = gather(await self._objects.list("ResourceSlice"), self.kubelet.node_name)
        pools = [pool for pool in known if pool.driver == driver]
        return [device.name for pool in pools for device in pool.devices] if pools else None

    async def claim(self, name: str) -> Sequence[str] | None:
        """Return the devices allocated to a claim in namespace `default`, or None if the claim does not exist."""
        claim = await self._objects.get("ResourceClaim", name, "default")
        if claim is None:
            return None
        allocation = (claim.get("status") or {}).get("allocation") or {}
        return [each["device"] for each in allocation.get("devices", {}).get("results") or []]

    async def drivers(self, driver: str) -> int | None:
        """Return the number of connected instances of a driver, or None if it is unknown."""
        return sum(each.connected for each in self.kubelet.drivers().get(driver, []))

    async def registrations(self, resource: str) -> int | None:
        """Return the number of successful registrations, or None if it is unknown."""
        return len([each for each in self.kubelet.journal.of("registered") if each.fields["resource"] == resource])

    async def reasons(self) -> Mapping[tuple[str, str], str] | None:
        """Return the plugin's reasons for Unhealthy devices by resource and device id, or None if they are unknown."""
        return None

    async def causes(self) -> list[str]:
        """Return possible reasons why an expectation is not true yet."""
        entries = [each for each in self.kubelet.journal.entries if each.event in _REGISTRATION_EVENTS]
        last = {each.fields["resource"]: each for each in entries}
        found = []
        for resource, entry in last.items():
            if entry.event != "registered":
                found.append(entry.text.partition(" ")[2].lstrip())  # without the subject
            elif resource not in self.kubelet.listed():
                found.append(f"{resource} is not connected; when the kubelet starts, it must register again")
        registered = ", ".join(sorted(last)) or "nothing"
        unknown = [each for each in self._options.resources if each not in last]
        return found + [f"{each} is not registered; the plugin has registered {registered}" for each in unknown]

    # --- mistakes of the plugin ---------------------------------------------------------------------------------------

    async def change(self) -> None:
        """Wait for the kubelet's next change, but at most 0.1 s."""
        await self.kubelet.journal.next_change(at_most=_POLL_SECONDS)

    async def check(self) -> None:
        """Raise ScenarioError if the plugin exited, or for a finding that fails the scenario."""
        await self._plugin.check()
        if found := await self.errors():
            raise ScenarioError("; ".join(found))

    async def errors(self, also: frozenset[str] = frozenset()) -> list[str]:
        """Return the findings that fail a scenario: errors, and warnings with one of these codes."""
        return [str(each) for each in self.kubelet.findings if self.counts(each, also)]

    def counts(self, finding: Finding, also: Collection[str] = ()) -> bool:
        """Whether a finding fails a scenario."""
        matters = finding.severity is Severity.ERROR or self._options.strict or finding.code in also
        return matters and finding.code not in self._options.allow

    async def explained(self, failure: str) -> str:
        """Add the last lines of the plugin's output to a failure, and its exit code if it has ended."""
        if LAST_LINES in failure:
            return failure
        await asyncio.sleep(_END_SECONDS)
        try:
            await self._plugin.check()
        except ScenarioError as ended:
            return f"{failure}\n{ended}"
        return f"{failure}\nthe plugin: {await asyncio.to_thread(last_words, self._places.log)}"

    # --- the command --------------------------------------------------------------------------------------------------

    def _command(self, places: PluginPlaces) -> CommandPlugin:
        return CommandPlugin(
            split_command(self._options.command, _words(places)),
            log=places.log,
            environ=self._environ(),
            again=self._options.again,
            strict=self._options.strict,
            grace=min(self._options.timeout, GRACE_SECONDS),
        )

    def _environ(self) -> dict[str, str]:
        return {"NODE_NAME": self._options.node_name, **os.environ}


def split_command(command: str, words: Mapping[str, str]) -> list[str]:
    """Split a command like a shell, and replace its placeholders with `words`. Raises UsageError."""
    try:
        parts = shlex.split(command)
    except ValueError as error:
        raise UsageError(f"{command!r}: not a command: {str(error).lower()}") from error
    if not parts:
        raise UsageError("the command is empty; give a program, with its arguments")
    for name in (name for part in parts for name in _PLACEHOLDER.findall(part)):
        if name not in words:
            allowed = ", ".join(f"{{{each}}}" for each in words)
            raise UsageError(f"{command!r}: unknown placeholder {{{name}}}; there are {allowed}")
    return [_PLACEHOLDER.sub(lambda found: words[found[1]], part) for part in parts]


def _words(places: PluginPlaces) -> dict[str, str]:
    plugin_dir = KubeletPaths(places.kubelet_dir).device_plugins
    kubeconfig = places.configuration.with_name("kubeconfig")
    paths = (places.kubelet_dir, plugin_dir, places.cdi_dir, places.run_dir, places.configuration, kubeconfig)
    return dict(zip(PLACEHOLDERS, map(str, paths), strict=True))


def _forget_node(paths: KubeletPaths) -> None:
    """Remove the checkpoint from a kubelet's directory. Blocks. Raises SocketError if another kubelet uses it."""
    kubelet_directory.refuse_live(paths.registration_socket)
    device_checkpoint.read(paths.device_plugins)  # raises SocketError if a real kubelet wrote it
    (paths.device_plugins / device_checkpoint.FILE_NAME).unlink(missing_ok=True)
