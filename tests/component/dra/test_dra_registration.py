"""The driver's sockets: registration, recovery after they were removed, and several instances of one driver."""

import asyncio
import shutil
import socket

from vdev.dra.driver import DriverState
from vdev.pb import pluginregistration_v1_pb2

DRIVER = "gpu.acme.dev"
OLD, NEW = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"


async def test_the_answer_to_get_info(start_driver, kubelet):
    """Like Kubernetes' Go library: v1 first, and an absolute endpoint. The socket is removed at the end."""
    running = await start_driver(None)
    assert DriverState.WAITING is running.driver.state
    info = (await kubelet.register()).info
    assert [kubelet.registry / f"{DRIVER}-reg.sock"] == kubelet.sockets
    assert (
        pluginregistration_v1_pb2.PluginInfo(
            type="DRAPlugin",
            name=DRIVER,
            endpoint=str(kubelet.registry / f"{DRIVER}-reg.sock"),
            supported_versions=[
                "v1.DRAPlugin",
                "v1alpha1.DRAResourceHealth",
                "v1.DRAResourceHealth",
            ],
        )
        == info
    )
    assert DriverState.REGISTERED is running.driver.state
    await running.stop()
    assert [] == kubelet.sockets


async def test_a_refused_registration_is_a_problem_until_it_succeeds(start_driver, kubelet):
    """The problem has the kubelet's error."""
    running = await start_driver(None)
    await kubelet.register(error="endpoint already registered")
    assert DriverState.REFUSED is running.driver.state
    (problem,) = running.driver.problems
    assert f"the kubelet does not take the DRA driver {DRIVER}: endpoint already registered" == problem.message
    await kubelet.register()
    assert () == running.driver.problems


async def test_sockets_come_back_after_their_directories_were_deleted(start_driver, kubelet):
    """The registry, the driver's directory, or both, as when the kubelet's directory is wiped."""
    running = await start_driver(None)
    own = kubelet.directory / "plugins"
    for directories in ([kubelet.registry], [own], [kubelet.registry, own]):
        for each in directories:
            shutil.rmtree(each)
        running.driver.recheck()
        if kubelet.registry in directories:
            # An attempt that had begun before the deletion has another message.
            await running.until(lambda: "there is no directory" in str(running.driver.problems))
            assert DriverState.FAILING is running.driver.state
            kubelet.registry.mkdir()
        await running.until(lambda: kubelet.sockets and (own / DRIVER).exists())
        await running.until(lambda: not running.driver.problems)
        claim = {"metadata": {"namespace": "default", "name": "c", "uid": "abc"}}
        assert {"abc": ""} == await (await kubelet.register()).unprepare(claim)


async def test_dead_sockets_of_the_same_driver_are_removed(start_driver, kubelet):
    """Sockets of other drivers, and files that are not sockets, stay."""
    own = kubelet.directory / "plugins" / DRIVER
    own.mkdir(parents=True)
    dead = [kubelet.registry / f"{DRIVER}-{OLD}-reg.sock", kubelet.registry / f"{DRIVER}-reg.sock"]
    others = [
        kubelet.registry / f"{DRIVER}.other-reg.sock",
        kubelet.registry / f"a.{DRIVER}-reg.sock",
        own / "other.sock",
    ]
    for path in (*dead, *others):
        with socket.socket(socket.AF_UNIX) as nobody:
            nobody.bind(str(path))
    (kubelet.registry / f"{DRIVER}-{NEW}-reg.sock").write_text("no socket")
    await start_driver(None, pod_uid="33333333-3333-4333-8333-333333333333")
    assert [] == [path for path in dead if path.exists()]
    assert others == [path for path in others if path.exists()]
    assert (kubelet.registry / f"{DRIVER}-{NEW}-reg.sock").exists()


async def test_a_second_driver_of_the_same_name_waits(start_driver, kubelet):
    """It has a problem until the first one ends, and leaves its socket alone."""
    first = await start_driver(None)
    second = await start_driver(None, wait=False)
    await second.until(lambda: second.driver.problems)
    assert f"another process serves {kubelet.directory}" in second.driver.problems[0].message
    assert DRIVER == (await kubelet.register()).info.name
    assert DriverState.REGISTERED is first.driver.state
    await first.stop()
    await second.until(lambda: not second.driver.problems and second.driver.state is DriverState.WAITING)
    assert 1 == len(kubelet.sockets)


async def test_a_rolling_update_of_the_driver(api, start_driver, kubelet, allocate):
    """Both pods serve. The new one knows the claims that the old one prepared, and unprepares them."""
    claims = [await allocate(name, ("r", device)) for name, device in (("one", "gpu-0"), ("two", "gpu-1"))]
    thief = await allocate("thief", ("r", "gpu-0"))
    first = await start_driver(api, pod_uid=OLD)
    old = await kubelet.register()
    before = await old.prepare(claims[0])
    await start_driver(api, pod_uid=NEW)
    assert [f"{DRIVER}-{OLD}-reg.sock", f"{DRIVER}-{NEW}-reg.sock"] == [each.name for each in kubelet.sockets]
    new = await kubelet.register(kubelet.sockets[1])
    assert new.info.endpoint.endswith(f"/{DRIVER}-{NEW}-reg.sock")
    assert before == await new.prepare(claims[0])
    assert "is prepared for ResourceClaim default/one" in (await new.prepare(thief))[thief["metadata"]["uid"]].error
    await asyncio.gather(*(each.prepare(claims[1]) for each in (old, new)))
    await first.stop()
    assert [f"{DRIVER}-{NEW}-reg.sock"] == [each.name for each in kubelet.sockets]
    assert {each["metadata"]["uid"]: "" for each in claims} == await new.unprepare(*claims)
    assert "" == (await new.prepare(thief))[thief["metadata"]["uid"]].error


async def test_a_restart_restores_prepared_claims(api, start_driver, kubelet, allocate, cdi_dir):
    """Lost CDI files are restored. CDI files of unknown claims stay until unprepare, because a pod may use them."""
    claim = await allocate("c", ("r", "gpu-0"))
    first = await start_driver(api)
    before = await (await kubelet.register()).prepare(claim)
    file = cdi_dir / f"k8s.{DRIVER}-claim_{claim['metadata']['uid']}.json"
    await first.stop()
    file.unlink()
    unknown, foreign = cdi_dir / f"k8s.{DRIVER}-claim_gone.json", cdi_dir / "k8s.other-claim_gone.json"
    unfinished = cdi_dir / f".k8s.{DRIVER}-claim_gone.json.x.tmp"
    for each in (unknown, foreign, unfinished):
        each.write_text("{}")
    second = await start_driver(api)
    await second.until(lambda: second.driver.claims.prepared)
    assert {file.name, unknown.name, foreign.name} == {each.name for each in cdi_dir.iterdir()}
    called = await kubelet.register()
    assert before == await called.prepare(claim)
    (problem,) = second.driver.problems
    assert f"does not have the claims of 1 CDI files in {cdi_dir}, of which the first is {unknown.name}" in str(problem)
    assert {"gone": ""} == await called.unprepare({"metadata": {"namespace": "default", "name": "x", "uid": "gone"}})
    second.driver.recheck()
    await second.until(lambda: not second.driver.problems)
    assert {file.name, foreign.name} == {each.name for each in cdi_dir.iterdir()}


async def test_a_call_in_flight_is_answered_at_the_end(api, start_driver, kubelet, allocate, api_server):
    """A stopping driver finishes its calls."""
    running = await start_driver(api)
    called = await kubelet.register()
    claim = await allocate("c", ("r", "gpu-0"))
    hangs = api_server.fail(verb="get", hang=True, times=1)
    answer = asyncio.ensure_future(called.prepare(claim))
    await api_server.until(lambda: hangs.hits)
    running.task.cancel()
    running.clock.advance(50)
    assert "was not prepared within" in (await answer)[claim["metadata"]["uid"]].error
    await asyncio.wait([running.task])
