"""`vdev sim --exec`: runs scenarios with any plugin, each on a new node, and reports the results."""

import asyncio
import contextlib
import shlex
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TextIO

from ...aio.tasks import acting_on
from ...errors import HostError, UsageError, VdevError, reason_of
from ..lint import twice
from .node import PLACEHOLDERS, EmbeddedNode, NodeOptions, split_command
from .play import play
from .report import ScenarioReport, summary, write_junit
from .scenario import ANY, ScenarioError, ScenarioFile, built_in, find

_HISTORY = 15  # journal entries shown with a failure


async def run(
    node: NodeOptions,
    names: Sequence[str] = (),
    *,
    junit: Path | None = None,
    logs: Path | None = None,
    as_json: bool = False,
    out: TextIO = sys.stdout,
) -> int:
    """Run the scenarios with these names and paths. Returns the exit code, 1 if one failed.

    Without names, it runs all built-in scenarios whose hooks are given. `logs` is the directory for the plugin's
    output. If it is None, the output goes to a temporary directory that is kept only after a failure. SIGTERM ends the
    run like Ctrl-C.

    Raises UsageError before it starts anything, and HostError for files.
    """
    chosen = await asyncio.to_thread(_choose, node, names)
    directory = await asyncio.to_thread(_make_logs, logs, chosen)
    results: list[ScenarioReport] = []
    if junit is not None:
        await asyncio.to_thread(write_junit, junit, results)  # fail early if it is not writable
    try:
        with _ended_by_sigterm():
            for each in chosen:
                report = ScenarioReport(each, directory / f"{each.name}.log", out, as_json=as_json)
                await _play(node, report)
                results.append(report)
    finally:
        # An interrupted run also writes its results.
        if junit is not None:
            await asyncio.to_thread(write_junit, junit, results)
        if logs is None and not any(each.failure for each in results):
            await asyncio.to_thread(shutil.rmtree, directory, ignore_errors=True)
    if not as_json:
        left_out = [] if names else [each for each in built_in() if not each.is_dra and not _suits(each, node)]
        rows = [f"not played: {each.name}, which needs {_flags(each.hooks)}" for each in left_out]
        out.write("\n".join([summary(results), *rows, ""]))
    return 1 if any(each.failure for each in results) else 0


def describe() -> str:
    """Return a description of the built-in scenarios for the command line. Blocks."""
    rows = []
    for each in built_in():
        needs = f" Needs {_flags(each.hooks)}." if each.hooks else ""
        needs += " For DRA drivers: give it with --scenario." if each.is_dra else ""
        rows.append(f"{each.name:<17}{each.scenario.title}.{needs}")
    return "\n".join(rows)


# --- the choice of scenarios ------------------------------------------------------------------------------------------


def _choose(node: NodeOptions, names: Sequence[str]) -> list[ScenarioFile]:
    """Return the scenarios to run. Blocks. Raises UsageError if one of them cannot run."""
    words = dict.fromkeys(PLACEHOLDERS, "")
    program = split_command(node.command, words)[0]
    if shutil.which(program) is None and "{" not in node.command.split()[0]:
        hint = f"run chmod +x {shlex.quote(program)}" if Path(program).is_file() else "give the path of a program"
        raise UsageError(f"--exec: {program!r} is not an executable program; {hint}")
    for command in node.hooks.values():
        split_command(command, words)
    known_files = built_in()
    chosen = [find(name) for name in names] or [each for each in known_files if _suits(each, node)]
    known = dict.fromkeys(name for each in (*known_files, *chosen) for name in each.hooks)
    if unknown := [name for name in node.hooks if name not in known]:
        raise UsageError(f"--hook {unknown[0]}: no scenario has such a hook; there are {', '.join(known)}")
    for each in chosen:
        if problem := _problem(each, node):
            raise UsageError(f"{each.path.name}: {problem}")
    if repeated := twice(each.name for each in chosen):
        raise UsageError(f"two scenarios are called {repeated[0]!r}; rename one of the files")
    return chosen


def _suits(file: ScenarioFile, node: NodeOptions) -> bool:
    return not file.is_dra and set(file.hooks) <= node.hooks.keys()


def _flags(hooks: Iterable[str]) -> str:
    return " and ".join(f"--hook {name}=COMMAND" for name in hooks)


def _problem(file: ScenarioFile, node: NodeOptions) -> str:
    """Return why a scenario cannot run with the command, or an empty text if it can."""
    scenario = file.scenario
    edits = any(step.name == "edit_configuration" for step in scenario.steps)
    if (scenario.configuration or edits) and "{configuration}" not in node.command:
        return "it has a configuration for the plugin; name its file in --exec by {configuration}"
    if missing := [name for name in file.hooks if name not in node.hooks]:
        return f"it needs a command for the hook {missing[0]!r}; give --hook {missing[0]}=COMMAND"
    if any(each.unhealthy for each in scenario.expectations):
        return "it expects reasons of Unhealthy devices, which only vdev reports"
    return ""


# --- playing ----------------------------------------------------------------------------------------------------------


async def _play(options: NodeOptions, report: ScenarioReport) -> None:
    scenario, node = report.file.scenario, EmbeddedNode(options, report.log)
    try:
        async with node:
            for entry in node.kubelet.journal.entries:
                report.entry(entry)
            node.kubelet.journal.listen(report.entry)
            try:
                await play(scenario, node, patience=options.timeout, done=report.step)
            except ScenarioError as failed:
                of_step = failed.__cause__  # without the step's number, which is already reported
                report.failure = await node.explained(str(of_step if isinstance(of_step, VdevError) else failed))
            report.history = node.kubelet.journal.history(_HISTORY)
    except ScenarioError as failed:  # the plugin did not stop correctly
        report.failure = report.failure or str(failed)
    findings = node.kubelet.findings
    if not report.failure:  # a finding while the plugin stopped
        report.failure = "; ".join(str(each) for each in findings if node.counts(each))
    if not node.sees_slices and any(ANY in each.slices.values() for each in scenario.expectations):
        text = "no ResourceSlice was looked at: the driver was given no API server; name {kubeconfig} in --exec"
        report.remarks.append(text)
    report.remarks += [str(each) for each in findings if not node.counts(each)]
    report.end()


def _make_logs(given: Path | None, chosen: Sequence[ScenarioFile]) -> Path:
    """Create the directory for the plugin's output, and remove old logs. Blocks. Raises HostError."""
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
    """Let SIGTERM cancel this task, so that all started processes are stopped."""
    task = asyncio.current_task()
    assert task is not None
    try:
        with acting_on({signal.SIGTERM: task.cancel}):
            yield
    except asyncio.CancelledError:
        raise ScenarioError("ended by a signal before all scenarios were played") from None
