"""Findings about the slices and answers of DRA drivers."""

import json

import pytest

from tests.kit.dra_driver import device, slice_of
from tests.kit.dra_objects import claim, device_class, exactly, pod
from vdev.pb import dra_v1_pb2 as v1
from vdev.sim import Edits, manifest
from vdev.sim.dra import cdi_directory, pools


def codes(*slices):
    """The findings about pools."""
    return [each.code for each in pools.check_pools(slices)]


def of(*devices, **options):
    return slice_of("acme.dev", list(devices), **options)


USE = {"counterSet": "s", "counters": {"m": {"value": "1"}}}


def test_pools():
    """Rules for several slices, at the newest generation."""
    counters = slice_of("acme.dev", counters=[{"name": "c", "counters": {"m": {"value": "4"}}}], name="0", count=2)

    def uses(counter, value):
        consumed = [{"counterSet": "c", "counters": {counter: {"value": value}}}]
        return of(device("a", consumesCounters=consumed), name="1", count=2)

    assert [] == codes(counters, uses("m", "4"))
    assert ["counter-undefined"] == codes(counters, uses("n", "1"))
    assert ["counter-too-small"] == codes(counters, uses("m", "5"))
    assert ["pool-count"] == codes(of(name="0", count=1), of(name="1", count=2))
    assert ["duplicate-device"] == codes(of(device("a"), name="0", count=2), of(device("a"), name="1", count=2))
    assert [] == codes(of(device("a"), name="0", generation=1), of(device("a"), name="1", generation=2))


async def test_a_pool_that_stays_incomplete(kubelet, clock):
    """It is a finding at the second check, ten seconds later."""
    await kubelet.objects.create("ResourceSlice", of(device("a"), count=2))
    await kubelet.wait_until(lambda: kubelet.ready)
    clock.advance(10)
    assert [] == kubelet.findings
    await kubelet.wait_until(lambda: clock.advance(10) or kubelet.findings)
    assert ["pool-incomplete"] == [each.code for each in kubelet.findings]


async def test_slices_of_an_older_generation_that_stay(kubelet, clock):
    """The scheduler ignores them, and nobody deletes them."""
    await kubelet.objects.create("ResourceSlice", of(device("a"), name="old", generation=1))
    await kubelet.objects.create("ResourceSlice", of(device("a"), name="new", generation=2))
    await kubelet.wait_until(lambda: clock.advance(10) or kubelet.findings)
    assert ["pool-outdated"] == [each.code for each in kubelet.findings]


@pytest.fixture
async def driver(kubelet_of, dra_on, driver_slices):
    """A driver on a kubelet that makes each call twice."""
    async with kubelet_of() as strict:
        await strict.objects.create("DeviceClass", device_class("acme.dev"))
        found = await dra_on(strict, *driver_slices)
        found.kubelet = strict
        await strict.objects.create("ResourceClaim", claim("gpu", exactly(count=1)))
        yield found
        await found.stop()


async def test_a_correct_driver_has_no_findings(driver):
    """Prepare and Unprepare are called twice."""
    await driver.kubelet.run_pod(pod("one", claims=["gpu"]))
    await driver.kubelet.delete_pod("one")
    assert [["gpu"], ["gpu"]] == driver.asked("NodePrepareResources")
    assert [["gpu"], ["gpu"]] == driver.asked("NodeUnprepareResources")
    assert [] == driver.kubelet.findings


def answer(**changes):
    """Change the devices of the driver's answer."""

    def wrap(driver):
        sound = driver.prepare_claim

        async def prepare(asked):
            found = await sound(asked)
            for key, value in changes.items():
                field = getattr(found.devices[0], key)
                if isinstance(value, list):
                    del field[:]
                    field.extend(value)
                else:
                    setattr(found.devices[0], key, value)
            return found

        driver.prepare_claim = prepare

    return wrap


def different_each_time(driver):
    sound, times = driver.prepare_claim, []

    async def prepare(asked):
        found = await sound(asked)
        times.append(1)
        found.devices[0].cdi_device_ids.append(f"acme.dev/gpu=try-{len(times)}")
        return found

    driver.prepare_claim = prepare


async def test_another_answer_after_a_restart(driver):
    """The new kubelet process calls again when a second pod uses the claim."""
    kubelet = driver.kubelet
    await kubelet.run_pod(pod("one", claims=["gpu"]))
    before = len(driver.statuses)
    await kubelet.restart()
    await kubelet.wait_until(lambda: len(driver.statuses) > before and kubelet.drivers()["acme.dev"][0].connected)
    await kubelet.run_pod(pod("two", claims=["gpu"]))
    assert [] == kubelet.errors
    answer(request_names=[])(driver)
    await kubelet.restart()
    await kubelet.wait_until(lambda: len(driver.statuses) > before + 1 and kubelet.drivers()["acme.dev"][0].connected)
    await kubelet.run_pod(pod("three", claims=["gpu"]))
    assert ["prepare-not-idempotent"] == [each.code for each in kubelet.errors]


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        (answer(device_name="gpu-1"), {"prepared-not-allocated", "allocated-not-prepared"}),
        (answer(request_names=["main/sub"]), {"request-name"}),
        (answer(request_names=["*"]), set()),
        (answer(cdi_device_ids=["nonsense"]), {"cdi-name", "cdi-unresolved"}),
        (answer(cdi_device_ids=["acme.dev/gpu=gone"]), {"cdi-unresolved"}),
        (different_each_time, {"prepare-not-idempotent", "cdi-unresolved"}),
    ],
)
async def test_findings_about_prepare(driver, wrong, expected):
    """Each of these answers breaks something sooner or later."""
    wrong(driver)
    await driver.kubelet.run_pod(pod("one", claims=["gpu"]))
    assert expected == {each.code for each in driver.kubelet.errors}


async def test_unprepare_of_a_claim_that_is_not_known_must_succeed(driver):
    """At the second call, the driver does not know it any more."""
    sound = driver.unprepare_claim

    async def unprepare(asked):
        if asked.uid not in driver.prepared():
            return v1.NodeUnprepareResourceResponse(error="never heard of it")
        return await sound(asked)

    driver.unprepare_claim = unprepare
    await driver.kubelet.run_pod(pod("one", claims=["gpu"]))
    await driver.kubelet.delete_pod("one")
    assert ["unprepare-unknown"] == [each.code for each in driver.kubelet.errors]


def resolved(directory, names, containers, **more):
    """The result of CDI names if devices have these edits."""
    devices = [{"name": name, "containerEdits": each} for name, each in containers.items()]
    document = {"cdiVersion": "0.8.0", "kind": "acme.dev/gpu", "devices": devices, **more}
    (directory / "gpu.json").write_text(json.dumps(document))
    return cdi_directory.resolve(directory, Edits(cdi_devices=tuple(f"acme.dev/gpu={name}" for name in names)))


def test_cdi_specs_are_merged_as_a_runtime_does(tmp_path):
    """Edits for all devices are applied once. A lost value of a variable, and an invalid file, are reported."""
    gpus = {name: {"env": [f"GPU={name}"], "deviceNodes": [{"path": f"/dev/{name}"}]} for name in "ab"}
    mounts = [{"hostPath": "/x", "containerPath": "/y", "options": ["ro"]}]
    (tmp_path / "broken.json").write_text("{")
    edits, missing, findings = resolved(tmp_path, "abc", gpus, containerEdits={"env": ["ALL=1"], "mounts": mounts})
    assert {"ALL": "1", "GPU": "b"} == dict(edits.envs)
    assert ["/dev/a", "/dev/b"] == [each.host_path for each in edits.devices]
    assert [("/x", "/y", True)] == [(m.host_path, m.container_path, m.read_only) for m in edits.mounts]
    assert ["acme.dev/gpu=c"] == missing
    broken, *_, hidden = findings
    assert ("cdi-spec", True) == (broken.code, "broken.json is not a CDI specification" in broken.message)
    assert ("cdi-overwritten", "GPU: acme.dev/gpu=b sets 'b', which hides 'a'") == (hidden.code, hidden.message)


def test_mounts_that_are_reported(tmp_path):
    """A program that opens a device gets EACCES after nodev, but files can be mounted so.

    A runtime creates a missing source of a device plugin's mount, but fails for a mount of CDI.
    """
    (tmp_path / "line").symlink_to("/dev/null")
    (tmp_path / "text").write_text("")
    mounts = [
        {"hostPath": str(tmp_path / name), "containerPath": f"/in/{number}", "options": ["rbind", *options]}
        for number, (name, *options) in enumerate([("line", "nodev"), ("line",), ("text", "rw", "nodev"), ("away",)])
    ]
    mounts += [{"hostPath": name, "containerPath": f"/in{name}", "type": "tmpfs"} for name in ("tmpfs", "/memory")]
    _, _, (nodev, missing) = resolved(tmp_path, "a", {"a": {"mounts": mounts}})
    assert f"acme.dev/gpu=a mounts {tmp_path}/line, a device, with nodev" in nodev.message
    assert f"acme.dev/gpu=a mounts {tmp_path}/away, which does not exist" in missing.message


def test_a_last_value_that_contains_all_others_hides_nothing(tmp_path):
    """Drivers do this on purpose: the list of all devices comes last."""
    gpus = {name: {"env": [f"GPU={value}"]} for name, value in (("a", "0"), ("b", "1,2"), ("c", "0,1,2"))}
    assert [] == resolved(tmp_path, "abc", gpus)[2]
    assert 2 == len(resolved(tmp_path, "cab", gpus)[2])


async def test_slices_of_other_nodes_are_not_checked(kubelet):
    """A mistake that stays is reported once."""
    uses = device("a", consumesCounters=[USE])
    for node in ("n1", "sim-node"):
        await kubelet.objects.create("ResourceSlice", slice_of("acme.dev", [uses], node=node, pool=node, name=node))
    await kubelet.wait_until(lambda: kubelet.findings)
    await kubelet.objects.create("DeviceClass", device_class("acme.dev"))
    await kubelet.run_pod(manifest("one"))
    assert [("counter-undefined", True)] == [(each.code, "pool sim-node" in each.message) for each in kubelet.findings]
