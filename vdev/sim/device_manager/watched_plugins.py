"""Device plugins that the kubelet finds by a socket in plugins_registry, instead of being asked on kubelet.sock.

The plugin watcher asks what they are; here they are judged, in the kubelet's order and with its texts. Connections are
`registration_server`'s, which are the same for both ways. The kubelet counts these registrations in no metric.
"""

from .. import lint
from ..go_errors import RegistrationError
from ..kubelet_life import Life
from ..objects import formats
from .registration_server import VERSION, Registry

RENEWAL_SECONDS = 10.0


class WatchedPlugins:
    """Takes plugins of the type DevicePlugin, whose name is that of their resource.

    `directory` is that of kubelet.sock.
    """

    def __init__(self, registry: Registry, directory: str, life: Life) -> None:
        self._registry = registry
        self._directory = directory
        self._journal = life.journal
        life.every(RENEWAL_SECONDS, self._look)
        self._taken: set[tuple[str, str]] = set()  # resource and endpoint
        self._silent: set[tuple[str, str]] = set()  # those of them that had no stream at the last look

    def validate(self, name: str, endpoint: str, versions: list[str]) -> None:
        """Check versions and name. Raises RegistrationError."""
        if VERSION not in versions:
            self._journal.find(lint.unknown_version(name, versions, VERSION))
            listed = " ".join(versions)
            raise RegistrationError(f"manager version, {VERSION}, is not among plugin supported versions [{listed}]")
        if any(formats.extended_resource(name)):
            self._journal.find(lint.invalid_name(name))
            raise RegistrationError(f'invalid name of device plugin socket: the ResourceName "{name}" is invalid')
        streams = self._registry.streams(name)
        self._journal.find(lint.watched_registration(name, endpoint, self._directory, streams_open=streams))

    async def register(self, name: str, endpoint: str, versions: list[str]) -> None:  # 1.36 has one version
        """Call a plugin at its endpoint, which is a whole path here. Raises RegistrationError."""
        await self._registry.take(name, _path(endpoint), endpoint=endpoint)
        self._taken.add((name, endpoint))
        self._silent.discard((name, endpoint))
        self._journal.metrics.watched[name] += 1

    async def deregister(self, name: str, endpoint: str) -> None:
        """Let a plugin go, whose registration socket is gone."""
        self._taken.discard((name, endpoint))
        await self._registry.drop(name, _path(endpoint), f"the registration socket for {endpoint} is gone")

    def _look(self) -> None:
        """Report plugins whose stream ended before the last look.

        Nobody asks such a plugin again until its registration socket is made again, so it should do that.
        """
        silent = {each for each in self._taken if not self._registry.streams(each[0])}
        for name, endpoint in sorted(silent & self._silent):
            self._journal.find(lint.not_renewed(name, endpoint, RENEWAL_SECONDS))
        self._silent = silent


def _path(endpoint: str) -> str:
    """Where the kubelet dials: its own working directory, from which a relative path counts, is the root."""
    return endpoint if endpoint.startswith("/") else f"/{endpoint}"
