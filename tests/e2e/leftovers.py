"""What a run that was killed leaves in a cluster, and how the next one takes it away.

Everything is in a namespace whose label says when its run can no longer be alive; a run puts that off while it lives.
What has to be outside is labelled with its name. What it changes elsewhere (an agent that ran before) is noted in the
namespace, to be put back.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

EVERYWHERE = ("deviceclasses.resource.k8s.io", "clusterroles", "clusterrolebindings")  # in no namespace, for claims
RUN = "vdev.dev/e2e-run"  # on what is in none: the namespace of the run that made it
EXPIRES = "vdev.dev/e2e-expires"  # seconds since 1970
SELECTOR = "vdev.dev/e2e"  # of a stopped DaemonSet
LEASE = 3600  # seconds; more than one test may take
_NOTE = "vdev-e2e-before"


def lease(now: float) -> str:
    """The label of a run that is alive, as kubectl takes it."""
    return f"{EXPIRES}={int(now) + LEASE}"


def namespace(name: str, *, now: float) -> dict[str, Any]:
    """The namespace of a run."""
    key, _, value = lease(now).partition("=")
    labels = {key: value, "pod-security.kubernetes.io/enforce": "privileged"}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def note(name: str, running: str, *, configmap: str, data: Mapping[str, str]) -> dict[str, Any]:
    """A note in the namespace about an agent (`namespace/daemonset`) that gets another configuration for the tests."""
    before = {"running": running, "configmap": configmap, "data": json.dumps(data)}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": _NOTE, "namespace": name}, "data": before}


def selector_patch(value: str) -> str:
    """The patch that lets a DaemonSet run only on nodes with this value of a label; empty: where it ran before."""
    return json.dumps({"spec": {"template": {"spec": {"nodeSelector": {SELECTOR: value or None}}}}})


async def sweep(kubectl: Any, *, now: float, everywhere: Sequence[str] = ()) -> list[str]:
    """Take away what runs left that must be dead by now, `everywhere` of these kinds; the names of their namespaces."""
    found = (await kubectl.json("get", "namespaces", f"--selector={EXPIRES}"))["items"]
    dead = [
        each["metadata"]["name"]
        for each in found
        if (moment := each["metadata"]["labels"][EXPIRES]).isdigit() and int(moment) < now
    ]
    for name in dead:
        await _put_back(kubectl, name)
        await sweep_run(kubectl, name, everywhere)
        await kubectl("delete", "namespace", name, "--ignore-not-found", "--wait=false")
    return dead


async def sweep_run(kubectl: Any, name: str, everywhere: Sequence[str]) -> None:
    """Take away what the run of a namespace made outside of it."""
    for kind in everywhere:
        await kubectl("delete", kind, f"--selector={RUN}={name}", "--ignore-not-found")


async def _put_back(kubectl: Any, name: str) -> None:
    found = await kubectl.maybe("--namespace", name, "get", "configmap", _NOTE)
    if found is None:
        return
    before = found["data"]
    where, _, daemonset = before["running"].partition("/")
    data = json.dumps({"data": json.loads(before["data"])})
    here = ("--namespace", where, "patch")
    await kubectl(*here, "configmap", before["configmap"], "--type=merge", f"--patch={data}")
    await kubectl(*here, "daemonset", daemonset, "--type=merge", f"--patch={selector_patch('')}")
