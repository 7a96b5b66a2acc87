"""Prepares and unprepares a claim in processes that are killed during the call, at every fifth point.

    python -m tests.kit.dra_mortal DIRECTORY

`tests.kit.mortal` defines points. After each kill, a new driver starts and gets the unanswered call or the opposite
call. The output is a line of JSON with the errors and the numbers of points.
"""

import asyncio
import json
import os
import random
import shutil
import sys
from pathlib import Path

from tests.kit import dra
from tests.kit.mortal import NEVER, Fuse
from vdev.dra.checkpoint import Places
from vdev.dra.claims import ClaimRef, Claims

DRIVER = "gpu.acme.dev"
UIDS = {"kept": "11111111-1111-4111-8111-111111111111", "mortal": "22222222-2222-4222-8222-222222222222"}
_DEVICES = {f"gpu-{number}": dra.device(f"GPU-{number}", number) for number in range(2)}
_POOL = dra.pool(DRIVER, _DEVICES, dra.resource(*_DEVICES.values()))
_CLAIMS = {
    name: dra.claim(name, ("r", device), driver=DRIVER, uid=uid)
    for (name, uid), device in zip(UIDS.items(), _DEVICES, strict=True)
}


class _Api:
    async def get(self, _kind, name, *, namespace):
        """The claim."""
        return {"kept": _CLAIMS["kept"], "mortal": _CLAIMS["mortal"]}[name] | {"namespace": namespace}


def _claims(directory):
    (directory / "kubelet").mkdir(exist_ok=True, parents=True)
    places = Places(driver=DRIVER, kubelet_dir=directory / "kubelet", cdi_dir=directory / "cdi")
    claims = Claims(dra.agent(_Api()), places, {}, lambda _claims: None)
    claims.pool = _POOL
    return claims


def _ref(name):
    return ClaimRef(namespace="default", uid=UIDS[name], name=name)


async def _begin(directory):
    """Prepare the claim that remains prepared during the call."""
    await _claims(directory).prepare([_ref("kept")])


async def _call(directory, call):
    claims = _claims(directory)
    await claims.restore()
    return await getattr(claims, call)([_ref("mortal")])


async def _after(directory, call):
    """Start a new driver and call it. Returns the errors."""
    claims = _claims(directory)
    await claims.restore()
    wrong = [claims.trouble] if claims.trouble else []
    files = {each.name for each in (directory / "cdi").iterdir()}
    named = {uid: f"k8s.{DRIVER}-claim_{uid}.json" for uid in UIDS.values()}
    if files != {named[uid] for uid in claims.prepared}:
        wrong.append(f"after the start: {sorted(files)} for {sorted(claims.prepared)}")
    own = [each.name for each in (directory / "kubelet" / "plugins" / DRIVER).iterdir()]
    if own != ["prepared-claims.json"]:
        wrong.append(f"after the start the driver's directory has {own}")
    if UIDS["kept"] not in claims.prepared:
        wrong.append("the other claim is lost")
    answer = (await getattr(claims, call)([_ref("mortal")]))[UIDS["mortal"]]
    expected = {*UIDS} if call == "prepare" else {"kept"}
    if call == "prepare" and (isinstance(answer, str) or [each.device for each in answer.devices] != ["gpu-1"]):
        wrong.append(f"not prepared again: {answer}")
    if call == "unprepare" and answer:
        wrong.append(f"not unprepared: {answer}")
    if {UIDS[name] for name in expected} != set(claims.prepared):
        wrong.append(f"prepared are {sorted(claims.prepared)}")
    if {each.name for each in (directory / "cdi").iterdir()} != {named[UIDS[name]] for name in expected}:
        wrong.append(f"at the end: {sorted(each.name for each in (directory / 'cdi').iterdir())}")
    for path in (directory / "cdi").iterdir():
        json.loads(path.read_text())
    return wrong


def _in_a_process(work, fuse):
    """Run a coroutine in its own process with the fuse lit. Returns its result, or None if the process was killed."""
    read, write = os.pipe()
    if not (child := os.fork()):
        fuse.burn()
        os.write(write, json.dumps(asyncio.run(work), default=str).encode())
        os._exit(0)
    work.close()
    os.close(write)
    with open(read, "rb") as answer:
        text = answer.read()
    os.waitpid(child, 0)
    return json.loads(text) if text else None


def _begun(directory):
    """Create the directories for each call. One claim is prepared in them, and for unprepare also the other one."""
    before = {call: directory / f"before-{call}" for call in ("prepare", "unprepare")}
    for place in before.values():
        asyncio.run(_begin(place))
    asyncio.run(_call(before["unprepare"], "prepare"))
    return before


def _main(directory):
    wrong, points = [], {}
    before = _begun(directory)
    for call in ("prepare", "unprepare"):
        for then in ("prepare", "unprepare"):
            for point in range(random.randint(1, 5), NEVER, 5):  # every fifth one, with a random start
                place = directory / f"{call}-{then}-{point}"
                shutil.copytree(before[call], place)
                fuse = Fuse(place / "fuse")
                fuse.light(point)
                done = _in_a_process(_call(place, call), fuse)
                where = f"{call}, killed at {point}, then {then}"
                try:
                    wrong += [f"{where}: {each}" for each in asyncio.run(_after(place, then))]
                except Exception as failed:
                    failed.add_note(where)
                    raise
                shutil.rmtree(place)
                if done is not None:
                    points[f"{call} {then}"] = point
                    break
    sys.stdout.write(json.dumps({"wrong": wrong, "points": points}) + "\n")


if __name__ == "__main__":
    _main(Path(sys.argv[1]))
