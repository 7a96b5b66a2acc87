"""A resource name with placeholders makes a resource per device, while devices come and go."""

import asyncio

from tests.kit.fakehost import FakeHost

TEXT = """
version: v1
devices:
  - {name: video, resource: "acme.dev/{attributes.below}", glob: "/dev/video*"}
sharing: {timeSlicing: {resources: [{name: "acme.dev/{attributes.below}", replicas: 2}]}}
"""


async def test_resources_come_and_go_with_their_nodes(kubelet, start_agent, directory, shows):
    """Other resources stay."""
    host = FakeHost(directory / "host")
    host.node("video0", "81:0")
    await start_agent(TEXT, host=host.host)
    await shows("acme.dev/video0", 2)

    await asyncio.to_thread(host.node, "video1", "81:1")
    await shows("acme.dev/video1", 2)
    await asyncio.to_thread(host.remove, "/dev/video1")
    await kubelet.wait_until(lambda: not kubelet.node().allocatable.get("acme.dev/video1"), what="the end of video1")

    assert {"video-video0::0": "Healthy", "video-video0::1": "Healthy"} == kubelet.listed()["acme.dev/video0"]
