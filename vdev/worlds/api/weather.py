"""The API server of a world, and its weather: answers that are late, refused or lost, and a server that is away."""

import asyncio
import random
from collections.abc import Mapping
from dataclasses import dataclass

from ...sim.api import server
from ...sim.api.http_requests import Request
from ...sim.api.kinds import Refused
from ...sim.api.lists_and_watches import Lists
from ...sim.api.store import Objects

PORT = 6443
_REASONS = {409: "Conflict", 429: "TooManyRequests", 500: "InternalError", 503: "ServiceUnavailable"}
_WRITES = ("create", "update", "patch")


@dataclass(slots=True)
class Weather:
    """How requests fare at the moment: each part of them (0 to 1).

    Those that are `refused` get one of `statuses`, a conflict only where something is written. Of those that are `cut`
    the connection breaks before anything is done, of those that are `lost` after all was done. `late` ones take up to
    `seconds` longer.
    """

    refused: float = 0.0
    statuses: tuple[int, ...] = (500,)
    cut: float = 0.0
    lost: float = 0.0
    late: float = 0.0
    seconds: float = 0.0

    @property
    def is_fair(self) -> bool:
        """Nothing goes wrong."""
        return not (self.refused or self.cut or self.lost or self.late)


class WeatheredServer(server.ApiServer):
    """A server at a port that stays the same, whose weather `dice` draw."""

    def __init__(self, dice: random.Random) -> None:
        super().__init__(port=PORT)
        self.weather = Weather()
        self._dice = dice

    @property
    def is_up(self) -> bool:
        """Whether somebody listens."""
        return self._listener is not None

    async def admit(self, request: Request, writer: asyncio.StreamWriter) -> None:
        """Let a request have the weather of the moment."""
        dice, weather = self._dice, self.weather
        if weather.is_fair:
            return
        if dice.random() < weather.late:
            await asyncio.sleep(dice.random() * weather.seconds)
        if dice.random() < weather.cut:
            writer.transport.abort()
            raise ConnectionResetError
        if dice.random() < weather.refused:
            status = dice.choice(weather.statuses)
            if status != 409 or request.verb in _WRITES:  # HTTP's conflict
                after = dice.randrange(4) if status in (429, 503) else None
                raise Refused(status, _REASONS[status], "the weather of this world", after=after)

    async def _answer(
        self, client: server.Client, method: str, target: str, headers: Mapping[str, str], body: bytes
    ) -> None:
        if self._dice.random() < self.weather.lost and "watch=" not in target:
            client.writer.transport.mute()  # type: ignore[attr-defined]  # it is a connection in memory
            try:
                await super()._answer(client, method, target, headers, body)
            finally:
                client.writer.close()
            raise ConnectionResetError
        await super()._answer(client, method, target, headers, body)

    def end_watches(self) -> None:
        """Cut every connection that watches."""
        for each in tuple(self._clients):
            if each.watches:
                each.task.cancel()

    def forget(self) -> None:
        """Remember no version but the newest: who watches from an older one has to list again."""
        self.objects.version += 1
        self.objects.forgotten = self.objects.version

    def restored(self, objects: Objects) -> None:
        """Serve another store from now on, as after a backup was restored."""
        self.objects = objects
        self._lists = Lists(objects)
