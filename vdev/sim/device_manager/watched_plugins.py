"""Device plugins with a registration socket in plugins_registry, which the plugin watcher finds.

Their registration is validated in the kubelet's order and with its texts. The connections are in `registration_server`,
as for plugins that call Register. The kubelet has no metric for these registrations.
"""

from .. import lint
from ..go_errors import RegistrationError
from ..kubelet_life import Life
from ..objects import formats
from .registration_server import VERSION, Registry

RENEWAL_SECONDS = 10.0


class WatchedPlugins:
    """The plugin watcher's handler for the type DevicePlugin. The name of a plugin is its resource."""

    def __init__(self, registry: Registry, directory: str, life: Life) -> None:
        self._registry = registry
        self._directory = directory
        self._journal = life.journal
        life.every(RENEWAL_SECONDS, self._find_not_renewed)
        self._registered: set[tuple[str, str]] = set()  # resource and endpoint
        self._without_stream: set[tuple[str, str]] = set()  # the registered plugins that had no stream at the last look

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
        """Connect to a plugin. Its endpoint is a full path. Raises RegistrationError."""
        await self._registry.connect(name, _path(endpoint), endpoint=endpoint)
        self._registered.add((name, endpoint))
        self._without_stream.discard((name, endpoint))
        self._journal.metrics.watched[name] += 1

    async def deregister(self, name: str, endpoint: str) -> None:
        """Disconnect a plugin without a registration socket."""
        self._registered.discard((name, endpoint))
        await self._registry.disconnect(name, _path(endpoint), f"the registration socket for {endpoint} is gone")

    def _find_not_renewed(self) -> None:
        """Report plugins whose stream ended before the last look. They must create their registration socket again."""
        without_stream = {each for each in self._registered if not self._registry.streams(each[0])}
        for name, endpoint in sorted(without_stream & self._without_stream):
            self._journal.find(lint.not_renewed(name, endpoint, RENEWAL_SECONDS))
        self._without_stream = without_stream


def _path(endpoint: str) -> str:
    """The path that the kubelet dials. A relative one starts at its working directory, which is the root."""
    return endpoint if endpoint.startswith("/") else f"/{endpoint}"
