"""The pytest plugin: the fixtures `kubelet`, `vdev_agent` and `vdev_config`, for plain and async tests.

pytest always imports this module if vdev is installed, so it imports the rest of vdev only when a fixture is used.
"""

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from .testing import BlockingAgent, BlockingKubelet, Configuration, LoopThread

CONFIGURATION = """\
version: v1
devices:
  - {name: npu, resource: acme.dev/npu, virtual: {count: 2}}
"""
"""The default configuration of `vdev_agent`."""


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "kubelet(**options): options of vdev.sim.Kubelet for the fixture; allow=[CODE, …]: findings that are ignored",
    )
    config.addinivalue_line(
        "markers", "vdev_config(configuration): the configuration of vdev_agent: a text, a pathlib.Path or a mapping"
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the agent's errors, the kubelet's journal and the end of the agent's log to the report of a failed test."""
    report = yield
    if report.failed:
        fixtures = getattr(item, "funcargs", {})
        for name, method, title in (
            ("vdev_agent", "errors", "vdev run: errors"),
            ("kubelet", "last_words", "what the kubelet saw"),
            ("vdev_agent", "last_words", "vdev run"),
        ):
            if text := getattr(fixtures.get(name), method, str)():
                report.sections.append((title, text))
    return report


@pytest.fixture(scope="session")
def vdev_loop() -> "Iterator[LoopThread]":
    """The thread for the kubelets and agents of all tests."""
    from .testing import LoopThread

    with LoopThread() as thread:
        yield thread


@pytest.fixture
def kubelet(request: pytest.FixtureRequest, vdev_loop: "LoopThread") -> "Iterator[BlockingKubelet]":
    """A kubelet without plugins, in a temporary directory.

    In a plain test, its methods block; in an async test, they are awaited. A finding that is an error fails the test at
    its end, unless `@pytest.mark.kubelet(allow=[…])` names its code.
    """
    from .testing import BlockingKubelet

    options: dict[str, Any] = {}
    for marker in request.node.iter_markers("kubelet"):  # the closest one comes first
        options = {**marker.kwargs, **options}
    allowed = options.pop("allow", ())
    with BlockingKubelet.running(vdev_loop, **options) as running:
        yield running
        if wrong := [str(each) for each in running.errors if each.code not in allowed]:
            pytest.fail("the kubelet found:\n" + "\n".join(wrong), pytrace=False)


@pytest.fixture
def vdev_config(request: pytest.FixtureRequest) -> "Configuration":
    """The configuration of `vdev_agent`, from `@pytest.mark.vdev_config(…)`; by default two devices of acme.dev/npu.

    Define a fixture of this name to change it for all tests.
    """
    marker = request.node.get_closest_marker("vdev_config")
    configuration: Configuration = CONFIGURATION if marker is None else marker.args[0]
    return configuration


@pytest.fixture
def vdev_agent(
    kubelet: "BlockingKubelet", vdev_config: "Configuration", vdev_loop: "LoopThread"
) -> "Iterator[BlockingAgent]":
    """`vdev run` on the kubelet of the test. The node has its devices when the test starts."""
    from .errors import VdevError
    from .testing import BlockingAgent

    problem = ""
    try:
        with BlockingAgent.running(vdev_loop, kubelet, vdev_config) as running:
            yield running
    except VdevError as error:
        problem = str(error)
    if problem:  # outside of the handler, so that pytest does not show both exceptions
        pytest.fail(problem, pytrace=False)
