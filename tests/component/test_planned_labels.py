"""The agent's plan has the labels of the node: of its machine, its devices, its file and its faults."""

from vdev.agent.applier import Output, Stage

GPU, COUNT = "nvidia.com/gpu", "nvidia.com/gpu.count"
CONFIG = f"""
node: {{labels: true}}
devices:
- {{name: t4, resource: {GPU}, virtual: {{preset: t4, count: 3}}, labels: {{a.b/x: warm}}}}
"""


class Seen(Output):
    """What the plans said."""

    name = "watching the plan"
    stage = Stage.FOLLOW

    def __init__(self):
        self.labels = {}
        self.all = []

    async def settle(self, plan):
        """Remember all that were different."""
        self.labels = plan.labels
        if plan.labels not in self.all:
            self.all.append(plan.labels)


async def test_a_new_label_is_no_news_for_the_kubelet(kubelet, start_agent, shows):
    """What an entry says of the node is not sent to the kubelet."""
    seen = Seen()
    agent = await start_agent(CONFIG, outputs=[seen])
    await shows(GPU, 3, 3)
    service = agent.agent.lists.services[GPU]
    before = service.resource
    agent.edit(CONFIG.replace("warm", "cold"))
    await kubelet.wait_until(lambda: seen.labels.get("a.b/x") == "cold", what="the edited label")
    assert service.resource is before


async def test_a_device_that_is_unplugged_is_not_counted(kubelet, start_agent, shows):
    seen = Seen()
    text = CONFIG + "faults: {rules: [{name: gone, devices: [t4/1], remove: true, at: 2s, for: 5s}]}"
    agent = await start_agent(text, outputs=[seen])
    agent.clock.advance(2)
    await kubelet.wait_until(lambda: seen.labels.get(COUNT) == "2", what="one device less")
    agent.clock.advance(5)
    await kubelet.wait_until(lambda: seen.labels.get(COUNT) == "3", what="the device again")


async def test_what_is_doubtful_is_a_problem(kubelet, start_agent):
    """It is shown, logged once, and goes when its cause goes."""
    bad = CONFIG.replace("warm", '"{index}"')
    seen = Seen()
    agent = await start_agent(bad, outputs=[seen])

    def said():
        problems = (problem.message for problem in agent.agent.reconciler.problems)
        return [text for text in problems if "a.b/x" in text]  # there is no API server here, which is another problem

    expected = "the devices of 't4' want different values for the label a.b/x: '0', which is used, and '1', '2'"
    assert [expected] == said()
    agent.edit(bad.replace("count: 3", "count: 2"))
    await kubelet.wait_until(lambda: "'0', which is used, and '1'" in said()[0][-30:], what="the edit")
    agent.edit(CONFIG)
    await kubelet.wait_until(lambda: said() == [], what="no problem")
    logged = [each["problem"] for each in agent.logs if each["event"] == "problem with what is said of the node"]
    assert [expected, expected.removesuffix(", '2'")] == logged
