"""Partition layouts that a label of the Node selects, and their file, which is stored with the configuration."""

import pytest

from vdev.sim import manifest

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
def layouts(config_dir):
    """A file with one layout, in its own directory."""
    (config_dir / "layouts").mkdir()
    file = config_dir / "layouts" / "mig.yaml"
    file.write_text(LAYOUTS % ("3g.20gb", 2))
    return file


def said(agent):
    """The errors of the last reading."""
    return agent.agent.config.summary


async def test_edits_of_the_layout_file_are_applied(start_agent, kubelet, shows, layouts):
    """They are handled like edits of the configuration."""
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


async def test_the_layout_file_is_stored_with_the_configuration(kubelet, start_agent, shows, layouts):
    """If the file has errors at the start, the last good one is used."""
    agent = await start_agent(CONFIG)
    await shows(LARGE, 2, 2)
    await agent.stop()
    layouts.write_text("version: v2\n")
    agent = await start_agent(CONFIG, wait=False)
    await kubelet.wait_until(lambda: agent.agent.config.problems, what="the file's problem")
    await shows(LARGE, 2, 2)
    messages = [each.message for each in agent.agent.config.problems]
    assert any("'v2' is not allowed here" in each for each in messages)
    layouts.write_text(LAYOUTS % ("3g.20gb", 1))
    await shows(LARGE, 1, 1)


# --- the label --------------------------------------------------------------------------------------------------------

MIG, STATE = "nvidia.com/mig.config", "nvidia.com/mig.config.state"
OWN = CONFIG.replace("default: usual, file: layouts/mig.yaml", "default: all-disabled")
GPU = "nvidia.com/gpu"


@pytest.fixture
async def choose(api_server):
    """Set the label on the Node, or remove it."""
    await api_server.add("nodes", {"metadata": {"name": "node-1"}}, manager="kubelet")

    async def choose(value):
        await api_server.edit("nodes", "node-1", {"metadata": {"labels": {MIG: value}}}, manager="kubectl")

    return choose


@pytest.fixture
def told(api_server):
    """Wait for the state on the Node."""

    async def told(state):
        def current():
            return api_server.object("nodes", "node-1")["metadata"].get("labels", {}).get(STATE)

        await api_server.until(lambda: current() == state)

    return told


def written(api_server):
    """The states that were written, in order."""
    metadata = [each.body["metadata"] for each in api_server.asked if each.verb == "patch"]
    return [each.get("labels", {}).get(STATE) for each in metadata]


async def test_rules_about_pre_start_do_not_hinder_a_change_of_partitions(start_agent, shows, account, choose, told):
    """A resource with such a rule is removed at once with its partitions."""
    rule = "{name: slow, resource: '*', rpc: PreStartContainer, delay: 1ms}"
    agent = await start_agent(OWN + f"faults: {{rules: [{rule}]}}\n", api_server=account)
    for layout, resource, count in (("all-1g.5gb", SMALL, 7), ("all-3g.20gb", LARGE, 2)):
        await choose(layout)
        await shows(resource, count, count)
        await told("success")
    assert [] == [each for each in agent.logs if each["log_level"] == "error" or "exc_info" in each]


async def test_a_label_re_partitions_the_node(start_agent, kubelet, shows, api_server, account, choose, told):
    """The state is pending before partitions change. Without the label, the default is in force, without a state."""
    await start_agent(OWN, api_server=account)
    await shows(GPU, 1, 1)
    await choose("all-1g.5gb")
    await told("success")
    await shows(SMALL, 7, 7)
    await choose("all-3g.20gb")
    await shows(LARGE, 2, 2)
    await told("success")
    await choose(None)
    await shows(GPU, 1, 1)
    await told(None)
    assert ["pending", "success", "pending", "success", None] == written(api_server)
    assert [] == kubelet.errors


async def test_held_partitions_are_kept(start_agent, kubelet, shows, api_server, account, choose, told):
    """The reason names the pod. The state is failed until the value changes, also after a restart or the pod's end."""
    await choose("all-3g.20gb")
    agent = await start_agent(OWN, api_server=account)
    await shows(LARGE, 2, 2)
    await kubelet.run_pod(manifest("holder", {LARGE: 1}))
    await choose("all-1g.5gb")
    await told("failed")
    (problem,) = agent.agent.layouts.problems
    assert "pod default/holder holds 3g.20gb at slice" in problem.message
    assert problem in agent.agent.reconciler.problems
    await shows(LARGE, 2, 2)
    await agent.stop()
    agent = await start_agent(OWN, api_server=account)
    await kubelet.delete_pod("holder")
    await agent.settled(kubelet)
    await shows(LARGE, 2, 2)
    await told("failed")
    assert [problem.message] == [each.message for each in agent.agent.layouts.problems]
    await choose("all-2g.10gb")
    await shows("nvidia.com/mig-2g.10gb", 3, 3)
    await told("success")
    assert [] == kubelet.errors


async def test_a_label_that_is_removed_while_vdev_is_down(start_agent, shows, account, choose, told):
    """The label with its state is removed too."""
    agent = await start_agent(OWN, api_server=account)
    await choose("all-1g.5gb")
    await told("success")
    await agent.stop()
    await choose(None)
    await told("success")
    await start_agent(OWN, api_server=account)
    await told(None)
    await shows(GPU, 1, 1)


async def test_a_restart_without_an_api_server_keeps_the_layout(start_agent, shows, api_server, account, choose, told):
    """The last value of the label is recorded."""
    agent = await start_agent(OWN, api_server=account)
    await choose("all-1g.5gb")
    await told("success")
    await shows(SMALL, 7, 7)
    await agent.stop()
    await api_server.down()
    agent = await start_agent(OWN, api_server=account)
    await shows(SMALL, 7, 7)
    assert any("cannot be followed" in each.message for each in agent.agent.layouts.problems)
    await api_server.up()
    await choose("all-3g.20gb")
    await shows(LARGE, 2, 2)


async def test_the_label_of_amd(start_agent, shows, api_server, account, config_dir):
    """With the file format of AMD's device-config-manager. The labels of AMD's labeller stay."""
    label = "dcm.amd.com/gpu-config-profile"
    await api_server.add("nodes", {"metadata": {"name": "node-1"}}, manager="kubelet")
    modes = '[{"computePartition": "CPX", "memoryPartition": "NPS4", "numGPUsAssigned": 2}]'
    (config_dir / "config.json").write_text(f'{{"gpu-config-profiles": {{"cpx": {{"profiles": {modes}}}}}}}')
    partitions = f"partitions: {{fromLabel: {label}, file: config.json}}"
    entry = f"{{name: gpu, resource: amd.com/gpu, virtual: {{preset: mi300x, count: 2}}, {partitions}}}"
    text = f"node: {{labels: true}}\nflags: {{migStrategy: mixed}}\ndevices: [{entry}]\n"
    await start_agent(text, api_server=account)
    await shows("amd.com/spx_nps1", 2, 2)

    def labels():
        return api_server.object("nodes", "node-1")["metadata"]["labels"]

    for name, state in (("cpx", "success"), ("spx", "failure")):
        await api_server.edit("nodes", "node-1", {"metadata": {"labels": {label: name}}}, manager="kubectl")
        await api_server.until(lambda state=state: labels().get(f"{label}-state") == state)
        await shows("amd.com/cpx_nps4", 16, 16)
    assert any(each.startswith("amd.com/gpu.") for each in labels())


async def test_without_an_api_server_the_default_is_in_force(start_agent, shows):
    """There is a problem, and nothing fails."""
    agent = await start_agent(OWN)
    await shows(GPU, 1, 1)
    (problem,) = agent.agent.layouts.problems
    assert f"{MIG} cannot be followed" in problem.message
