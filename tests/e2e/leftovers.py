"""Deletes the objects of killed runs from a cluster.

Objects of a run are in a namespace whose label has an expiry time, which a live run extends. Cluster-scoped objects
have a label with the namespace's name. The configuration of an agent that ran before is stored in the namespace, and is
restored.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

EVERYWHERE = ("deviceclasses.resource.k8s.io", "clusterroles", "clusterrolebindings")  # cluster-scoped kinds for claims
RUN = "vdev.dev/e2e-run"  # label of cluster-scoped objects: the namespace of their run
EXPIRES = "vdev.dev/e2e-expires"  # seconds since 1970
SELECTOR = "vdev.dev/e2e"  # node selector of a stopped DaemonSet
LEASE = 3600  # seconds; longer than a test may take
_NOTE = "vdev-e2e-before"


def lease(now: float) -> str:
    """The label of a live run, in the form for kubectl."""
    return f"{EXPIRES}={int(now) + LEASE}"


def namespace(name: str, *, now: float) -> dict[str, Any]:
    """The namespace of a run."""
    key, _, value = lease(now).partition("=")
    labels = {key: value, "pod-security.kubernetes.io/enforce": "privileged"}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def note(name: str, running: str, *, configmap: str, data: Mapping[str, str]) -> dict[str, Any]:
    """A ConfigMap with the earlier configuration of an agent (`namespace/daemonset`) that the tests use."""
    before = {"running": running, "configmap": configmap, "data": json.dumps(data)}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": _NOTE, "namespace": name}, "data": before}


def selector_patch(value: str) -> str:
    """The patch that restricts a DaemonSet to nodes with this value of a label; an empty value removes that."""
    return json.dumps({"spec": {"template": {"spec": {"nodeSelector": {SELECTOR: value or None}}}}})


async def sweep(kubectl: Any, *, now: float, everywhere: Sequence[str] = ()) -> list[str]:
    """Delete the objects of expired runs, also those of the kinds `everywhere`. Returns their namespaces."""
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
    """Delete the cluster-scoped objects of a run."""
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
