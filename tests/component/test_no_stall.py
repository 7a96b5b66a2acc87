"""Nothing that concerns many devices keeps the event loop: all who ask for a device are answered meanwhile."""

import asyncio
import itertools
import socket

import pytest

from tests.kit import loop_watch
from vdev.agent import command_socket

MANY = 10_000
ROUNDS = 3  # of which the best counts: a processor may be slow for a moment
SLACK = 2.0  # times the limit, where others use the machine; what goes over all devices at once takes ten times it

CONFIG = """
version: v1
flags: {{plugin: {{deviceListStrategy: [{strategy}]}}}}
devices:
  - name: d
    resource: acme.dev/many
    virtual: {{count: {count}, memory: {memory}Gi, numa: 0}}
    container: {{env: {{ACME: "{memory}"}}}}
  - name: one
    resource: acme.dev/many
    virtual: {{count: 1}}
    health: {{probe: file, path: {state}, interval: 50ms}}
  - {{name: few, resource: acme.dev/few, virtual: {{count: {few}}}}}
"""


@pytest.fixture
async def start_busy(start_agent, directory):
    """Start an agent with many devices that serves without a kubelet; gives it, and a way to edit its file.

    A kubelet would decode its lists in the same loop.
    """

    async def start(template, **said):
        numbers = itertools.count(1)
        options = {"kubelet_socket": None, "run_dir": directory / "run"}
        running = await start_agent(template.format(few=1, **said), wait=False, **options)

        async def edit(**change):
            """It is served, and the turn that did it is over."""
            said.update(change)
            applied = running.agent.config.status.applied
            running.edit(template.format(few=next(numbers) % 7 + 2, **said))
            await until(lambda: running.agent.config.status.applied > applied)
            turns = running.agent.turns
            running.agent.pending.add()  # one more, in case that one is over already
            await until(lambda: running.agent.turns > turns)

        await until(lambda: running.agent.reconciler.published)
        return running, edit

    return start


@pytest.fixture
async def busy(start_busy, directory):
    """One with a resource of many devices, one of which has a probe."""
    (directory / "works").touch()
    return await start_busy(CONFIG, count=MANY, memory=1, strategy="envvar", state=directory / "works")


async def until(condition):
    """Wait for it."""
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)


async def judged(monkeypatch, work):
    """Do the work a few times; the longest callback of the best time must be within the limit."""
    rounds = []
    for _ in range(ROUNDS):
        with loop_watch.watching(monkeypatch) as longest:
            await work()
        rounds.append(longest)
        if longest.times <= SLACK:
            return
    best = min(rounds, key=lambda each: each.times)
    assert best.times <= SLACK, str(best)


async def test_an_edit(busy, monkeypatch):
    """One device more, others for all, another entry: what differs is found out, encoded and told in pieces."""
    _, edit = busy
    counts, memories = itertools.cycle([MANY + 1, MANY]), itertools.count(2)
    await judged(monkeypatch, lambda: edit(count=next(counts)))
    await judged(monkeypatch, lambda: edit(memory=next(memories)))
    await judged(monkeypatch, edit)


async def test_the_status(busy, directory, monkeypatch):
    """Somebody asks for it, in a process of his own."""
    reply = directory / "run" / command_socket.SOCKET
    await judged(monkeypatch, lambda: asyncio.to_thread(asked, reply))


def asked(path):
    """The whole reply, unread."""
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
        client.sendall(b'{"do": "status"}\n')
        received = 0
        while some := client.recv(2**20):
            received += len(some)
    assert received > MANY * 100
