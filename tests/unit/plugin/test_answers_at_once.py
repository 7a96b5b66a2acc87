"""Answers that are ready against answers that are worked out: whatever happened before, both say the same."""

import asyncio
import contextlib
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import grpc
from hypothesis import given, settings
from hypothesis import strategies as st

from vdev import config, discovery
from vdev.core.inventory.arrange import arrange
from vdev.core.inventory.resources import with_health
from vdev.core.memory import Memory
from vdev.core.model.device import Health
from vdev.hostfs import HostRoot
from vdev.pb import deviceplugin_v1beta1_pb2 as pb
from vdev.plugin.encode import make_ready
from vdev.plugin.servicer import Servicer

GPU = "nvidia.com/gpu"
NEWER = b"\x18\x01"  # a field that requests do not have yet, so that nothing is ready for it
PLAIN = """
flags: {plugin: {deviceListStrategy: [%s], passDeviceSpecs: true}}
devices:
  - name: a
    resource: nvidia.com/gpu
    virtual: {preset: a100-sxm4-40gb, count: 3}
    container: {env: {MODE: "%s-{id}"}, deviceNodes: [{hostPath: /dev/null, containerPath: "/dev/x{index}"}]}
"""
SHARED = "sharing: {%s: {%sresources: [{name: nvidia.com/gpu, replicas: 2}]}}\n"
TEXTS = (
    PLAIN % ("envvar", "one"),
    PLAIN % ("envvar", "two"),
    PLAIN % ("volume-mounts, cdi-annotations", "one"),
    PLAIN % ("cdi-cri", "one") + SHARED % ("timeSlicing", "failRequestsGreaterThanOne: true, "),
    PLAIN % ("envvar", "one") + SHARED % ("timeSlicing", ""),
    PLAIN % ("envvar, cdi-annotations", "one") + SHARED % ("mps", ""),
)
NUMBERS = st.integers(0, 6)
ODD = st.lists(st.lists(NUMBERS, max_size=2), max_size=2)
ROUNDS = st.tuples(
    st.none() | st.sampled_from(range(len(TEXTS))),
    st.sets(st.integers(0, 2)),
    st.booleans(),
    st.lists(NUMBERS.map(lambda each: [[each]]) | ODD, min_size=1, max_size=8),
)
"""An edit or none, the devices that are broken, whether answers are made ready, and requests by position."""


class Requests:
    """Writes down what it is told."""

    allocate_deadline = 60.0

    def __init__(self):
        self.told = []

    def in_request(self, _resource, _ids):
        """Nobody asks what is in flight."""
        return contextlib.nullcontext()

    def allocated(self, resource, ids):
        """A request was granted."""
        self.told.append((resource.name, *ids))

    def observe_rpc(self, rpc, resource, code, _seconds):
        """A call ended."""
        self.told.append((rpc, resource, code))


class Refused(Exception):
    """What gRPC raises when a call is aborted."""


class Context:
    """Of one call."""

    async def abort(self, code: grpc.StatusCode, text: str):
        """End it."""
        raise Refused(code, text)


@cache
def spec(number):
    return config.load_text(TEXTS[number]).spec


def inventory(number, memory):
    (entry,) = spec(number).entries
    return arrange(spec(number), "n", {"a": discovery.discover(entry, HostRoot(Path("/")), node="n").devices}, memory)


async def answer(servicer, request):
    """The bytes of the answer, or the refusal."""
    (handlers,) = servicer.handlers()
    method = handlers.service(SimpleNamespace(method="/v1beta1.DevicePlugin/Allocate", invocation_metadata=()))
    try:
        return await method.unary_unary(request, Context())
    except Refused as refused:
        return refused.args


async def play(rounds):
    arranged, judged = Memory(), Memory()
    base, requests = inventory(0, arranged), Requests()
    server = Servicer(base.resources[GPU], requests, on_stream=lambda: None)
    for edit, broken, ready, asked in rounds:
        base = base if edit is None else inventory(edit, arranged)
        raws = sorted(base.resources[GPU].raws)
        sick = {raws[each]: Health(healthy=False, reason="broke") for each in broken}
        resource = with_health(base, sick, judged).resources[GPU]
        server.update(resource)
        if ready:
            list(make_ready(resource))
        ids = [*(slot.id for slot in resource.slots), "none"]
        for containers in asked:
            named = [pb.ContainerAllocateRequest(devices_ids=[ids[n % len(ids)] for n in each]) for each in containers]
            request = pb.AllocateRequest(container_requests=named).SerializeToString()
            known, fresh = len(requests.told), Requests()
            given_now = await answer(server, request)
            new = Servicer(replace(resource), fresh, on_stream=lambda: None)
            assert await answer(new, request + NEWER) == given_now
            assert fresh.told == requests.told[known:]


@settings(max_examples=40)
@given(st.lists(ROUNDS, min_size=2, max_size=5))
def test_an_answer_that_is_ready_is_the_one_that_would_be_worked_out(rounds):
    """Over edits, failures and other requests: the same bytes, refusals, notes of what is granted, and counts."""
    asyncio.run(play(rounds))
