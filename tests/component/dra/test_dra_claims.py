"""Prepare and unprepare over real sockets: answers, CDI files, the record, and the error text of each refused claim."""

import asyncio
import contextlib
import hashlib
import json

import pytest

from tests.kit import dra

DRIVER = "gpu.acme.dev"
KIND = f"k8s.{DRIVER}/claim"


@pytest.fixture
async def driver(api, start_driver, kubelet):
    """A registered driver."""
    running = await start_driver(api)
    return running, await kubelet.register()


def uid(claim):
    return claim["metadata"]["uid"]


def document(cdi_dir, claim):
    """The claim's CDI specification."""
    return json.loads((cdi_dir / f"k8s.{DRIVER}-claim_{uid(claim)}.json").read_text())


async def test_a_claim_is_prepared_and_unprepared(driver, allocate, cdi_dir):
    """The CDI names of the answer can be resolved. Unprepare removes the files and the record's entry."""
    running, kubelet = driver
    claim = await allocate("c", ("r", "gpu-0"), ("r", "gpu-1"))
    answer = (await kubelet.prepare(claim))[uid(claim)]
    assert "" == answer.error
    assert [("node-1", "gpu-0", ["r"]), ("node-1", "gpu-1", ["r"])] == [
        (each.pool_name, each.device_name, [*each.request_names]) for each in answer.devices
    ]
    assert [f"{KIND}={uid(claim)}-gpu-0", f"{KIND}={uid(claim)}_r"] == [*answer.devices[0].cdi_device_ids]
    found = document(cdi_dir, claim)
    dra.CDI.validate(found)
    edits = {each["name"]: each["containerEdits"] for each in found["devices"]}
    assert {"env": ["ACME_DEV_GPU_VISIBLE_DEVICES=GPU-0,GPU-1"]} == edits[f"{uid(claim)}_r"]
    assert {uid(claim)} == running.driver.claims.prepared.keys()
    assert {uid(claim): ""} == await kubelet.unprepare(claim)
    assert [] == [*cdi_dir.iterdir()]
    assert {} == running.driver.claims.prepared


async def test_a_second_prepare_restores_a_lost_cdi_file(driver, allocate, cdi_dir):
    """This happens after a reboot."""
    _, kubelet = driver
    claim = await allocate("c", ("r", "gpu-0"))
    await kubelet.prepare(claim)
    before = document(cdi_dir, claim)
    (cdi_dir / f"k8s.{DRIVER}-claim_{uid(claim)}.json").unlink()
    await kubelet.prepare(claim)
    assert before == document(cdi_dir, claim)


async def test_a_container_that_uses_all_requests_gets_one_list_of_devices(driver, allocate):
    """The last item of the answer is for all requests. It begins with the CDI names of the last device.

    The kubelet names a device in the pod's status by its first CDI name, so this item adds no device there.
    """
    _, kubelet = driver
    claim = await allocate("c", ("a", "gpu-0"), ("b", "gpu-1"))
    devices = (await kubelet.prepare(claim))[uid(claim)].devices
    assert [["a"], ["b"], ["*"]] == [[*each.request_names] for each in devices]
    assert [*devices[1].cdi_device_ids, f"{KIND}={uid(claim)}"] == [*devices[2].cdi_device_ids]
    assert ("node-1", "gpu-1") == (devices[2].pool_name, devices[2].device_name)


# --- refused claims ---------------------------------------------------------------------------------------------------


async def test_a_deleted_or_replaced_claim_is_refused(driver, allocate, api_server):
    """A new claim of the same name has another uid."""
    _, kubelet = driver
    claim = await allocate("c", ("r", "gpu-0"))
    await api_server.remove("resourceclaims", "c", namespace="default")
    assert "there is no ResourceClaim c in default" == (await kubelet.prepare(claim))[uid(claim)].error
    new = await allocate("c", ("r", "gpu-0"))
    assert (
        f"ResourceClaim default/c is another one by now: its uid is {uid(new)}, and {uid(claim)} was to be prepared; "
        "delete the pod, so that a new one gets the new claim"
    ) == (await kubelet.prepare(claim))[uid(claim)].error


async def test_a_missing_permission_is_named(driver, allocate, api_server):
    """The error says which verb on which resource the role needs."""
    _, kubelet = driver
    claim = await allocate("c", ("r", "gpu-0"))
    api_server.permissions = set()
    error = (await kubelet.prepare(claim))[uid(claim)].error
    assert "may not get resourceclaims in resource.k8s.io" in error
    assert "give it a role with the verb get on resourceclaims" in error


async def test_prepare_fails_while_the_api_server_does_not_answer(driver, allocate, api_server):
    """A later call succeeds."""
    _, kubelet = driver
    claim = await allocate("c", ("r", "gpu-0"))
    api_server.fail(status=500)
    assert "does not answer: status 500" in (await kubelet.prepare(claim))[uid(claim)].error
    api_server.heal()
    assert "" == (await kubelet.prepare(claim))[uid(claim)].error


async def test_a_device_is_prepared_for_one_claim_only(driver, allocate):
    """Prepare of a second claim with the device fails until the first claim is unprepared."""
    _, kubelet = driver
    one, other = await allocate("one", ("r", "gpu-0")), await allocate("other", ("r", "gpu-0"))
    await kubelet.prepare(one)
    assert (
        "device gpu-0 of pool node-1 cannot be given to ResourceClaim default/other: it is prepared for ResourceClaim "
        "default/one, whose pods have not ended"
    ) == (await kubelet.prepare(other))[uid(other)].error
    await kubelet.unprepare(one)
    assert "" == (await kubelet.prepare(other))[uid(other)].error


async def test_shares_have_their_own_cdi_names(driver, allocate):
    """Two claims have shares of one device, and one of them has two shares."""
    shares = [{"shareID": f"00000000-0000-4000-8000-{number:012}"} for number in range(3)]
    _, kubelet = driver
    one = await allocate("one", ("r", "gpu-2", shares[0]), ("r", "gpu-2", shares[1]))
    two = await allocate("two", ("r", "gpu-2", shares[2]))
    answers = await kubelet.prepare(one, two)
    assert [each["shareID"] for each in shares] == [
        each.share_id for claim in (one, two) for each in answers[uid(claim)].devices
    ]
    names = [answers[uid(one)].devices[number].cdi_device_ids[0] for number in (0, 1)]
    assert [f"{KIND}={uid(one)}-gpu-2-{each['shareID']}" for each in shares[:2]] == names


# --- unusable files ---------------------------------------------------------------------------------------------------


async def test_prepare_fails_while_the_record_cannot_be_read(driver, allocate, kubelet):
    """So does unprepare. Prepare succeeds once the record can be read and written again."""
    _, called = driver
    record = kubelet.directory / "plugins" / DRIVER / "prepared-claims.json"
    record.mkdir()
    claim = await allocate("c", ("r", "gpu-0"))
    assert f"cannot read {record}: it is a directory" in (await called.prepare(claim))[uid(claim)].error
    assert "it is a directory" in (await called.unprepare(claim))[uid(claim)]
    record.rmdir()
    assert "" == (await called.prepare(claim))[uid(claim)].error


def record_of(kubelet):
    """The driver's record of prepared claims."""
    return kubelet.directory / "plugins" / DRIVER / "prepared-claims.json"


def recorded(kubelet):
    """The uids in the record, if there is one."""
    with contextlib.suppress(FileNotFoundError, KeyError, ValueError):
        return {each["uid"] for each in json.loads(record_of(kubelet).read_bytes().partition(b"\n")[0])["claims"]}
    return set()


SPOILT = [
    (lambda text: text[: len(text) // 2], "the file is damaged"),
    (lambda text: text.replace(b"gpu-0", b"gpu-1"), "the file is damaged: its checksum does not fit"),
    (lambda text: text.replace(b'"version":2', b'"version":7'), "it has version 7, and this vdev knows version 2"),
    (lambda _text: b"", "the file is damaged"),
    (lambda _text: b"[" * 100_000, "the file is damaged"),
]


@pytest.mark.parametrize(
    "loss", ["removed", "emptied", "damaged", "replaced by an older one", "replaced by an empty one"]
)
async def test_a_running_driver_restores_its_lost_record(driver, allocate, kubelet, cdi_dir, loss):
    """The driver remembers its prepared claims: no other claim gets the device, and the CDI file stays."""
    running, called = driver
    record = record_of(kubelet)
    await called.prepare(await allocate("before", ("r", "gpu-1")))
    older = record.read_bytes()
    claim = await allocate("c", ("r", "gpu-0"))
    await called.prepare(claim)
    match loss:
        case "removed":
            record.unlink()
        case "emptied":
            record.write_bytes(b"")
        case "damaged":
            record.write_bytes(b"{}")
        case "replaced by an older one":
            record.write_bytes(older)
        case _:
            body = json.dumps({"version": 2, "claims": []}).encode()
            record.write_bytes(body + b"\n" + hashlib.sha256(body).hexdigest().encode() + b"\n")
    running.driver.recheck()
    await running.until(lambda: uid(claim) in recorded(kubelet))
    other = await allocate("d", ("r", "gpu-0"))
    assert "it is prepared for ResourceClaim default/c" in (await called.prepare(other))[uid(other)].error
    assert uid(claim) in running.driver.claims.prepared
    assert document(cdi_dir, claim)
    assert () == running.driver.problems
    assert [each["event"] for each in running.logs if each["event"].endswith("written again")]


@pytest.mark.parametrize(("spoil", "why"), SPOILT)
async def test_a_start_with_a_spoilt_record(start_driver, api, allocate, kubelet, cdi_dir, spoil, why):
    """The record is moved aside. Its claims can be unprepared, and are a problem until then. Others can be prepared."""
    first = await start_driver(api)
    called = await kubelet.register()
    claim = await allocate("c", ("r", "gpu-0"))
    await called.prepare(claim)
    await first.stop()
    record = record_of(kubelet)
    record.write_bytes(spoil(record.read_bytes()))
    running = await start_driver(api)
    called = await kubelet.register()
    other = await allocate("d", ("r", "gpu-1"))
    assert "" == (await called.prepare(other))[uid(other)].error
    (problem,) = running.driver.problems
    assert f"the record {record} does not have the claims of 1 CDI files" in problem.message
    assert [why] == [each["reason"] for each in running.logs if each["event"].endswith("cannot be used")]
    assert record.with_name("prepared-claims.json.spoilt").exists()
    assert document(cdi_dir, claim)
    assert {uid(claim): "", uid(other): ""} == await called.unprepare(claim, other)
    assert [] == [*cdi_dir.iterdir()]
    running.driver.recheck()
    await running.until(lambda: not running.driver.problems)


async def test_a_start_without_the_record(start_driver, api, allocate, kubelet, cdi_dir):
    """The CDI files of the record's claims stay until the claims are unprepared."""
    first = await start_driver(api)
    claim = await allocate("c", ("r", "gpu-0"))
    await (await kubelet.register()).prepare(claim)
    await first.stop()
    record_of(kubelet).unlink()
    other = await allocate("d", ("r", "gpu-1"))
    for _ in range(2):  # the second start finds the record of the first one
        running = await start_driver(api)
        called = await kubelet.register()
        assert "" == (await called.prepare(other))[uid(other)].error
        assert document(cdi_dir, claim)
        await running.stop()
    await start_driver(api)
    assert {uid(claim): ""} == await (await kubelet.register()).unprepare(claim)
    assert [f"k8s.{DRIVER}-claim_{uid(other)}.json"] == [each.name for each in cdi_dir.iterdir()]


# --- time -------------------------------------------------------------------------------------------------------------


async def test_a_new_allocation_of_the_same_claim_replaces_the_old_one(driver, allocate, api_server, cdi_dir):
    """The kubelet did not unprepare the old one. Its devices are free again."""
    _, kubelet = driver
    claim = await allocate("c", ("r", "gpu-0"))
    await kubelet.prepare(claim)
    other = dra.claim("c", ("r", "gpu-1"), driver=DRIVER)["status"]
    for status in ({"allocation": None, "reservedFor": None}, other):  # the old allocation is removed first
        await api_server.edit("resourceclaims", "c", {"status": status}, namespace="default", subresource="status")
    answer = (await kubelet.prepare(claim))[uid(claim)]
    assert ["gpu-1"] == [each.device_name for each in answer.devices]
    assert f"{uid(claim)}-gpu-1" in {each["name"] for each in document(cdi_dir, claim)["devices"]}
    again = await allocate("d", ("r", "gpu-0"))
    assert "" == (await kubelet.prepare(again))[uid(again)].error


async def test_two_claims_in_one_call_cannot_have_one_device(driver, allocate):
    """The second one is refused."""
    _, kubelet = driver
    claims = [await allocate(name, ("r", "gpu-0")) for name in ("one", "other")]
    answers = await kubelet.prepare(*claims)
    assert 1 == sum(bool(each.error) for each in answers.values())


async def test_a_slow_prepare_is_answered_before_the_kubelets_deadline(driver, allocate, api_server):
    """The error names possible causes."""
    running, kubelet = driver
    claim = await allocate("c", ("r", "gpu-0"))
    hangs = api_server.fail(verb="get", hang=True)
    answer = asyncio.ensure_future(kubelet.prepare(claim))
    await api_server.until(lambda: hangs.hits)
    running.clock.advance(41)
    assert "it was not prepared within 40 s: the API server, the disk, or" in (await answer)[uid(claim)].error
