"""A node for `vdev sim --exec`, whose plugin is any command."""

import asyncio
import contextlib
import os
import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from ...errors import UsageError, reason_of
from ..api.api_objects import ApiObjects
from ..api.server import ApiServer
from ..device_manager import device_checkpoint
from ..kubelet import kubelet_directory
from ..kubelet_life import Compat, Timings
from ..lint import Finding, Severity
from ..node_objects import NodeObjects
from .driver import RESOURCE, Capability, ScenarioError
from .embedded_driver import SimDriver
from .plugin_process import GRACE_SECONDS, LAST_LINES, CommandPlugin, PluginPlaces, last_words, run_program

PLACEHOLDERS = ("kubelet_dir", "plugin_dir", "cdi_dir", "dir", "configuration", "kubeconfig")
_KUBECONFIG = "{kubeconfig}"
_CDI_DIR = "{cdi_dir}"
_PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")
_LOOKS, _LOOK_SECONDS = 3, 0.1
_TAIL = 1_000  # characters of a hook's output that an error shows


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeOptions:
    """Options of the nodes on which scenarios are played."""

    command: str  # starts the plugin
    hooks: Mapping[str, str] = field(default_factory=dict)  # commands by name
    resources: tuple[str, ...] = ()  # the names for `{resource}`; empty for all that register
    allow: frozenset[str] = frozenset()  # codes of findings that are ignored
    strict: bool = False
    again: bool = False  # restart the plugin when it ends by itself
    timeout: float = 30.0  # seconds that a call, a hook or the end of the plugin may take
    kubelet_dir: Path | None = None  # None: a temporary directory for each scenario
    node_name: str = "sim-node"
    compat: Compat = Compat.V1_36
    seed: int = 0


class CommandNode(SimDriver):
    """A node in a temporary directory, with a command as its plugin, whose output is appended to `log`.

    It has an API server if the command or a hook uses {kubeconfig}, and resolves CDI names if one uses {cdi_dir}. A
    finding or an unexpected end of the plugin fails the current step.
    """

    def __init__(self, options: NodeOptions, log: Path) -> None:
        super().__init__(
            self._command,
            node_name=options.node_name,
            timings=Timings(bound=options.timeout),
            strict=options.strict,
            kubelet_dir=options.kubelet_dir,
            host_nodes=False,
            cdi=any(_CDI_DIR in each for each in (options.command, *options.hooks.values())),
            compat=options.compat,
            seed=options.seed,
        )
        self._has_api = any(_KUBECONFIG in each for each in (options.command, *options.hooks.values()))
        self.capabilities = capabilities() - (frozenset() if self._has_api else {Capability.PUBLISHING})
        self._options = options
        self._log = log
        self._open = contextlib.AsyncExitStack()  # the API server, if a command asks for it

    async def __aenter__(self) -> Self:
        if self._options.kubelet_dir is not None:
            await asyncio.to_thread(_forget_node, kubelet_directory.KubeletPaths(self._options.kubelet_dir))
        if not self._has_api:
            return await super().__aenter__()
        api = await self._open.enter_async_context(ApiServer())
        self._objects = ApiObjects(api.objects)
        await super().__aenter__()
        NodeObjects(self.kubelet, api.objects).register()
        await asyncio.to_thread(_kubeconfig(self._places).write_text, api.kubeconfig())
        return self

    async def __aexit__(self, *error: object) -> None:
        async with self._open:
            await super().__aexit__(*error)

    async def configure(self, text: str) -> None:
        """Write the plugin's configuration; the first call starts the command."""
        await asyncio.to_thread(self._places.run_dir.mkdir, exist_ok=True)
        await super().configure(text)

    async def hook(self, name: str) -> None:
        """Run the command of a hook. Raises ScenarioError if it fails."""
        argv, seconds = split_command(self._options.hooks[name], _words(self._places)), self._options.timeout
        try:
            async with asyncio.timeout(seconds):
                code, printed = await run_program(argv, environ=self._environ())
        except TimeoutError:
            raise ScenarioError(f"hook {name}: {shlex.join(argv)} did not end within {seconds:g} s") from None
        except OSError as error:
            raise ScenarioError(f"hook {name}: cannot run {argv[0]}: {reason_of(error)}") from error
        if code:
            output = printed.decode(errors="replace")[-_TAIL:].strip() or "it printed nothing"
            raise ScenarioError(f"hook {name}: {shlex.join(argv)} ended with exit code {code}: {output}")

    async def names(self, placeholder: str) -> Sequence[str]:
        """The resources of --resource, or all that have registered."""
        given = self._options.resources if placeholder == RESOURCE else ()
        return given or await super().names(placeholder)

    async def errors(self, also: frozenset[str] = frozenset()) -> list[str]:
        """The findings that fail a scenario."""
        return [str(each) for each in self.kubelet.findings if self.counts(each, also)]

    def counts(self, finding: Finding, also: Collection[str] = ()) -> bool:
        """Whether a finding fails a scenario."""
        matters = finding.severity is Severity.ERROR or self._options.strict or finding.code in also
        return matters and finding.code not in self._options.allow

    async def change(self) -> None:
        """Return soon. Raises ScenarioError as `check` does."""
        await super().change()
        await self.check()

    async def check(self) -> None:
        """Raise ScenarioError if the plugin ended by itself, or if there is a finding that counts."""
        await self._plugin.check()
        if found := await self.errors():
            raise ScenarioError("; ".join(found))

    async def explained(self, failure: str) -> str:
        """The failure with the last lines of the plugin's output, and with its exit code if it has ended.

        A broken connection is noticed before the end of the plugin's process, so this looks several times.
        """
        for _ in range(_LOOKS):
            if LAST_LINES in failure:
                return failure
            await self.kubelet.journal.next_change(at_most=_LOOK_SECONDS)
            try:
                await self._plugin.check()
            except ScenarioError as ended:
                return f"{failure}\n{ended}"
        return f"{failure}\nthe plugin: {await asyncio.to_thread(last_words, self._log)}"

    def _command(self, places: PluginPlaces) -> CommandPlugin:
        return CommandPlugin(
            split_command(self._options.command, _words(places)),
            log=self._log,
            environ=self._environ(),
            again=self._options.again,
            strict=self._options.strict,
            grace=min(self._options.timeout, GRACE_SECONDS),
        )

    def _environ(self) -> dict[str, str]:
        return {"NODE_NAME": self._node_name, **os.environ}


def capabilities() -> frozenset[Capability]:
    """What a node with any command as its plugin can do."""
    return frozenset(Capability) - {Capability.HOST_NODES, Capability.REASONS}


def split_command(command: str, words: Mapping[str, str]) -> list[str]:
    """The arguments of a command, split as in a shell, without placeholders. Raises UsageError."""
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
    plugins = kubelet_directory.KubeletPaths(places.kubelet_dir).device_plugins
    paths = (
        *(places.kubelet_dir, plugins, places.cdi_dir, places.run_dir, places.configuration),
        _kubeconfig(places),
    )
    return dict(zip(PLACEHOLDERS, map(str, paths), strict=True))


def _kubeconfig(places: PluginPlaces) -> Path:
    return places.configuration.with_name("kubeconfig")


def _forget_node(paths: kubelet_directory.KubeletPaths) -> None:
    """Make a kubelet's directory that of a new node. Blocks. Raises SocketError if another kubelet uses it."""
    kubelet_directory.refuse_live(paths.registration_socket)
    device_checkpoint.read(paths.device_plugins)  # raises if it is a real kubelet's
    (paths.device_plugins / device_checkpoint.FILE_NAME).unlink(missing_ok=True)
