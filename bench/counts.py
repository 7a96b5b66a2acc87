"""A guard against decay: how many bytecode instructions the hot paths take, beside a recorded baseline.

    python -m bench.counts            show the counts and their ratios to the baseline
    python -m bench.counts --record   make the present counts the baseline

Instructions are the same on every machine and under any load, so a check can compare them where it could never compare
seconds. They do not see what C code does (a join, a dictionary's copy), which the benchmark times; they see a loop over
all devices that came back into a path that should touch one. They are counted in yards: the instructions of a fixed
piece of ordinary code in the same run, so that one baseline holds for all Pythons, whose compilers differ. The margin
is wide, because one more small function is no decay.
"""

import asyncio
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any, cast

import grpc

from vdev import discovery
from vdev.agent import Agent, Options
from vdev.config import load_text
from vdev.core.allocation import preferred
from vdev.core.decide import Decider, World
from vdev.core.inventory import resources
from vdev.core.inventory.arrange import arrange
from vdev.core.inventory.difference import ChangedResource, diff
from vdev.core.inventory.resources import Inventory
from vdev.core.model.device import Health
from vdev.core.model.faults.fault_effects import Rpc
from vdev.core.retention import retain
from vdev.hostfs import HostRoot
from vdev.pb import deviceplugin_v1beta1_pb2 as pb
from vdev.plugin.encode import ListEncoder
from vdev.plugin.servicer import Servicer

from .measured import configs

BASELINE = Path(__file__).with_name("baseline.json")
MARGIN = 1.5  # times the baseline
_DEVICES = 1000
_NAME = configs.resource(0)


def instructions(action: Callable[[], Any]) -> int:
    """How many bytecode instructions the action executes, in this thread and in everything that it calls.

    It runs once before, so that what is prepared lazily is not counted.
    """
    action()
    return _monitored(action) if sys.version_info >= (3, 12) else _traced(action)


def _monitored(action: Callable[[], Any]) -> int:
    count = 0

    def step(_code: object, _offset: int) -> None:
        nonlocal count
        count += 1

    monitoring, tool = sys.monitoring, 4  # an id that no debugger, profiler or coverage tool has
    monitoring.use_tool_id(tool, "bench.counts")
    monitoring.register_callback(tool, monitoring.events.INSTRUCTION, step)
    monitoring.set_events(tool, monitoring.events.INSTRUCTION)
    try:
        action()
    finally:
        monitoring.set_events(tool, 0)
        monitoring.free_tool_id(tool)
    return count


def _traced(action: Callable[[], Any]) -> int:
    count = 0

    def trace(frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal count
        if event == "call":
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
        elif event == "opcode":
            count += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        action()
    finally:
        sys.settrace(before)
    return count


@dataclass(frozen=True, slots=True)
class _Thing:
    name: str
    number: int

    @property
    def even(self) -> bool:
        return self.number % 2 == 0


def yard() -> int:
    """The instructions of ordinary code: calls, attributes, dictionaries. To change it moves the whole baseline."""

    def work() -> int:
        things: dict[str, _Thing] = {}
        for number in range(10):
            thing = _Thing(f"t{number}", number)
            if thing.name not in things:
                things[thing.name] = thing
        even = {name: thing.number for name, thing in things.items() if thing.even}
        return sum(even.values()) + max(thing.number for thing in things.values())

    return instructions(work)


def measure() -> dict[str, float]:
    """The yards of each hot path."""
    unit = yard()
    return {path: round(count / unit, 2) for path, count in _measured().items()}


def _measured() -> dict[str, int]:
    plain = _arranged(configs.plain(1, _DEVICES))
    linked = preferred.allocator_for(_arranged(configs.linked(16, 4)).resources[_NAME])
    shared = preferred.allocator_for(_arranged(configs.replicated(100, 10)).resources[_NAME])
    sixteen = [f"d0-{number}" for number in range(16)]
    replicas = [f"d0-{number}::{replica}" for number in range(100) for replica in range(10)]
    return {
        "Allocate of 1 device": asyncio.run(_allocate(plain, 1)),
        "Allocate of 8 devices": asyncio.run(_allocate(plain, 8)),
        f"health of 1 of {_DEVICES} devices changes": instructions(_one_changes(plain)),
        f"a decision that changes nothing, {_DEVICES} devices": instructions(_nothing_changes(plain)),
        f"arrange {_DEVICES} devices": instructions(lambda: _arranged(configs.plain(1, _DEVICES), read=False)),
        f"encode {_DEVICES} devices": instructions(lambda: ListEncoder().encode(plain.resources[_NAME].slots)),
        "prefer 8 of 16 linked": instructions(lambda: linked.prefer(sixteen, [], 8)),
        "prefer 64 of 1000 replicas": instructions(lambda: shared.prefer(replicas, [], 64)),
    }


def complaints(measured: Mapping[str, float], baseline: Mapping[str, float]) -> list[str]:
    """What has grown beyond the margin, or is not in the baseline, a sentence each."""
    found = []
    for path, count in measured.items():
        recorded = baseline.get(path)
        if recorded is None:
            found.append(f"{path!r} has no baseline: record one with `python -m bench.counts --record`")
        elif count > recorded * MARGIN:
            found.append(
                f"{path!r} takes {count:g} yards of bytecode, {count / recorded:.1f} times the {recorded:g} recorded "
                f"(allowed: {MARGIN}); profile it, or record it anew with `python -m bench.counts --record` and say why"
            )
    return found


def baseline() -> dict[str, float]:
    """What each path took when it was recorded last."""
    known: dict[str, float] = json.loads(BASELINE.read_text())
    return known


def record(measured: Mapping[str, float]) -> None:
    """Make these the baseline."""
    BASELINE.write_text(json.dumps(measured, indent=2, sort_keys=True) + "\n")


_specs: dict[str, Any] = {}


def _arranged(config: str, *, read: bool = True) -> Inventory:
    """The inventory of a configuration; with `read=False` the configuration has been read before."""
    if read:
        _specs[config] = load_text(config).spec
    spec, host = _specs[config], HostRoot()
    found = {entry.name: discovery.discover(entry, host, node="bench").devices for entry in spec.entries}
    return arrange(spec, "bench", found)


async def _allocate(plain: Inventory, size: int) -> int:
    """From the request's bytes to the answer's, as the server calls it."""
    nowhere = Path("unused")
    options = Options(
        node="bench",
        files=(),
        load=load_text,
        plugin_dir=nowhere,
        kubelet_socket=None,
        pod_resources_socket=nowhere,
        cdi_dir=nowhere,
        host=HostRoot(),
    )
    requests = Agent(options).requests
    servicer = Servicer(plain.resources[_NAME], requests, on_stream=lambda: None)
    path = f"/v1beta1.DevicePlugin/{Rpc.ALLOCATE.value}"
    method: Any = servicer.handlers()[0].service(cast("grpc.HandlerCallDetails", SimpleNamespace(method=path)))
    container = pb.ContainerAllocateRequest(devices_ids=[f"d0-{number}" for number in range(size)])
    raw = pb.AllocateRequest(container_requests=[container]).SerializeToString()

    def call() -> None:
        answer = method.unary_unary(raw, None)
        task = answer.__await__()
        try:
            next(task)
        except StopIteration:
            pass
        else:
            raise AssertionError("Allocate waits for something")

    return instructions(call)


def _one_changes(plain: Inventory) -> Callable[[], None]:
    """From a probe's verdict to the new list."""
    encoder = ListEncoder()
    served = plain
    encoder.encode(plain.resources[_NAME].slots)
    turns = 0

    def act() -> None:
        nonlocal served, turns
        turns += 1
        fresh = resources.with_health(plain, {"d0-500": Health(healthy=False, reason=f"reason {turns}")})
        kept = retain.retain(served, fresh, {}, retain.Holdings(), 0.0)
        for change in diff(served, kept.inventory):
            assert isinstance(change, ChangedResource)
            assert (len(change.health), len(change.added), len(change.removed)) == (1, 0, 0)
            encoder.encode(change.new.slots)
        served = kept.inventory
        assert served.resources[_NAME].healthy == _DEVICES - 1
        assert served.resources[_NAME].list_bytes > 0

    return act


def _nothing_changes(plain: Inventory) -> Callable[[], None]:
    """A turn that finds nothing new: the whole decision, and the difference to what is listed."""
    decider = Decider()
    ailing = {"d0-500": Health(healthy=False, reason="broken")}
    listed = decider.decide(World(base=plain, verdicts=ailing)).inventory

    def act() -> None:
        plan = decider.decide(World(base=plain, verdicts=ailing, listed=listed))
        assert plan.inventory is listed
        assert not diff(listed, plan.inventory)

    return act


def main() -> int:
    """Show, or record."""
    measured = measure()
    if "--record" in sys.argv[1:]:
        record(measured)
        print(f"recorded {len(measured)} counts in {BASELINE}")
        return 0
    known = baseline()
    for path, count in measured.items():
        recorded = known.get(path)
        print(f"{count:>9g}  {f'{count / recorded:.2f}' if recorded else 'new':>5}  {path}")
    for complaint in complaints(measured, known):
        print(complaint, file=sys.stderr)
    return bool(complaints(measured, known))


if __name__ == "__main__":
    sys.exit(main())
