import asyncio

import pytest
import structlog

from vdev.agent.config_files import FileChooser
from vdev.aio.clock import ManualClock, Timing
from vdev.errors import ConfigError
from vdev.intervals import PRODUCTION


class Label:
    """A node's label that the test sets."""

    def __init__(self, value="", trouble="", key="vdev.dev/config"):
        self.key, self.value, self.trouble, self.answered = key, value, trouble, True
        self.reads = 0
        self.on_change = None

    async def read(self):
        """Nothing new."""
        self.reads += 1
        return False

    def use(self, on_change):
        """Whom to tell."""
        self.on_change = on_change


@pytest.fixture
def directory(tmp_path):
    """Files for several nodes."""
    for name in ("a100.yaml", "default.yaml", "worker-1.yaml"):
        (tmp_path / name).write_text("version: v1\n")
    return tmp_path


async def test_plain_files_are_taken_as_they_are(tmp_path):
    """Without a directory nobody asks for a label, and a missing file is the reader's affair."""
    file = tmp_path / "vdev.yaml"
    chosen = await FileChooser([file], "n", label=None).choose()
    assert ((file,), ()) == (chosen.files, chosen.why)


async def test_a_path_that_cannot_be_looked_at_is_left_to_the_reader(tmp_path):
    """A name longer than any file's stops nothing here; reading it says what is wrong."""
    file = tmp_path / ("y" * 300)
    assert (file,) == (await FileChooser([file], "n").choose()).files


async def test_a_directory_and_a_file(directory, tmp_path):
    """Each directory gives one file, in the place where the directory stood."""
    other = tmp_path / "flags.yaml"
    chosen = await FileChooser([directory, other], "worker-1", label=Label()).choose()
    assert (directory / "worker-1.yaml", other) == chosen.files
    assert ["worker-1.yaml"] == [why.file for why in chosen.why]


async def test_the_choice_is_logged_once(directory):
    """What was chosen and why is said when it changes, not at each reading."""
    chooser = FileChooser([directory], "worker-1", label=Label("a100"))
    with structlog.testing.capture_logs() as logs:
        await chooser.choose()
        await chooser.choose()
    assert [("a100.yaml", "the node's label vdev.dev/config=a100")] == [(each["file"], each["by"]) for each in logs]


async def test_an_unknown_label_is_an_error_and_keeps_the_choice(directory):
    """A label that names no file raises, and what was chosen before stays."""
    label = Label("a100")
    chooser = FileChooser([directory], "worker-1", label=label)
    await chooser.choose()
    label.value = "h100"
    with pytest.raises(ConfigError, match="h100 names no file; did you mean 'a100'"):
        await chooser.choose()
    assert (directory / "a100.yaml",) == chooser.chosen.files


async def test_trouble_with_the_label_is_in_the_reason(directory):
    """A label that cannot be read is said where the choice is explained."""
    label = Label(trouble="the service account may not get nodes")
    chosen = await FileChooser([directory], "worker-2", label=label).choose()
    assert "default.yaml" == chosen.files[0].name
    assert "may not get nodes" in chosen.why[0].reason


async def test_the_label_is_followed_where_there_is_a_directory(directory, tmp_path):
    """Once, after the first choice has waited for it; its changes are told."""
    label, told = Label(), []
    plain = FileChooser([tmp_path / "vdev.yaml"], "worker-2", label=label, on_change=lambda: told.append(1))
    await plain.choose()
    assert (0, None) == (label.reads, label.on_change)
    chooser = FileChooser([directory], "worker-2", label=label, on_change=lambda: told.append(1))
    await chooser.choose()
    await chooser.choose()
    label.value = "a100"
    label.on_change()
    assert ("a100.yaml", [1], 1) == ((await chooser.choose()).files[0].name, told, label.reads)


async def test_a_label_that_is_not_told_yet(directory):
    """The first choice has some patience: without the label it would be another one."""

    class Late(Label):
        async def read(self):
            """The second answer comes."""
            self.reads += 1
            self.answered = self.reads == 2
            self.value = "a100" if self.answered else ""

    label, clock = Late(), ManualClock()
    task = asyncio.create_task(FileChooser([directory], "worker-2", label=label, timing=Timing(clock=clock)).choose())
    async with asyncio.timeout(30):
        while not task.done():
            await asyncio.sleep(0)
            clock.advance(PRODUCTION.retry_label)
    assert ("a100.yaml", 2) == (task.result().files[0].name, label.reads)


class Silent(Label):
    """A label of which the API server says nothing until the test does."""

    def __init__(self):
        super().__init__()
        self.answered = False

    async def read(self):
        """No answer."""
        self.reads += 1
        await asyncio.Event().wait()

    def tell(self, value):
        """The answer is here."""
        self.answered, self.value = True, value
        self.on_change()


@pytest.mark.parametrize(("value", "wanted"), [("a100", "a100"), ("", "default")])
async def test_the_last_choice_is_taken_before_the_label_is_told(directory, value, wanted):
    """A silent API server delays the start by a second alone; what it says then counts, also that there is no label."""

    async def last():
        return frozenset({directory / "worker-1.yaml"})

    label, clock, told = Silent(), ManualClock(), []
    chooser = FileChooser(
        [directory], "n", label=label, last=last, on_change=lambda: told.append(1), timing=Timing(clock=clock)
    )
    task = asyncio.create_task(chooser.choose())
    async with asyncio.timeout(30):
        while not label.reads:
            await asyncio.sleep(0)
        clock.advance(PRODUCTION.retry_label)
        chosen = await task
    assert ([directory / "worker-1.yaml"], 1) == ([*chosen.files], label.reads)
    assert "before" in chosen.why[0].reason
    label.tell(value)
    assert (directory / f"{wanted}.yaml", [1]) == ((await chooser.choose()).files[0], told)


async def test_a_last_choice_that_is_gone(directory):
    """A file that is there no more, or was chosen from elsewhere, is no choice."""

    async def last():
        return frozenset({directory / "gone.yaml", directory.parent / "default.yaml"})

    label = Label("a100")
    label.answered = False
    assert "a100.yaml" == (await FileChooser([directory], "n", label=label, last=last).choose()).files[0].name
