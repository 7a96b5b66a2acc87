"""Layouts that a label of the node chooses among: their file is read with the configuration, and kept with it."""

import pytest

CONFIG = """\
version: v1
flags: {migStrategy: mixed}
devices:
  - name: gpu
    resource: nvidia.com/gpu
    virtual: {preset: a100-sxm4-40gb}
    partitions: {fromLabel: nvidia.com/mig.config, default: usual, file: layouts/mig.yaml}
"""
LAYOUTS = 'version: v1\nmig-configs:\n  usual: [{devices: all, mig-enabled: true, mig-devices: {"%s": %d}}]\n'
LARGE, SMALL = (f"nvidia.com/mig-{profile}" for profile in ("3g.20gb", "1g.5gb"))


@pytest.fixture
def layouts(directory):
    """The file of layouts, in a directory of its own, with one layout in it."""
    (directory / "layouts").mkdir()
    file = directory / "layouts" / "mig.yaml"
    file.write_text(LAYOUTS % ("3g.20gb", 2))
    return file


def said(agent):
    """What was wrong with the last reading."""
    return agent.agent.config.status.summary


async def test_the_file_of_layouts_is_read_again_when_it_changes(start_agent, kubelet, shows, layouts):
    """Good and bad edits of it are edits of the configuration."""
    agent = await start_agent(CONFIG)
    await shows(LARGE, 2, 2)
    layouts.write_text(LAYOUTS % ("1g.5gb", 7))
    await shows(SMALL, 7, 7)
    layouts.write_text(LAYOUTS % ("1g.5gb", 8))
    await kubelet.wait_until(lambda: "the layout 'usual' does not fit" in said(agent), what="the edit to be refused")
    layouts.unlink()
    await kubelet.wait_until(lambda: "mig.yaml: cannot be read" in said(agent), what="the file to be missed")
    await shows(SMALL, 7, 7)
    layouts.write_text(LAYOUTS % ("3g.20gb", 1))
    await shows(LARGE, 1, 1)
    assert [] == kubelet.errors


async def test_a_preset_of_ones_own_is_read_again_when_it_changes(start_agent, shows, directory):
    """Whatever the configuration took is part of it."""
    (directory / "mine").mkdir()
    (directory / "mine" / "lab.yaml").write_text("count: 2\n")
    await start_agent("presetsDir: mine\ndevices: [{name: a, resource: a.b/c, virtual: {preset: lab}}]\n")
    await shows("a.b/c", 2, 2)
    (directory / "mine" / "lab.yaml").write_text("count: 3\n")
    await shows("a.b/c", 3, 3)


async def test_the_file_of_layouts_is_kept_with_the_configuration(start_agent, shows, layouts):
    """A start that finds it bad goes by the last good one."""
    agent = await start_agent(CONFIG)
    await shows(LARGE, 2, 2)
    await agent.stop()
    layouts.write_text("version: v2\n")
    agent = await start_agent(CONFIG, wait=False)
    await shows(LARGE, 2, 2)
    assert "unknown version" in agent.agent.config.status.problems[-1].message
    layouts.write_text(LAYOUTS % ("3g.20gb", 1))
    await shows(LARGE, 1, 1)
