"""A step that fails is a problem of its own, tried again with growing pauses."""

import asyncio
import itertools

import pytest
import structlog

from vdev.agent.steps import Steps
from vdev.aio.clock import ManualClock, Timing
from vdev.errors import HostError, InvariantBroken
from vdev.intervals import PRODUCTION, Intervals
from vdev.kube import NODES, ApiCall, Throttled

NOW = Intervals(retry_step_first=0.0, retry_step_most=0.0)


@pytest.fixture
def clock():
    """A clock."""
    return ManualClock()


def fail():
    """A defect."""
    raise IndexError("list index out of range")


def test_a_failure_is_told_once_and_over_when_it_is_done(clock):
    """A sentence in the problems and the log, the trace at debug alone; all gone when the step succeeds."""
    told = []
    steps = Steps(timing=Timing(clock=clock), on_change=lambda: told.append(steps.problems))
    with structlog.testing.capture_logs() as logs:
        for _ in range(3):
            assert not steps.do("reading x", fail)
            clock.advance(60)
        assert steps.do("reading y", list)
        assert steps.do("reading x", list)
    (problem,) = told[0]
    assert "vdev: reading x failed: IndexError: list index out of range" == str(problem).partition(";")[0]
    assert [(problem,), ()] == told
    assert () == steps.problems
    assert 1 == sum(line["log_level"] == "error" for line in logs)
    assert 3 == sum(isinstance(line.get("exc_info"), IndexError) for line in logs if line["log_level"] == "debug")


def test_a_server_that_asks_to_be_left_alone_is(clock):
    """So long, though the first pause of a step is short; what it does not say is nothing to go by."""
    steps = Steps(timing=Timing(clock=clock))

    def throttled(after):
        raise Throttled(ApiCall(verb="patch", kind=NODES), "busy", after=after)

    for after, least in ((None, 0), (1, 1), (90, 90), (86400, 600)):
        steps.do(f"writing {after}", lambda after=after: throttled(after))
        assert least <= steps.pause(f"writing {after}") <= max(least, 0.5)


def test_pauses_grow_and_others_do_not_wait(clock):
    """No attempt before its time, each pause longer than the one before up to a limit, and only for this step."""
    steps, pauses = Steps(timing=Timing(clock=clock)), []
    for _ in range(12):
        steps.do("reading x", fail)
        assert clock.now() + steps.pause("reading x") == steps.again_at(clock.now())
        pauses.append(steps.pause("reading x"))
        assert not steps.do("reading x", list)
        assert steps.do("reading y", list)
        clock.advance(pauses[-1] + 0.001)
    assert pauses[0] <= 0.5
    assert 2 < pauses[4] < 15 <= pauses[-1] <= 30
    assert steps.again_at(clock.now()) is None


def test_somebody_wants_it_now(clock):
    """A person who asks need not wait for the pause."""
    steps = Steps(timing=Timing(clock=clock))
    steps.do("reading x", fail)
    steps.hurry()
    assert steps.do("reading x", list)


@pytest.mark.parametrize(
    ("failed", "words"),
    [
        (HostError("/dev/x is no device"), "reading x failed: /dev/x is no device"),
        (OSError(24, "Too many open files", "/etc/x"), "reading x failed: Too many open files: /etc/x"),
        (ExceptionGroup("", [KeyError("a"), OSError("b")]), "reading x failed: KeyError: 'a'; OSError: b"),
    ],
)
def test_the_sentence(failed, words):
    """What went wrong stands in it; only what is a defect asks for a report."""
    steps = Steps()

    def work():
        raise failed

    steps.do("reading x", work)
    (problem,) = steps.problems
    assert words == problem.message
    assert ("report" in problem.hint) is isinstance(failed, ExceptionGroup)


@pytest.mark.parametrize(
    "broken", [InvariantBroken("x"), ExceptionGroup("", [ExceptionGroup("", [InvariantBroken("x")])])]
)
def test_a_broken_invariant_passes(broken):
    """It is no problem of the step, also when a group holds it."""
    steps = Steps()

    def work():
        raise broken

    with pytest.raises(type(broken)):
        steps.do("reading x", work)
    assert () == steps.problems


async def test_what_goes_on_begins_anew():
    """Work that is kept going begins again after each failure, until it ends by itself; repeated work never ends."""
    steps, runs = Steps(timing=Timing(NOW)), []

    async def work():
        runs.append(len(runs))
        if len(runs) < 4:
            raise OSError("x")

    await steps.keep("working", work)
    assert ([0, 1, 2, 3], ()) == (runs, steps.problems)

    async def more():
        runs.append(len(runs))
        if len(runs) == 10:
            raise InvariantBroken("enough")
        raise OSError("x")

    with pytest.raises(InvariantBroken):
        await steps.repeat("working", more)
    assert 10 == len(runs)


async def test_an_hour_of_failures(clock):
    """The first attempts follow soon, the later ones at the longest pause; what then runs for a while has succeeded."""
    steps, attempts, mended = Steps(timing=Timing(clock=clock)), [], asyncio.Event()

    async def work():
        attempts.append(clock.now())
        if clock.now() < 3600:
            raise OSError("x")
        mended.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(steps.keep("serving x", work))
    while not mended.is_set():
        await asyncio.sleep(0)
        if not mended.is_set() and clock.next_due is not None:
            clock.advance(clock.next_due - clock.now())
    pauses = [later - earlier for earlier, later in itertools.pairwise(attempts)]
    assert pauses[0] <= 0.5
    assert 15 <= pauses[-1] <= 30
    assert 120 < len(attempts) < 260
    assert steps.failed("serving x")
    clock.advance(PRODUCTION.steady)
    assert not steps.failed("serving x")
    task.cancel()
    await asyncio.wait([task])


async def test_a_cancellation_that_was_taken_for_a_failure_still_ends_it():
    """As gRPC does when a call fails by itself while its task is cancelled."""
    begun = asyncio.Event()

    async def work():
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise OSError("it failed at that very moment") from None

    for endless in (Steps().repeat, Steps().keep):
        begun.clear()
        task = asyncio.create_task(endless("asking", work))
        await begun.wait()
        task.cancel()
        async with asyncio.timeout(10):
            await asyncio.wait([task])
        assert task.cancelled()
