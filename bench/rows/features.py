"""Rows of memory by feature: eight resources of eight devices, which are the floor, and with one feature more."""

import asyncio
from dataclasses import dataclass

from tests.kit.api_server import ApiServer

from ..measured import configs, life, process
from ..table.row import Run, sized
from . import node
from .dra import complete
from .meanwhile import fetched, free_address

_LABEL = "bench.dev/on"
_GROUP = "memory by feature"


@dataclass(frozen=True, slots=True)
class _Feature:
    """An entry's further lines, the file's sections, and the options that turn it on."""

    what: str
    entry: tuple[str, ...] = ()
    sections: str = ""
    options: tuple[str, ...] = ()
    virtual: str = ""
    resources: int = 8
    devices: int = 8

    @property
    def config(self) -> str:
        """The file."""
        entries = (configs.virtual(each, self.devices, more=self.entry) for each in range(self.resources))
        return configs.devices(*entries, flags=self.sections).replace("numa: 0}", f"numa: 0{self.virtual}}}")


def _features(address: str) -> list[_Feature]:
    """All of them; `address` is where metrics are served."""
    label = f'labels: {{{_LABEL}: "on"}}'
    dra = "advertise: [device-plugin, dra]"
    telemetry = f'telemetry: {{address: "{address}"}}\n'
    http = ("--http-address", address)
    return [
        _Feature("the plugin alone"),
        _Feature("+ HTTP, after a scrape", options=http),
        _Feature("+ labels for a file (nfd)", (label,), "node: {labels: nfd}\n"),
        _Feature("+ labels on the Node", (label,), "node: {labels: true}\n"),
        _Feature("+ labels and Events", (label,), "node: {labels: true, events: true}\n"),
        _Feature("+ DRA", (dra,)),
        _Feature("+ DRA and labels", (dra, label), "node: {labels: true}\n"),
        _Feature("+ telemetry, after a scrape", ("telemetry: {always: true}",), telemetry),
        _Feature("+ virtual nodes (serial lines)", virtual=", node: {pty: echo}"),
        _Feature("1 000 devices", resources=1, devices=1000),
        _Feature("10 000 devices", resources=1, devices=10_000),
        _Feature("70 000 devices", resources=1, devices=70_000),
    ]


async def features(run: Run) -> None:
    """Resident memory by feature, and the part of it that is not backed by files."""
    address = await asyncio.to_thread(free_address)
    sizes = {each: await _size(run, each, address) for each in _features(address)}
    floor = next(iter(sizes.values()))
    for number, group in enumerate((_GROUP, f"{_GROUP}, not backed by files")):
        for feature, measured in sizes.items():
            run.add(sized(group, feature.what, "MiB", measured[number], floor[number], None))


async def _size(run: Run, feature: _Feature, address: str) -> tuple[float, float]:
    """MiB, resident and own, once everything that the feature is for has been done once."""
    async with process.place() as here, ApiServer(schemas=False) as server:
        await server.add("nodes", {"metadata": {"name": node.NODE}})
        kubeconfig = node.kubeconfig(here.root / "kubeconfig", server.address)
        directories = [f"--{name}-dir={here.root / name}" for name in ("device", "features")]
        extra = (*directories, "--kubeconfig", str(kubeconfig), *feature.options)
        async with life.ours(here, feature.config, configs.resources(feature.resources), *extra) as mine:
            await mine.registered()

            def is_done() -> bool:
                mine.process.check()
                labels = server.object("nodes", node.NODE)["metadata"].get("labels", {})
                slices = [each["spec"] for each in server.all("resourceslices")]
                return ("labels: true" not in feature.sections or _LABEL in labels) and (
                    "dra" not in "".join(feature.entry) or complete(slices, feature.resources * feature.devices)
                )

            await process.until(is_done, feature.what)
            if any(address in each for each in (*feature.options, feature.sections)):
                await fetched(f"http://{address}/metrics")
            await asyncio.sleep(run.some(5, 1))
            return mine.process.resident(), mine.process.own()
