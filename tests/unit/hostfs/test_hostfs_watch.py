"""Watcher: reports changes in directories, by inotify or polling."""

import asyncio
import errno
import os
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path

import inotify_simple
import pytest

from vdev.hostfs.watch import Watcher

TIMEOUT = 60.0


@pytest.fixture(params=["inotify", "poll"])
async def watcher(request: pytest.FixtureRequest) -> AsyncIterator[Watcher]:
    """A watcher with inotify, and one that polls."""
    with closing(Watcher(poll_interval=0.02, inotify=request.param == "inotify")) as watcher:
        yield watcher


async def heard(watcher: Watcher, path: Path) -> None:
    """Wait for the next report about this directory."""
    async with asyncio.timeout(TIMEOUT):
        while path not in await watcher.changes():
            pass


async def settled(watcher: Watcher) -> None:
    """Wait until there are no more reports."""
    async with asyncio.timeout(TIMEOUT):
        while True:
            try:
                async with asyncio.timeout(0.2):
                    await watcher.changes()
            except TimeoutError:
                return


ACTIONS: dict[str, Callable[[Path], object]] = {
    "created": lambda directory: (directory / "new").write_text("x"),
    "deleted": lambda directory: (directory / "old").unlink(),
    "renamed over": lambda directory: (directory / "other").replace(directory / "old"),
    "written in place": lambda directory: (directory / "old").write_text("longer than before"),
    "swapped link": lambda directory: (directory / ".tmp").replace(directory / "..data"),
    "mode changed": lambda directory: (directory / "old").chmod(0o600),
}


@pytest.mark.parametrize("action", ACTIONS.values(), ids=ACTIONS.keys())
async def test_a_change_in_the_directory_is_reported(
    watcher: Watcher, tmp_path: Path, action: Callable[[Path], object]
) -> None:
    """Changes as those of editors, ConfigMap mounts and devtmpfs."""
    for name in ("old", "other"):
        (tmp_path / name).write_text(name)
    (tmp_path / "..data").symlink_to("one")
    (tmp_path / ".tmp").symlink_to("two")
    await watcher.follow({tmp_path: True})
    await settled(watcher)
    action(tmp_path)
    await heard(watcher, tmp_path)


@pytest.mark.parametrize("looked", [True, False], ids=["later", "before the first look"])
async def test_a_directory_behind_a_swapped_link_is_followed(watcher: Watcher, tmp_path: Path, *, looked: bool) -> None:
    """If a link in the path changes, the new directory is watched."""
    for name in ("one", "two"):
        (tmp_path / name / "dev").mkdir(parents=True)
    (tmp_path / "root").symlink_to("one")
    target = tmp_path / "root/dev"
    await watcher.follow({target: True})
    if looked:
        await settled(watcher)
    (tmp_path / "next").symlink_to("two")
    (tmp_path / "next").replace(tmp_path / "root")
    await heard(watcher, target)
    await settled(watcher)
    (tmp_path / "two/dev/x").touch()
    await heard(watcher, target)


async def test_follow_returns_new_directories(tmp_path: Path) -> None:
    """Callers read them after the watch starts. A directory that was not watched for a while is new again."""
    with closing(Watcher()) as watcher:
        for _ in range(2):
            assert {tmp_path} == await watcher.follow({tmp_path: True})
            assert not await watcher.follow({tmp_path: False})
            assert not await watcher.follow({})


async def test_without_inotify_it_polls(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The limits have the reason."""

    def full(**_options: object) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(inotify_simple, "INotify", full)
    with closing(Watcher(poll_interval=0.02)) as watcher:
        await watcher.follow({tmp_path: True})
        await settled(watcher)
        (tmp_path / "x").touch()
        await heard(watcher, tmp_path)
        assert ["no inotify (Too many open files)"] == [limit.partition(":")[0] for limit in watcher.limits]


@pytest.mark.parametrize(("number", "limited"), [(errno.ENOSPC, True), (errno.EACCES, False)])
async def test_a_directory_without_a_watch_is_polled(
    number: int, limited: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The user has no watches left, or the directory is not readable."""
    with closing(Watcher(poll_interval=0.02)) as watcher:

        def full(*_arguments: object) -> int:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(watcher._inotify, "add_watch", full)
        await watcher.follow({tmp_path: True})
        await settled(watcher)
        (tmp_path / "x").touch()
        await heard(watcher, tmp_path)
        assert os.strerror(number) in watcher.limits[0]
        assert limited == ("max_user_watches" in watcher.limits[0])


@pytest.mark.parametrize(
    ("name", "poll_interval", "inotify"),
    [(".state.json.x7.tmp", 60.0, True), ("kubelet_checkpoint", 0.02, True), ("kubelet_checkpoint", 0.02, False)],
)
async def test_ignored_files(tmp_path: Path, name: str, poll_interval: float, *, inotify: bool) -> None:
    """Files before they are renamed, and the kubelet's checkpoint, next to its socket, which changes with each pod.

    Otherwise each failed write would cause an event and a reconciliation that writes again.
    """
    with closing(Watcher(poll_interval=poll_interval, inotify=inotify, ignored="checkpoint")) as watcher:
        await watcher.follow({tmp_path: True})
        await settled(watcher)
        (tmp_path / name).write_text("half")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await watcher.changes()
        (tmp_path / name).rename(tmp_path / "finished")
        await heard(watcher, tmp_path)


async def test_an_overflow_reports_every_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel has dropped events."""
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    with closing(Watcher()) as watcher:
        await watcher.follow({one: True, two: True})
        await settled(watcher)
        overflow = inotify_simple.Event(-1, inotify_simple.flags.Q_OVERFLOW, 0, "")
        real = watcher._inotify.read
        monkeypatch.setattr(watcher._inotify, "read", lambda timeout: [overflow, *real(timeout)])
        (one / "x").touch()
        changes = await watcher.changes()
    assert {one, two} == changes
