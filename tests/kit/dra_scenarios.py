"""The scenario files of DRA, and a plugin that serves their configurations with the tests' own driver."""

from pathlib import Path

import pytest
import yaml

from tests.kit.dra_driver import NODE, DraDriver, device, slice_of

FILES = sorted((Path(__file__).parents[1] / "sim" / "scenarios" / "dra").glob("*.yaml"))


def dra_scenarios():
    """One parameter per file."""
    return [pytest.param(path, id=path.stem) for path in FILES]


class ScenarioDriver:
    """The drivers of a configuration's entries, with the interface of a plugin's process."""

    serial = 0

    def __init__(self, places, objects):
        ScenarioDriver.serial += 1
        self._instance = str(ScenarioDriver.serial)
        self._places = places
        self._objects = objects
        self._text = None
        self._drivers = {}
        self._runs = False

    async def start(self):
        """Serve the configuration, and follow its changes."""
        self._runs = True
        self._text = None
        await self._follow()

    async def stop(self):
        """Stop; the slices stay, as after SIGTERM."""
        self._runs = False
        for each in self._drivers.values():
            await each.stop()
        self._drivers.clear()

    async def reasons(self):
        """There is no output."""
        return {}

    async def check(self):
        """It never exits by itself."""

    async def follow(self):
        """Read the configuration again if it has changed."""
        if self._runs:
            await self._follow()

    async def _follow(self):
        text = self._places.configuration.read_text()
        if text == self._text:
            return
        self._text = text
        wanted, health = read(yaml.safe_load(text))
        for name, slices in wanted.items():
            found = self._drivers.get(name)
            if found is None:
                found = self._drivers[name] = DraDriver(
                    self._places.kubelet_dir,
                    self._objects,
                    self._places.cdi_dir,
                    driver=name,
                    slices=slices,
                    instance=self._instance,
                )
                await found.start()
            found.publish(*slices)
            names = [each["name"] for one in slices for each in one["spec"].get("devices", [])]
            found.say(**{name.replace("-", "_"): health.get(name, "HEALTHY") for name in names})


def read(configuration):
    """The slices by driver, and the health of devices that a fault rule names."""
    slices, health = {}, {}
    for rule in (configuration.get("faults") or {}).get("rules", []):
        for target in rule["devices"]:
            health[target.replace("/", "-")] = f"UNHEALTHY: {rule['reason']}"
    shares = {
        each["name"]: each["replicas"]
        for each in ((configuration.get("sharing") or {}).get("timeSlicing") or {}).get("resources", [])
    }
    for entry in configuration["devices"]:
        driver = (entry.get("dra") or {}).get("driver") or entry["resource"].partition("/")[0]
        ids = [f"{entry['name']}-{number}" for number in range(entry["virtual"]["count"])]
        if (entry.get("dra") or {}).get("partitions") == "dynamic":
            slices[driver] = _partitioned(driver, ids, entry["virtual"]["partitioning"])
            continue
        share = shares.get(entry["resource"])
        slices[driver] = [slice_of(driver, [_device(each, share, health.get(each)) for each in ids])]
    return slices, health


def _device(name, share, sick):
    fields = {"attributes": {"id": name, "type": name.partition("-")[0]}}
    if share:
        policy = {"default": "1", "validRange": {"min": "1", "step": "1"}}
        slots = {"value": str(share), "requestPolicy": policy}
        fields |= {"allowMultipleAllocations": True, "capacity": {"slots": slots}}
    if sick:
        fields["taints"] = [{"key": "acme.dev/unhealthy", "effect": "NoSchedule"}]
    return device(name, **fields)


def _partitioned(driver, ids, partitioning):
    every = range(partitioning["slices"])
    sets = [{"name": f"{each}-counter-set", "counters": {f"slice-{n}": {"value": "1"} for n in every}} for each in ids]

    def consuming(id_, name, which, **attributes):
        counters = {f"slice-{n}": {"value": "1"} for n in which}
        uses = [{"counterSet": f"{id_}-counter-set", "counters": counters}]
        return device(name, consumesCounters=uses, attributes={"id": name, **attributes})

    kind = ids[0].partition("-")[0]
    devices = [consuming(each, each, every, type=kind) for each in ids]
    devices += [
        consuming(
            id_, f"{id_}-{profile}-{start}", range(start, start + size), type=f"{kind}-partition", profile=profile
        )
        for id_ in ids
        for profile, size in sorted((name, each["slices"]) for name, each in partitioning["profiles"].items())
        for start in range(len(every) - size + 1)
    ]
    return [
        slice_of(driver, counters=sets, name=f"00000-{driver}-{NODE}", count=2),
        slice_of(driver, devices, name=f"00001-{driver}-{NODE}", count=2),
    ]
