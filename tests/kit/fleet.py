"""Configurations of fleets, and their objects on the API server."""

import json

CONFIG = """
version: v1
devices:
  - name: h100
    resource: nvidia.com/gpu
    virtual: {preset: h100-sxm5-80gb, count: 2}
    advertise: [dra]
    onNodes: "gpu-*"
  - {name: npu, resource: acme.dev/npu, virtual: {count: 4}, conditions: [{type: NpuHealthy}]}
node: {labels: true, events: true, conditions: true}
fleet:
  nodes:
    - name: "gpu-{0..2}"
      labels: {pool: h100, topology.kubernetes.io/zone: "zone-{1}"}
      taints: [{key: kwok.x-k8s.io/node, value: fake, effect: NoSchedule}]
      capacity: {cpu: 96, memory: 1Ti, pods: 110}
    - selector: {type: kwok}
"""
NPU = "acme.dev/npu"
RACKS = """
version: v1
devices: [{name: npu, resource: acme.dev/npu, virtual: {count: 2}}]
fleet: {nodes: [{name: "r{1..3}-n{1..4}", labels: {rack: "r{1}"}}]}
faults: {seed: 7, rules: [RULE]}
"""


def node(api_server, name):
    """Return a Node, or an empty document if it does not exist."""
    return next((each for each in api_server.all("nodes") if each["metadata"]["name"] == name), {})


def capacity(api_server, name, resource=NPU):
    """Return the capacity and the allocatable amount of a resource."""
    status = node(api_server, name).get("status") or {}
    return [(status.get(part) or {}).get(resource) for part in ("capacity", "allocatable")]


def slices(api_server, name):
    """Return the devices in the slices of a node."""
    found = [each["spec"] for each in api_server.all("resourceslices") if each["spec"].get("nodeName") == name]
    return [device["name"] for each in found for device in each.get("devices") or ()]


def allocatable(api_server):
    """Return the allocatable number of NPUs by node."""
    return {
        each["metadata"]["name"]: capacity(api_server, each["metadata"]["name"])[1] for each in api_server.all("nodes")
    }


async def add_pod(api_server, name, number, *, init=0, sidecar=0, statuses=False, node="n", annotations=None):
    """Add a pod that is bound to the node."""

    def container(name, number, **more):
        limits = {"resources": {"limits": {NPU: str(number)}, "requests": {NPU: str(number)}}} if number else {}
        return {"name": name, "image": "x", **limits, **more}

    inits = [container("before", init)] if init else []
    inits += [container("beside", sidecar, restartPolicy="Always")] if sidecar else []
    spec = {"nodeName": node, "containers": [container("main", number)]} | ({"initContainers": inits} if inits else {})
    running = {"name": "main", "image": "x", "imageID": "", "ready": True, "restartCount": 0, "state": {}}
    status = {"phase": "Running", "containerStatuses": [running]} if statuses else {"phase": "Pending"}
    document = {"metadata": {"name": name, "namespace": "default", "annotations": annotations or {}}, "spec": spec}
    await api_server.add("pods", document, namespace="default", status=status)


async def add_claim(api_server, *devices, node="n", pod=""):
    """Add an allocated claim `c` for devices, given as names or as pairs of driver and name."""
    found = [("gpu.nvidia.com", each) if isinstance(each, str) else each for each in devices]
    results = [
        {"request": f"r{number}", "driver": driver, "pool": node, "device": name}
        for number, (driver, name) in enumerate(found)
    ]
    requests = [{"name": each["request"], "exactly": {"deviceClassName": "gpu"}} for each in results]
    claim = {"metadata": {"name": "c", "namespace": "default"}, "spec": {"devices": {"requests": requests}}}
    status = {"allocation": {"devices": {"results": results}}}
    if pod:
        status["reservedFor"] = [{"resource": "pods", "name": pod, "uid": "1"}]
    await api_server.add("resourceclaims", claim, namespace="default", status=status)


def devices(api_server, name):
    """Return the device ids in the annotations of a pod by container."""
    found = next((each for each in api_server.all("pods") if each["metadata"]["name"] == name), {})
    text = found.get("metadata", {}).get("annotations", {}).get("vdev.dev/devices")
    return {container: of[NPU] for container, of in json.loads(text).items()} if text else {}


async def add_kubelet(api_server, name, version="v1.36.2", manager="kubelet", capacity=None):
    """Write the status that a kubelet writes when it registers with the name of a Node."""
    info = {"architecture": "amd64", "operatingSystem": "linux", "kubeletVersion": version}
    for each in ("bootID", "containerRuntimeVersion", "kernelVersion", "kubeProxyVersion", "machineID", "osImage"):
        info[each] = ""
    info["systemUUID"] = ""
    status = {"nodeInfo": info} | ({"capacity": capacity, "allocatable": capacity} if capacity else {})
    await api_server.edit("nodes", name, {"status": status}, manager=manager, subresource="status")


def taints(api_server):
    """Return all taints of devices."""
    found = [each["spec"].get("devices") or () for each in api_server.all("resourceslices")]
    return [taint for of in found for device in of for taint in device.get("taints") or ()]
