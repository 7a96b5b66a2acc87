"""Actions when a device gets another holder, and before a container starts."""

import asyncio
import os
import stat

from vdev.hostfs import HostRoot
from vdev.sim import manifest

NPU = "acme.dev/npu"


def config(block, count=1):
    return f"""
version: v1
devices:
  - name: acme
    resource: {NPU}
    virtual: {{count: {count}}}
    {block}
"""


def lines(path):
    return path.read_text().splitlines() if path.exists() else []


def writes(path, word="{id}"):
    """A command that appends a word to a file."""
    return f"{{command: [/bin/sh, -c, 'echo $0 >> {path}', '{word}']}}"


async def test_actions_run_once_for_each_change_of_the_holder(kubelet, start_agent, directory):
    """Each of two pods causes one onAllocate and one onRelease."""
    told = directory / "told"
    block = f"onAllocate: [{writes(told, 'got {id}')}]\n    onRelease: [{writes(told, 'back {id}')}]"
    agent = await start_agent(config(block))
    for pod in "ab":
        await kubelet.run_pod(manifest(pod, {NPU: 1}))
        await kubelet.wait_until(lambda: lines(told)[-1:] == ["got acme-0"], what="onAllocate")
        await kubelet.delete_pod(pod)
        await kubelet.wait_until(lambda: lines(told)[-1:] == ["back acme-0"], what="onRelease")
    assert ["got acme-0", "back acme-0"] * 2 == lines(told)
    await kubelet.wait_until(lambda: agent.agent.handovers.done == 4, what="the count")
    assert 0 == agent.agent.handovers.failed


async def test_a_restart_repeats_no_action(kubelet, start_agent, directory):
    """A new process does not run onAllocate for pods that had their devices before, but runs their onRelease."""
    told = directory / "told"
    block = f"onAllocate: [{writes(told, 'got')}]\n    onRelease: [{writes(told, 'back')}]"
    agent = await start_agent(config(block))
    await kubelet.run_pod(manifest("a", {NPU: 1}))
    await kubelet.wait_until(lambda: kubelet.pod("a").container().running, what="the container, after onAllocate")
    await agent.stop()
    agent = await start_agent(config(block))
    await agent.agent.read_holders()  # again: a reading before the registration counts as one of another kubelet
    await agent.has_named(kubelet)
    await kubelet.delete_pod("a")
    await kubelet.wait_until(lambda: lines(told)[1:], what="onRelease")
    assert ["got", "back"] == lines(told)


async def test_a_kubelet_restart_releases_nothing(kubelet, start_agent, directory):
    """A kubelet that does not know its pods yet lists none; the agent does not trust this at once."""
    told = directory / "told"
    block = f"onAllocate: [{writes(told, 'got')}]\n    onRelease: [{writes(told, 'back')}]"
    agent = await start_agent(config(block), kubelet_grace=3600.0)
    await kubelet.run_pod(manifest("a", {NPU: 1}))
    await kubelet.wait_until(lambda: lines(told) == ["got"], what="onAllocate")
    holders = agent.agent.holders
    seen = holders.known.kubelet
    await kubelet.restart()
    await kubelet.wait_until(lambda: holders.known.kubelet != seen, what="the new kubelet")
    assert {(NPU, "acme-0"): "default/a"} == holders.known.pods
    await kubelet.wait_until(lambda: (NPU, "acme-0") not in holders.known.unlisted, what="the kubelet to name its pod")
    assert ["got"] == lines(told)
    await kubelet.delete_pod("a")
    await kubelet.wait_until(lambda: lines(told) == ["got", "back"], what="onRelease")


async def test_a_failed_action_is_reported(kubelet, start_agent, directory):
    """The pod runs, the next action runs, and log, status and metric have the failure."""
    told = directory / "told"
    failing = "{command: [/bin/sh, -c, 'echo no such thing; exit 3']}"
    agent = await start_agent(config(f"onAllocate: [{failing}, {writes(told)}]"))
    await kubelet.run_pod(manifest("a", {NPU: 1}))
    await kubelet.wait_until(lambda: agent.agent.handovers.status()["done"], what="the second action")
    assert lines(told)
    status = agent.agent.handovers.status()
    assert (1, 1) == (status["done"], status["failed"])
    assert "sh exited with 3: no such thing" == status["failures"][0]["reason"]
    assert "default/a" == status["failures"][0]["pod"]
    labels = {"resource": NPU, "occasion": "onAllocate", "result": "failed"}
    assert 1 == agent.agent.metrics.registry.get_sample_value("vdev_actions_total", labels)
    assert any(each["event"] == "action failed" for each in agent.logs)


async def test_a_hanging_action_is_killed_with_its_children(kubelet, start_agent, directory):
    """The whole process group is killed after the timeout."""
    pids = directory / "pids"
    command = f"[/bin/sh, -c, 'sleep 1000 & echo $! > {pids}; echo $$ >> {pids}; wait']"
    agent = await start_agent(config(f"onAllocate: [{{command: {command}, timeout: 300ms}}]"))
    await kubelet.run_pod(manifest("a", {NPU: 1}))
    await kubelet.wait_until(lambda: agent.agent.handovers.failed, what="the timeout")
    assert "/bin/sh took longer than 0.3 s" == agent.agent.handovers.failures[0]["reason"]
    await kubelet.wait_until(lambda: not any(map(_runs, lines(pids))), what="the end of its processes")


def _runs(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().split(")")[1].split()[0] != "Z"
    except OSError:
        return False


async def test_a_command_gets_path_alone_from_the_environment(kubelet, start_agent, directory, monkeypatch):
    """The agent's environment may have secrets."""
    monkeypatch.setenv("SECRET", "s")
    told = directory / "told"
    await start_agent(config(f"onAllocate: [{{command: [/bin/sh, -c, '/usr/bin/env > {told}']}}]"))
    await kubelet.run_pod(manifest("a", {NPU: 1}))
    await kubelet.wait_until(lambda: lines(told), what="the action")
    assert {"PATH", "PWD", "_", "SHLVL", "OLDPWD"} >= {line.partition("=")[0] for line in lines(told)}


async def test_truncate_and_chmod(kubelet, start_agent, directory):
    """They work below the host root, and follow links inside it."""
    host = directory / "host"
    (host / "var").mkdir(parents=True)
    (host / "var/acme-0").write_text("old")
    (host / "var/link").symlink_to("/var/acme-0")
    block = 'onAllocate: [{truncate: "/var/{id}"}, {chmod: /var/link, mode: "0640"}]'
    agent = await start_agent(config(block), host=HostRoot(host))
    await kubelet.run_pod(manifest("a", {NPU: 1}))
    await kubelet.wait_until(lambda: agent.agent.handovers.done == 2, what="the actions")
    assert "" == (host / "var/acme-0").read_text()
    assert 0o640 == stat.S_IMODE((host / "var/acme-0").stat().st_mode)


REFUSED = {
    "{truncate: /var}": "refused to empty /var: it is not a plain file",
    "{truncate: /pipe}": "refused to empty /pipe: it is not a plain file",
    '{chmod: /var, mode: "0777"}': "refused to set the mode of /var: it is not a plain file or a device node",
    "{truncate: /nothing}": "cannot empty /nothing: No such file or directory",
    "{truncate: /out}": "cannot empty /out: No such file or directory",
}


async def test_truncate_and_chmod_refuse_other_paths(kubelet, start_agent, directory):
    """Directories, pipes, and links that lead out of the host root are not changed."""
    host = directory / "host"
    (host / "var").mkdir(parents=True)
    os.mkfifo(host / "pipe")
    outside = directory / "outside"
    outside.write_text("kept")
    (host / "out").symlink_to(outside)
    agent = await start_agent(config(f"onAllocate: [{', '.join(REFUSED)}]"), host=HostRoot(host))
    await kubelet.run_pod(manifest("a", {NPU: 1}))
    await kubelet.wait_until(lambda: agent.agent.handovers.failed == len(REFUSED), what="the refusals")
    assert {*REFUSED.values()} == {each["reason"] for each in agent.agent.handovers.failures}
    assert "kept" == outside.read_text()


async def test_a_device_whose_path_contains_dots_is_unhealthy(kubelet, start_agent, shows):
    """An attribute with `..` would make an action's path leave its directory, so the device is not allocated."""
    block = "onAllocate: [{truncate: '/var/{attributes.x}'}]"
    text = config(block).replace("count: 1", "count: 1, attributes: {x: ../secret}")
    agent = await start_agent(text, wait=False)
    await shows(NPU, 1, 0)
    (slot,) = agent.agent.reconciler.advertised.resources[NPU].slots
    assert "would be '/var/../secret', which contains '..'" in slot.health.reason


async def test_a_failed_pre_start_keeps_the_container_from_starting(kubelet, start_agent):
    """The pod's event has the error."""
    agent = await start_agent(config("preStart: [{command: [/bin/sh, -c, 'echo no firmware; exit 1']}]"))
    pod = await kubelet.run_pod(manifest("a", {NPU: 1}))
    said = f"{pod} {list(kubelet.events)}"
    assert "preStart of device acme-0 (acme.dev/npu) failed: sh exited with 1: no firmware" in said
    assert 1 <= agent.agent.handovers.failed


async def test_a_hanging_action_does_not_delay_allocations(kubelet, start_agent, shows):
    """Other pods get their devices, and the agent ends promptly."""
    agent = await start_agent(config("onAllocate: [{command: [/bin/sleep, '1000'], timeout: 1h}]", count=2))
    starting = [asyncio.create_task(kubelet.run_pod(manifest(pod, {NPU: 1}))) for pod in "ab"]
    await kubelet.wait_until(lambda: len(agent.agent.handovers._running) == 2, what="the actions")
    async with asyncio.timeout(20):
        assert 0 == await agent.stop()
    for each in starting:
        each.cancel()
    await asyncio.gather(*starting, return_exceptions=True)


# --- releases before the next container -------------------------------------------------------------------------------

BOTH = "onAllocate: [{got}]\n    onRelease: [{back}]\n    preStart: [{started}]"


def both(told, back=""):
    """Actions that write a word each. The release first runs `back`."""
    release = f"{{command: [/bin/sh, -c, '{back}echo back >> {told}']}}"
    return BOTH.format(got=writes(told, "got"), back=release, started=writes(told, "started"))


async def test_a_release_ends_before_the_next_container_starts(kubelet, start_agent, directory):
    """Also if the next pod is created at once."""
    told = directory / "told"
    await start_agent(config(both(told)), look_at_holders_for_actions=3600.0, admission=3600.0)
    for number in range(5):
        await kubelet.run_pod(manifest(f"pod-{number}", {NPU: 1}))
        assert [*["got", "started", "back"] * number, "got", "started"] == lines(told)
        await kubelet.delete_pod(f"pod-{number}")


async def test_a_slow_release_delays_the_next_container(kubelet, start_agent, directory, monkeypatch):
    """The pod's event names the release. The container starts after it."""
    monkeypatch.setattr("vdev.agent.handovers.PRE_START_LIMIT", 2.0)
    told, gate = directory / "told", directory / "gate"
    await start_agent(config(both(told, f"while [ ! -e {gate} ]; do sleep 0.05; done; ")))
    await kubelet.run_pod(manifest("a", {NPU: 1}))
    await kubelet.delete_pod("a")
    pod = await kubelet.run_pod(manifest("b", {NPU: 1}))
    said = f"{pod} {list(kubelet.events)}"
    assert "device acme-0 (acme.dev/npu): onRelease after pod default/a has not ended yet" in said
    assert ["got", "started"] == lines(told)
    gate.touch()
    await kubelet.wait_until(lambda: lines(told)[2:], what="the release")
    monkeypatch.undo()
    await kubelet.restart_container("b")
    assert ["got", "started", "back", "got", "started"] == lines(told)


async def test_a_failed_release_makes_the_device_unhealthy(kubelet, start_agent, directory, shows):
    """The release is retried. The device is Healthy when it succeeds."""
    told, gate = directory / "told", directory / "gate"
    block = both(told, f"test -e {gate} || echo locked; test -e {gate} || exit 1; ")
    agent = await start_agent(config(block), retry_step_first=0.05, retry_step_most=0.05)
    await kubelet.run_pod(manifest("a", {NPU: 1}))
    await kubelet.delete_pod("a")
    await shows(NPU, 1, 0)
    (slot,) = agent.agent.reconciler.advertised.resources[NPU].slots
    assert "onRelease after pod default/a failed: sh exited with 1: locked; it is tried again" == slot.health.reason
    gate.touch()
    await shows(NPU, 1, 1)
    assert ["got", "started", "back"] == lines(told)


async def test_a_failed_release_may_be_ignored(kubelet, start_agent, directory, shows):
    """With `ifReleaseFails: continue` it is reported and the next pod starts, also if the option is added later."""
    told = directory / "told"
    block = both(told, "exit 1; ")
    agent = await start_agent(config(block), retry_step_first=0.05, retry_step_most=0.05)
    await kubelet.run_pod(manifest("a", {NPU: 1}))
    await kubelet.delete_pod("a")
    await shows(NPU, 1, 0)
    agent.edit(config(f"{block}\n    ifReleaseFails: continue"))
    await shows(NPU, 1, 1)
    await kubelet.run_pod(manifest("b", {NPU: 1}))
    await kubelet.delete_pod("b")
    await kubelet.run_pod(manifest("c", {NPU: 1}))
    assert ["got", "started"] * 3 == lines(told)


async def test_a_pod_that_ends_while_no_agent_runs_is_released_later(kubelet, start_agent, directory, shows):
    """The next process runs the release before a container gets the device."""
    told, gate = directory / "told", directory / "gate"
    block = both(told, f"while [ ! -e {gate} ]; do sleep 0.05; done; ")
    agent = await start_agent(config(block))
    await kubelet.run_pod(manifest("a", {NPU: 1}))
    await agent.stop()
    await kubelet.delete_pod("a")
    await start_agent(config(block))
    asyncio.get_running_loop().call_later(0.5, gate.touch)
    await shows(NPU, 1, 1)
    await kubelet.run_pod(manifest("b", {NPU: 1}))
    assert ["got", "started", "back", "got", "started"] == lines(told)


async def test_an_interrupted_release_is_repeated(kubelet, start_agent, directory, shows):
    """The next process runs it again."""
    told, gate = directory / "told", directory / "gate"
    pids = directory / "pids"
    block = both(told, f"echo $$ >> {pids}; echo begun >> {told}; while [ ! -e {gate} ]; do sleep 0.05; done; ")
    agent = await start_agent(config(block))
    await kubelet.run_pod(manifest("a", {NPU: 1}))
    await kubelet.delete_pod("a")
    await kubelet.wait_until(lambda: lines(told)[2:], what="the release")
    await agent.stop()
    await kubelet.wait_until(lambda: not any(map(_runs, lines(pids))), what="the end of its program")
    gate.touch()
    await start_agent(config(block))
    await shows(NPU, 1, 1)
    await kubelet.wait_until(lambda: lines(told)[4:], what="the release once more")
    assert ["got", "started", "begun", "begun", "back"] == lines(told)


async def test_no_release_between_containers_of_a_pod(kubelet, start_agent, directory):
    """The app container reuses the init container's device."""
    told = directory / "told"
    await start_agent(config(both(told)))
    pod = manifest("a", {NPU: 1})
    pod["spec"]["initContainers"] = [{**pod["spec"]["containers"][0], "name": "init"}]
    await kubelet.run_pod(pod)
    assert ["got", "started", "started"] == lines(told)
    await kubelet.delete_pod("a")
    await kubelet.wait_until(lambda: lines(told)[3:], what="onRelease")
    assert ["got", "started", "started", "back"] == lines(told)


SHARED = "sharing: {timeSlicing: {resources: [{name: acme.dev/npu, replicas: 2}]}}\n"
BROKEN = """\
  - {name: broken, resource: acme.dev/broken, virtual: {count: 1}}
faults: {rules: [{name: f, resource: acme.dev/broken, rpc: Allocate, error: {code: UNAVAILABLE}}]}
"""


async def test_the_shares_of_a_refused_pod(kubelet, start_agent, directory):
    """A pod keeps its share, and what it wrote, when another pod gets the other share."""
    told = directory / "told"
    node = "virtual: {count: 1, node: {directory: {readme: hi}, readOnly: false}}"
    block = f"onAllocate: [{writes(told, 'got')}]\n    onRelease: [{writes(told, 'back')}]"
    agent = await start_agent(config(block).replace("virtual: {count: 1}", node) + BROKEN + SHARED)
    await kubelet.run_pod(manifest("a", {NPU: 2, "acme.dev/broken": 1}))
    await kubelet.delete_pod("a")
    (placeholder,) = (path for path in agent.agent.options.device_dir.iterdir() if path.is_dir())
    for number, pod in enumerate("bc", 1):
        await kubelet.run_pod(manifest(pod, {NPU: 1}))
        await kubelet.wait_until(lambda pod=pod: kubelet.pod(pod).container().running, what="the container")
        assert ["got"] * number == lines(told)
        (placeholder / pod).touch()
    assert {"readme", "b", "c"} == {path.name for path in placeholder.iterdir()}


async def test_a_pod_that_is_created_again_under_its_name(kubelet, start_agent, directory):
    """While vdev is away, as a pod of a StatefulSet: the first one is released, and the second one gets the device."""
    told = directory / "told"
    block = f"onAllocate: [{writes(told, 'got')}]\n    onRelease: [{writes(told, 'back')}]"
    agent = await start_agent(config(block) + SHARED, kubelet_grace=3600.0)
    for pod, number in (("web-1", 1), ("web-0", 2)):
        await kubelet.run_pod(manifest(pod, {NPU: 1}))
        await kubelet.wait_until(lambda number=number: ["got"] * number == lines(told), what="onAllocate")
    await agent.agent.read_holders()
    await agent.stop()
    await kubelet.delete_pod("web-1")
    await kubelet.delete_pod("web-0")
    await start_agent(config(block) + SHARED, kubelet_grace=2.0)
    await kubelet.run_pod(manifest("web-0", {NPU: 1}))
    await kubelet.wait_until(lambda: sorted(lines(told)) == ["back"] * 2 + ["got"] * 3, what="the actions of all")
