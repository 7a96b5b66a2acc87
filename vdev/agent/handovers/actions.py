"""Doing one action: in a thread of its own, within its time, and what went wrong in a sentence.

A program runs where vdev runs, in its container and as its user; files are the host's, below the host root.
"""

import functools
import itertools
from collections.abc import Callable, Mapping
from typing import assert_never

from ...aio.blocking_calls import BlockingCalls
from ...aio.clock import Clock
from ...aio.program import Program
from ...core.spec import ActionKind, ActionSpec
from ...errors import HostError
from ...hostfs import HostRoot, file_changes


class ActionRunner:
    """Does actions for devices, each of which is told by its raw id and the values of its placeholders.

    `renew` makes what stands in for a device anew; it blocks, and raises HostError.
    """

    def __init__(self, host: HostRoot, clock: Clock, renew: Callable[[str], None]) -> None:
        self._host = host
        self._renew = renew
        self._calls = BlockingCalls(clock)
        self._numbers = itertools.count()

    async def do(self, action: ActionSpec, device: str, values: Mapping[str, str], *, within: float) -> str:
        """Why it failed, or the empty string; `within` are the seconds that are left for it."""
        limit = min(action.timeout, within)
        path = action.path.render(values) if action.path is not None else ""
        call: Callable[[], str]
        abort: Callable[[], None] = _nothing
        match action.kind:
            case ActionKind.COMMAND:
                program = Program([word.render(values) for word in action.command])
                call, abort = program.run, program.abort
            case ActionKind.TRUNCATE:
                call = functools.partial(_changed, functools.partial(file_changes.truncate, self._host, path))
            case ActionKind.CHMOD:
                call = functools.partial(_changed, functools.partial(file_changes.chmod, self._host, path, action.mode))
            case ActionKind.RENEW:
                call = functools.partial(_changed, functools.partial(self._renew, device))
            case _:
                assert_never(action.kind)
        try:
            return await self._calls.run(f"action {next(self._numbers)}", call, within=limit, abort=abort)
        except TimeoutError:
            return f"{named(action)} took longer than {limit:g} s"


def named(action: ActionSpec) -> str:
    return action.command[0].source if action.kind is ActionKind.COMMAND else action.kind.value


def _changed(change: Callable[[], None]) -> str:
    try:
        change()
    except HostError as failed:
        return str(failed)
    return ""


def _nothing() -> None:
    """A change of a file cannot be ended."""
