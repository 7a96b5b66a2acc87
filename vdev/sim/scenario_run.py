"""`vdev sim --exec`: any plugin, started for each of some scenarios on a node of its own, and judged."""

import asyncio
import contextlib
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from ..errors import HostError, UsageError, reason_of
from .lint import twice
from .scenario_report import JsonReport, ScenarioReport, ScenarioResult, TextReport, write_junit
from .scenarios import library
from .scenarios.command_node import PLACES, CommandNode, NodeOptions, capabilities, filled
from .scenarios.library import Found
from .scenarios.play import need_of, play
from .scenarios.scenario import ANY, Capability, Scenario, ScenarioError, StepFailed

_HISTORY = 15  # things that happened before a failure that are shown with it
_WAITS_SECONDS = 5.0  # between two words about a step that is not done yet


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """What is played, and where it is told. `scenarios` are names and paths; none: all of the library that the given
    hooks suffice for. `logs` is where the plugin's output is kept; None: a directory of its own, if something failed.
    """

    node: NodeOptions
    scenarios: tuple[str, ...] = ()
    junit: Path | None = None
    logs: Path | None = None
    as_json: bool = False


async def run(options: RunOptions, out: TextIO = sys.stdout) -> int:
    """Play the scenarios; 1 if one failed. Raises UsageError before anything is started, HostError for files.

    SIGTERM ends it as Ctrl-C does, with everything that was started.
    """
    chosen = await asyncio.to_thread(_choose, options)
    report: ScenarioReport = JsonReport(out) if options.as_json else TextReport(out)
    logs = await asyncio.to_thread(_make_logs, options.logs, chosen)
    results: list[ScenarioResult] = []
    if options.junit is not None:
        await asyncio.to_thread(write_junit, options.junit, results)  # a path that cannot be written is known now
    try:
        with _ended_by_sigterm():
            for each in chosen:
                result = await _play(each, options.node, logs / f"{each.name}.log", report)
                results.append(result)  # one by one: what was played is written also where the next is cut short
    finally:
        if options.junit is not None:
            missing = [_not_played(each, logs) for each in chosen[len(results) :]]
            await asyncio.to_thread(write_junit, options.junit, [*results, *missing])
        if options.logs is None and not any(each.failure for each in results):
            await asyncio.to_thread(shutil.rmtree, logs, ignore_errors=True)
    report.summary(results, [] if options.scenarios else _left_out(options.node))
    return 1 if any(each.failure for each in results) else 0


def describe() -> str:
    """The scenarios of the library, for people. Blocks."""
    rows = []
    for each in library.coming():
        needs = f" Needs {_flags(each.hooks)}." if each.hooks else ""
        needs += " For DRA drivers: give it with --scenario." if each.is_dra else ""
        rows.append(f"{each.name:<17}{each.scenario.title}.{needs}")
    return "\n".join(rows)


# --- what is played --------------------------------------------------------------------------------------------------


def _choose(options: RunOptions) -> list[Found]:
    """The scenarios, each checked against what can be done. Blocks. Raises UsageError."""
    node = options.node
    words = dict.fromkeys(PLACES, "")
    program = filled(node.command, words)[0]
    if shutil.which(program) is None and "{" not in node.command.split()[0]:
        hint = "; write `env NAME=VALUE PROGRAM …` to set variables" if "=" in program else ""
        raise UsageError(f"--exec: there is no program {program!r} here{hint}")
    for command in node.hooks.values():
        filled(command, words)
    coming = library.coming()
    chosen = [library.find(name) for name in options.scenarios] or [each for each in coming if _suits(each, node)]
    _check_hooks(node, coming, chosen, all_asked=not options.scenarios)
    for each in chosen:
        if problem := _problem(each, node):
            raise UsageError(f"{each.path.name}: {problem}")
    if repeated := twice(each.name for each in chosen):
        raise UsageError(f"two scenarios are called {repeated[0]!r}; their results could not be told apart")
    return chosen


def _suits(found: Found, node: NodeOptions) -> bool:
    return not found.is_dra and set(found.hooks) <= node.hooks.keys()


def _check_hooks(node: NodeOptions, coming: Sequence[Found], chosen: Sequence[Found], *, all_asked: bool) -> None:
    """Refuse a hook that no scenario has: what it was meant for would be left out without a word."""
    known = dict.fromkeys(name for each in (*coming, *chosen) for name in each.hooks)
    for name in node.hooks:
        if name not in known:
            raise UsageError(f"--hook {name}: no scenario that is played has such a hook; there are {', '.join(known)}")
    for each in coming if all_asked else ():
        missing = [name for name in each.hooks if name not in node.hooks]
        if missing and (given := [name for name in each.hooks if name in node.hooks]):
            raise UsageError(f"--hook {given[0]}: the scenario that has it needs {_flags(missing)} as well")


def _left_out(node: NodeOptions) -> list[str]:
    """What of the library was not played, though nothing was chosen, and what it needs. Blocks."""
    return [
        f"{each.name}, which needs {_flags(each.hooks)}"
        for each in library.coming()
        if not each.is_dra and not _suits(each, node)
    ]


def _flags(hooks: Iterable[str]) -> str:
    return " and ".join(f"--hook {name}=COMMAND" for name in hooks)


def _problem(found: Found, node: NodeOptions) -> str:
    """Why a scenario cannot be played with a command; empty if it can."""
    scenario = found.scenario
    edits = any(step.name == "editConfiguration" for step in scenario.steps)
    if (scenario.configuration or edits) and "{configuration}" not in node.command:
        return "it has a configuration for the plugin; name its file in --exec by {configuration}"
    if missing := [name for name in found.hooks if name not in node.hooks]:
        return f"it needs a command for the hook {missing[0]!r}; give --hook {missing[0]}=COMMAND"
    can = capabilities()
    if lacking := sorted(each.value for each in scenario.requires - can):
        return f"it requires {', '.join(lacking)}, which --exec does not have"
    for number, step in enumerate(scenario.steps, 1):
        need = need_of(step)
        if need is not None and need not in can:
            return f"step {number} needs {need.value}, which --exec does not have; a hook can do it"
        if step.name == "expect" and step.value.unhealthy:
            return f"step {number} expects reasons of Unhealthy devices, which only vdev tells"
    return ""


# --- playing ---------------------------------------------------------------------------------------------------------


async def _play(chosen: Found, options: NodeOptions, log: Path, report: ScenarioReport) -> ScenarioResult:
    report.begin(chosen.name, chosen.path, chosen.scenario)
    begun = time.monotonic()
    node = CommandNode(options, log)
    failure, happened = "", []
    try:
        async with node:
            for entry in node.kubelet.journal.entries:
                report.entry(entry)
            node.kubelet.journal.listen(report.entry)
            failure = await _played(chosen.scenario, node, options.timeout, report)
            happened = node.kubelet.journal.history(_HISTORY)
    except ScenarioError as failed:  # at its end
        failure = failure or str(failed)
    found = node.kubelet.findings
    if not failure:
        failure = "; ".join(str(each) for each in found if node.counts(each))  # noticed as it ended
    result = ScenarioResult(
        name=chosen.name,
        file=str(chosen.path),
        seconds=time.monotonic() - begun,
        failure=failure,
        history=happened if failure else (),
        remarks=[*_unlooked_at(chosen.scenario, node), *(str(each) for each in found if not node.counts(each))],
        log=log,
    )
    report.end(result)
    return result


def _unlooked_at(scenario: Scenario, node: CommandNode) -> list[str]:
    """What a scenario expects and cannot see, because the command does not name the API server."""
    slices = any(ANY in each.slices.values() for each in scenario.expectations)
    if not slices or Capability.PUBLISHING in node.capabilities:
        return []
    return ["no ResourceSlice was looked at: the driver was given no API server; name {kubeconfig} in --exec"]


async def _played(scenario: Scenario, node: CommandNode, patience: float, report: ScenarioReport) -> str:
    """Why a scenario did not come true, with the plugin's last lines; empty if it did."""
    steps = _Steps(scenario, report)

    async def after(_step: int) -> None:
        await node.check()
        steps.end()

    teller = asyncio.create_task(steps.tell_waits(), name="tell which step waits")
    try:
        await play(scenario, node, patience=patience, after=after)
    except StepFailed as failed:
        steps.end(failed.why)
        return await node.explained(failed.why)
    except ScenarioError as failed:
        return await node.explained(str(failed))
    finally:
        teller.cancel()
    return ""


class _Steps:
    """Tells how the steps of a scenario end, and now and then which one is not done yet."""

    def __init__(self, scenario: Scenario, report: ScenarioReport) -> None:
        self._count = len(scenario.steps)
        self._report = report
        self._number = 1
        self._begun = time.monotonic()

    def end(self, failure: str = "") -> None:
        """The step is done, or failed."""
        now = time.monotonic()
        self._report.step(self._number, now - self._begun, failure)
        self._number, self._begun = self._number + 1, now

    async def tell_waits(self) -> None:
        """Tell of steps that wait, until cancelled."""
        while True:
            number = self._number
            await asyncio.sleep(_WAITS_SECONDS - (time.monotonic() - self._begun) % _WAITS_SECONDS)
            if number == self._number <= self._count:
                self._report.waits(number, time.monotonic() - self._begun)


def _not_played(chosen: Found, logs: Path) -> ScenarioResult:
    """A scenario that was cut short, or whose turn did not come."""
    return ScenarioResult(
        name=chosen.name,
        file=str(chosen.path),
        seconds=0,
        failure="not played to its end: the run was ended before",
        history=(),
        remarks=(),
        log=logs / f"{chosen.name}.log",
    )


def _make_logs(given: Path | None, chosen: Iterable[Found]) -> Path:
    """The directory for the plugin's output, without that of an earlier run of these scenarios; whatever else is there
    is somebody else's. Blocks. Raises HostError.
    """
    if given is None:
        return Path(tempfile.mkdtemp(prefix="vdev-sim-logs-"))
    try:
        given.mkdir(parents=True, exist_ok=True)
        for each in chosen:
            (given / f"{each.name}.log").unlink(missing_ok=True)
    except OSError as error:
        raise HostError(f"{given}: cannot keep the plugin's output there: {reason_of(error)}") from error
    return given


@contextlib.contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Let SIGTERM cancel this task, so that what was started is ended."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    loop.add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        yield
    except asyncio.CancelledError:
        raise ScenarioError("ended by a signal before all scenarios were played") from None
    finally:
        loop.remove_signal_handler(signal.SIGTERM)
