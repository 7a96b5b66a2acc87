"""The informer: lists, watches, and their failures."""

import asyncio
import contextlib

import pytest

from vdev.aio.clock import LeapClock
from vdev.kube.errors import Unreachable
from vdev.kube.informer import Informer
from vdev.kube.objects import NODES


class Seen:
    """Records the changes and errors of an informer as short texts."""

    def __init__(self):
        self.told = []
        self.errors = []
        self.informer = None

    async def follow(self, api, kind=NODES, **options):
        """Run the informer."""
        self.informer = Informer(api, kind, keep=shown, on_change=self._change, on_look=self._look, **options)
        await self.informer.run()

    @property
    def there(self):
        """The present objects."""
        return sorted(self.informer.objects.values())

    def _change(self, old, new):
        self.told.append(new or f"removed {old}")

    def _look(self):
        trouble = self.informer.trouble
        if trouble is not None:
            self.errors.append(trouble)
            self.told.append("lost")
        elif "lost" in self.told and "back" not in self.told[-1:]:
            self.told.append("back")


def shown(document):
    """Name and label of an object."""
    return document["metadata"]["name"] + ":" + (document["metadata"].get("labels") or {}).get("v", "")


def node(name, value=""):
    """A node with a label."""
    return {"metadata": {"name": name, "labels": {"v": value}}}


@pytest.fixture
async def follow(api_server):
    """Run an informer in a task that ends with the test."""
    async with contextlib.AsyncExitStack() as stack:

        async def start(api, kind=NODES, **options):
            seen, before = Seen(), api_server.watching
            task = asyncio.create_task(seen.follow(api, kind, **options))

            async def end():
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task

            stack.push_async_callback(end)
            await api_server.until(lambda: task.done() or api_server.watching > before)
            if task.done():
                task.result()
            seen.task = task
            return seen

        yield start


async def test_existing_objects_and_changes(api_server, api, follow):
    """They take one list and one watch."""
    await api_server.add("nodes", node("a", "1"))
    seen = await follow(api)
    await api_server.edit("nodes", "a", node("a", "2"))
    await api_server.add("nodes", node("b"))
    await api_server.remove("nodes", "a")
    await api_server.until(lambda: len(seen.told) == 4)
    assert ["a:1", "a:2", "b:", "removed a:2"] == seen.told
    assert ["b:"] == seen.there
    assert ["list", "watch"] == [each.verb for each in api_server.asked]
    assert 0 == api_server.writes


async def test_a_field_selector(api_server, api, follow):
    await api_server.add("nodes", node("a"))
    await api_server.add("nodes", node("b"))
    one = await follow(api, fields={"metadata.name": "a"})
    await api_server.edit("nodes", "b", node("b", "no"))
    await api_server.edit("nodes", "a", node("a", "yes"))
    await api_server.until(lambda: len(one.told) == 2)
    assert ["a:", "a:yes"] == one.told


async def test_a_server_that_restarts_during_a_watch(api_server, api, follow):
    """No change is missed."""
    await api_server.add("nodes", node("a", "1"))
    seen = await follow(api)
    await api_server.down()
    await api_server.until(lambda: "lost" in seen.told)
    await api_server.edit("nodes", "a", node("a", "2"))
    await api_server.up()
    await api_server.until(lambda: len(seen.told) == 4)
    assert ["a:1", "lost", "a:2", "back"] == seen.told
    assert isinstance(seen.errors[0], Unreachable)


@pytest.mark.parametrize("rest", [b"", b'{"type": "MODIFIED", "obj', b"no JSON\n", b'{"type": "BOOKMARK"}\n'])
async def test_a_watch_that_breaks(api_server, api, follow, rest):
    """Also in the middle of a line, or after an invalid one."""
    await api_server.add("nodes", node("a", "1"))
    seen = await follow(api)
    api_server.break_watches(rest)
    await api_server.until(lambda: "back" in seen.told)
    await api_server.edit("nodes", "a", node("a", "2"))
    await api_server.until(lambda: "a:2" in seen.told)
    assert ["a:1", "lost", "back", "a:2"] == seen.told


async def test_an_expired_version(api_server, api, follow):
    """After 410, the informer lists again at once."""
    await api_server.add("nodes", node("a", "1"))
    seen = await follow(api)
    await api_server.down()
    await api_server.edit("nodes", "a", node("a", "2"))
    api_server.expire()
    await api_server.up()
    await api_server.until(lambda: "a:2" in seen.told)
    await api_server.edit("nodes", "a", node("a", "3"))
    await api_server.until(lambda: "a:3" in seen.told)
    assert "a:1" == seen.told[0]


async def test_a_watch_ends_after_some_minutes(api_server, start_api, follow):
    """Then it is opened again, from the last version. So a connection that is silently dead does no harm."""
    clock = LeapClock()
    await api_server.add("nodes", node("a", "1"))
    api = await start_api(clock=clock)
    seen = await follow(api)
    clock.advance(360)
    await api_server.until(lambda: sum(each.verb == "watch" for each in api_server.asked) == 2)
    await api_server.edit("nodes", "a", node("a", "2"))
    await api_server.until(lambda: len(seen.told) == 2)
    assert ["a:1", "a:2"] == seen.told
    assert ["list", "watch", "watch"] == [each.verb for each in api_server.asked]


async def test_a_token_that_is_replaced_during_a_watch(api_server, api, account, follow):
    """The watch continues."""
    await api_server.add("nodes", node("a", "1"))
    seen = await follow(api)
    account.token.write_text("fresh")
    api_server.tokens = {"fresh"}
    await api.get(NODES, "a")
    await api_server.edit("nodes", "a", node("a", "2"))
    await api_server.until(lambda: "a:2" in seen.told)
    assert ["a:1", "a:2"] == seen.told


async def test_the_answer_to_a_write_updates_the_cache(api_server, api, follow):
    """Neither the watch nor an older version reports the change again."""
    made = await api_server.add("nodes", node("a", "1"))
    seen = await follow(api)
    seen.informer.wrote(await api.patch(NODES, "a", {"metadata": {"labels": {"v": "2"}}}))
    seen.informer.wrote(made)
    await api_server.add("nodes", node("b"))
    await api_server.until(lambda: "b:" in seen.told)
    assert ["a:1", "a:2", "b:"] == seen.told
    assert ["a:2", "b:"] == seen.there


async def test_an_answer_that_comes_after_the_object_was_deleted(api_server, api, follow):
    """The watch may be faster than the answer to a write. A deleted object does not come back."""
    seen = await follow(api)
    old = await api_server.add("nodes", node("a", "1"))
    await api_server.until(lambda: ["a:1"] == seen.there)
    await api_server.remove("nodes", "a")
    await api_server.until(lambda: [] == seen.there)
    seen.informer.wrote(old)
    assert [] == seen.there
    new = await api_server.add("nodes", node("a", "2"))
    seen.informer.wrote(new)
    assert ["a:2"] == seen.there


async def test_a_server_with_a_new_store(api_server, start_api, follow):
    """Its versions start again, so cached objects must not count as newer. They are removed."""
    clock = LeapClock()
    for name in "abc":
        await api_server.add("nodes", node(name, "1"))
    api = await start_api(clock=clock)
    seen = await follow(api)
    seen.informer.wrote(await api.patch(NODES, "a", {"metadata": {"labels": {"v": "2"}}}))
    await api_server.add("nodes", node("d"))
    await api_server.until(lambda: "d:" in seen.told)
    await api_server.down()
    api_server.lose_store()
    await api_server.up()

    def over():
        clock.advance(0.1)
        return not seen.there

    await api_server.until(over)


async def test_an_event_that_the_library_cannot_read(api_server, api, follow):
    """The library takes U+0085 for the end of a line, also in a string; the objects are then listed again."""
    await api_server.add("nodes", node("a", "1"))
    seen = await follow(api)
    await api_server.edit("nodes", "a", {"metadata": {"labels": {"v": "2"}, "annotations": {"odd": "x\x85y"}}})
    await api_server.until(lambda: seen.there == ["a:2"])
    assert ["a:1", "lost", "a:2", "back"] == seen.told
