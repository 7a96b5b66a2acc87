"""The form of scenarios, and how they are played with a plugin in this process."""

import tempfile

import pytest
import yaml

from vdev.errors import SocketError
from vdev.sim.scenarios.node import EmbeddedNode, NodeOptions
from vdev.sim.scenarios.play import play
from vdev.sim.scenarios.scenario import ScenarioError, ScenarioFormatError, parse

NPU = "acme.dev/npu"


class Stubs:
    """Hand-written plugins of this process, by resource."""

    def __init__(self, _places):
        self.by_resource = {}

    async def start(self):
        for stub in self.by_resource.values():
            await stub.again()

    async def stop(self):
        for stub in self.by_resource.values():
            await stub.stop()

    async def check(self):
        """A stub never ends by itself."""


class StubDriver(EmbeddedNode):
    """A node whose plugin is in this process; a configuration is a YAML map from resource to device ids."""

    def __init__(self, plugins):
        super().__init__(NodeOptions(), plugin=Stubs)
        self.plugins = plugins

    @property
    def stubs(self):
        return self._plugin.by_resource

    async def edit_configuration(self, text):
        """Apply a configuration as a good plugin does."""
        for resource, ids in yaml.safe_load(text).items():
            if resource in self.stubs:
                self.stubs[resource].list(*ids)
            else:
                self.stubs[resource] = await self.plugins(resource, ids, on=self.kubelet, register=False)
                await self.stubs[resource].register()

    async def restart_kubelet(self):
        """Register again after the restart, as a good plugin does."""
        await super().restart_kubelet()
        await self.start_plugin()

    async def start_kubelet(self):
        await super().start_kubelet()
        await self.start_plugin()


@pytest.fixture
async def driver(plugins):
    """A node with a hand-written plugin."""
    async with StubDriver(plugins) as made:
        yield made


async def test_a_node_that_cannot_start_leaves_nothing(kubelet, tmp_path, monkeypatch):
    """Its temporary directory is removed if another kubelet runs in the directory that it was given."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(SocketError, match="another kubelet is running here"):
        async with EmbeddedNode(NodeOptions(kubelet_dir=kubelet.root)):
            pass
    assert [] == [*tmp_path.iterdir()]


def scenario(*steps, pods=None, configuration=None, **more):
    """A scenario of these steps on two devices."""
    text = yaml.safe_dump(configuration or {NPU: ["d1", "d2"]})
    return parse({"title": "t", "configuration": text, "pods": pods or {}, "steps": list(steps), **more})


def shows(capacity, allocatable):
    """An expectation of the node's numbers."""
    return {"expect": {"node": {NPU: {"capacity": capacity, "allocatable": allocatable}}}}


ONE = {"one": {"spec": {"containers": [{"name": "main", "resources": {"limits": {NPU: 1}}}]}}}


@pytest.mark.parametrize(
    ("expect", "text"),
    [
        (
            {"node": {NPU: {"capacity": 3, "allocatable": 3}}},
            "acme.dev/npu: capacity: expected 3, seen 2; acme.dev/npu: allocatable: expected 3, seen 2",
        ),
        ({"pods": {"one": None}}, "pod one: expected None"),
        ({"pods": {"two": {"phase": "Running"}}}, "pod two: expected .* seen None"),
        ({"pods": {"one": {"phase": "Failed"}}}, "phase: expected 'Failed', seen 'Running'"),
        ({"pods": {"one": {"containers": {"main": {"env": {}}}}}}, "main: env: expected {}, seen"),
        ({"pods": {"one": {"containers": {"main": {"devices": {NPU: ["x"]}}}}}}, "devices: expected"),
        ({"registrations": {NPU: 2}}, "registrations: expected 2, seen 1"),
    ],
)
async def test_a_failed_expectation(driver, expect, text):
    """The error has the observed state."""
    runs = {"expect": {"pods": {"one": {"phase": "Running"}}}}
    await play(scenario(shows(2, 2), {"createPod": "one"}, runs, pods=ONE), driver)
    with pytest.raises(ScenarioError, match=text):
        await play(scenario({"expect": expect}), driver, patience=0.3)


async def test_a_pod_that_has_failed_fails_at_once(driver):
    """A pod whose phase cannot become the expected one any more."""
    steps = shows(2, 2), {"createPod": "one"}, {"expect": {"pods": {"one": {"phase": "Running"}}}}
    pods = {"one": {"spec": {"containers": [{"name": "main", "resources": {"limits": {NPU: 3}}}]}}}
    with pytest.raises(ScenarioError, match=r"UnexpectedAdmissionError.*expected 'Running', seen 'Failed'"):
        await play(scenario(*steps, pods=pods), driver, patience=600)


async def test_one_piece_of_hardware_on_two_pods(driver):
    """Two pods with the same piece of hardware fail a scenario."""
    pods = dict.fromkeys(("one", "two", "three"), ONE["one"])
    steps = [shows(2, 2), {"createPod": "one"}, {"createPod": "two"}]
    await play(scenario(*steps, pods=pods, hardware={"d1": ["a"], "d2": ["b", "c"]}), driver)
    with pytest.raises(ScenarioError, match=r"step 1: b is on two pods: (one|two) has d[12], and two has d[12]"):
        await play(scenario(shows(2, 2), pods=pods, hardware={"d1": ["a", "b"], "d2": ["b", "c"]}), driver)


async def test_the_reason_of_an_unhealthy_device(driver, monkeypatch):
    """`unhealthy` is compared with the plugin's own reasons, if the node knows them."""
    reasons = {(NPU, "d1"): "it is tired"}

    async def answer():
        return reasons

    monkeypatch.setattr(driver, "reasons", answer)
    good, bad = ({"expect": {"unhealthy": {NPU: {"d1": {"matches": text}}}}} for text in (".*tired", ".*late"))
    await play(scenario(shows(2, 2), good), driver)
    with pytest.raises(ScenarioError, match=r"d1: reason of Unhealthy: expected .*late.*, seen 'it is tired'"):
        await play(scenario(bad), driver, patience=0.3)
    reasons = None
    await play(scenario(shows(2, 2), bad), driver)


# Mistakes in an expectation, and the messages.
WRONG_EXPECTATIONS = [
    ({"nodes": {}}, "unknown key 'nodes'"),
    ({"node": {NPU: {"capacity": 1}}}, "acme.dev/npu.allocatable: Field required"),
    ({"node": {NPU: {"capacity": "many", "allocatable": 1}}}, "capacity: expected a number"),
    ({"pods": {"a": {"state": 1}}}, "unknown key 'state'"),
    ({"pods": {"a": {"containers": {"m": {"envs": {}}}}}}, "envs.*: Input should be 'devices', "),
    ({"findings": "some"}, "expected none"),
    ({"findings": ["numa-negativ"]}, "findings: .*did you mean 'numa-negative'"),
    ({"stays": "long"}, "stays: Input should be a valid number"),
    ({"unhealthy": {NPU: "d1"}}, "unhealthy.acme.dev/npu: Input should be a valid dictionary"),
]


def test_strict_form(subtests):
    """Each error in a file has its place."""
    cases = [
        ({"step": []}, "unknown key 'step'; expected one of configuration, "),
        ({"title": None}, "title: Input should be a valid string"),
        ({"steps": {}}, "steps: Input should be a valid list"),
        ({"steps": [{"expects": {}}]}, "steps.0: unknown key 'expects'; expected one of"),
        ({"steps": [{"createPod": "x"}]}, "no pod 'x'"),
        ({"steps": ["restartKubelet"]}, "steps.0: expected a mapping; write 'restartKubelet:' with a colon"),
        ({"steps": [{"restartKubelet": 1}]}, "steps.0.restartKubelet: Input should be None"),
        ({"steps": [{"restartKubelet": None, "stopPlugin": None}]}, "expected one step"),
        ({"requires": ["magic"]}, "requires.0: Input should be 'clock', 'kubelet'"),
        ({"pods": {"a": {}}}, "pods.a: a Pod needs a spec"),
        ({"hardware": {"d1": "a"}}, "hardware.d1: Input should be a valid list"),
        *(({"steps": [{"expect": expect}]}, text) for expect, text in WRONG_EXPECTATIONS),
    ]
    for change, text in cases:
        with subtests.test(change=change), pytest.raises(ScenarioFormatError, match=text):
            parse({"title": "t", "configuration": "", "steps": [], **change})


async def test_a_finding_fails_at_once(driver):
    """Findings are never removed."""
    forbids = {"expect": {"findings": ["id-too-long"]}}
    story = scenario(shows(1, 1), {"expect": {"findings": "none"}}, forbids, configuration={NPU: ["d" * 64]})
    with pytest.raises(ScenarioError, match=r"step 3: warning: id-too-long"):
        await play(story, driver, patience=600)


async def test_numbers(driver):
    """Numbers can be exact, at least, less than, and remembered."""

    def wants(amount):
        return {"expect": {"node": {"{resource}": {"capacity": amount, "allocatable": amount}}}}

    two, one = (yaml.safe_dump({NPU: [f"d{number}" for number in range(count)]}) for count in (2, 1))
    same = [wants(amount) for amount in (2, {"atLeast": 2}, "remembered")]
    less = [{"editConfiguration": one}, shows(1, 1), wants({"lessThan": "remembered"}), {"editConfiguration": two}]
    before = [shows(2, 2), {"remember": None}]
    await play(scenario(*before, *same, *less, shows(2, 2)), driver)
    for amount in (3, {"atLeast": 3}, {"lessThan": "remembered"}):
        with pytest.raises(ScenarioError, match=rf"{NPU}: capacity: expected .*, seen 2;"):
            await play(scenario(*before, wants(amount)), driver, patience=1)


async def test_an_expectation_that_does_not_stay_true(driver):
    """A change within `stays` fails the step."""

    async def change():
        driver.stubs[NPU].list("d1")
        await StubDriver.change(driver)

    steps = [shows(2, 2), {"remember": None}, {"expect": {**shows(2, 2)["expect"], "stays": 600}}]

    done = []

    def after(failure):
        done.append(failure)
        if len(done) == 2:
            driver.change = change

    with pytest.raises(ScenarioError, match=r"it was true, but not for 600 s: .* seen 1"):
        await play(scenario(*steps), driver, done=after)


async def test_nothing_remembered(driver):
    """`remembered` without `remember` is an error."""
    with pytest.raises(ScenarioError, match=r"npu: capacity: nothing is remembered; put `remember:` before"):
        await play(scenario({"expect": {"node": {NPU: "remembered"}}}), driver)
    with pytest.raises(ScenarioError, match="npu: registrations: nothing is remembered"):
        await play(scenario({"expect": {"registrations": {NPU: "remembered"}}}), driver)
    pods = {"one": {"phase": "Running", "containers": {"main": {"devices": "remembered"}}}}
    with pytest.raises(ScenarioError, match="pod one: main: devices: nothing is remembered"):
        await play(scenario({"createPod": "one"}, {"expect": {"pods": pods}}, pods=ONE), driver)
