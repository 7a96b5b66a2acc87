"""pytest's plugin: the fixtures `kubelet`, `vdev_agent` and `vdev_config`, for plain tests and async ones.

pytest imports this module wherever vdev is installed, so it imports nothing itself; `vdev.testing` has what the
fixtures are.
"""

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from .testing import BlockingAgent, BlockingKubelet, LoopThread
    from .testing.agent import Configuration

CONFIGURATION = """\
version: v1
devices:
  - {name: npu, resource: acme.dev/npu, virtual: {count: 2}}
"""
"""What `vdev_agent` serves where a test says nothing else."""


def pytest_configure(config: pytest.Config) -> None:
    """Make the markers known."""
    config.addinivalue_line(
        "markers",
        "kubelet(**options): options of vdev.sim.Kubelet for the fixture; allow=[CODE, …]: findings that fail no test",
    )
    config.addinivalue_line(
        "markers", "vdev_config(configuration): what vdev_agent serves: a text, a pathlib.Path or a mapping"
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show with a test that failed what the agent calls wrong, what happened on its node, and the end of the log."""
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
    """The thread in which the kubelets and agents of all tests run."""
    from .testing import LoopThread

    with LoopThread() as thread:
        yield thread


@pytest.fixture
def kubelet(request: pytest.FixtureRequest, vdev_loop: "LoopThread") -> "Iterator[BlockingKubelet]":
    """A kubelet without plugins, in a directory of its own.

    In a plain test its methods block, in an async one they are awaited. An error among its findings fails the test at
    its end, but for those that `@pytest.mark.kubelet(allow=[…])` names.
    """
    from .testing import BlockingKubelet

    options = _options(request, "kubelet")
    allowed = options.pop("allow", ())
    with BlockingKubelet.running(vdev_loop, **options) as running:
        yield running
        if wrong := [str(each) for each in running.errors if each.code not in allowed]:
            pytest.fail("the kubelet found:\n" + "\n".join(wrong), pytrace=False)


@pytest.fixture
def vdev_config(request: pytest.FixtureRequest) -> "Configuration":
    """What `vdev_agent` serves: what `@pytest.mark.vdev_config(…)` says, else two devices of acme.dev/npu.

    A fixture of this name in your own files takes its place.
    """
    marker = request.node.get_closest_marker("vdev_config")
    configuration: Configuration = CONFIGURATION if marker is None else marker.args[0]
    return configuration


@pytest.fixture
def vdev_agent(
    kubelet: "BlockingKubelet", vdev_config: "Configuration", vdev_loop: "LoopThread"
) -> "Iterator[BlockingAgent]":
    """`vdev run` on the kubelet of the test, which shows everything that it serves by the time the test begins."""
    from .errors import VdevError
    from .testing import BlockingAgent

    problem = ""
    try:
        with BlockingAgent.running(vdev_loop, kubelet, vdev_config) as running:
            yield running
    except VdevError as error:
        problem = str(error)
    if problem:  # outside of the handler, so that pytest does not show it twice
        pytest.fail(problem, pytrace=False)


def _options(request: pytest.FixtureRequest, name: str) -> dict[str, Any]:
    """The keywords of the markers of a name, the closest first."""
    options: dict[str, Any] = {}
    for marker in request.node.iter_markers(name):
        options = {**marker.kwargs, **options}
    return options
