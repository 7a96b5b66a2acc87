"""The fleet does all of its work with exactly the permissions that its Deployment has, and under its policy."""

import asyncio
import importlib.util

import yaml

from tests.kit.admission import refusal
from tests.kit.manifests import DEPLOY, kustomize, rendered

CONFIG = """
version: v1
devices:
  - {name: h100, resource: nvidia.com/gpu, virtual: {preset: h100-sxm5-80gb, count: COUNT}, advertise: [dra]}
  - {name: npu, resource: acme.dev/npu, virtual: {count: 2}}
node: {labels: true, events: true, conditions: true}
fleet: {rejectPods: true, nodes: [{name: "n{0..LAST}"}, {selector: {type: kwok}}]}
faults: {rules: [{name: sick, onNodes: n0, devices: [npu/1], health: Unhealthy}]}
"""
STATUS = {"name": "c", "ready": True, "restartCount": 0, "image": "x", "imageID": "x"}
POD = {
    "metadata": {"name": "p", "namespace": "default"},
    "spec": {
        "nodeName": "n0",
        "containers": [{"name": "c", "image": "x", "resources": {"limits": {"acme.dev/npu": "1"}}}],
    },
}


def permissions():
    """The permissions of the roles, as `verb resource`."""
    return {
        f"{verb} {resource}"
        for each in rendered(DEPLOY / "fleet")
        if each["kind"] in ("Role", "ClusterRole")
        for rule in each["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


class Policy:
    """The admission policy of the fleet's account, evaluated for each write. `refused` are the denied writes."""

    def __init__(self, server):
        self.spec, _ = yaml.safe_load_all((DEPLOY / "fleet/components/own-nodes-only/policy.yaml").read_text())
        self.server, self.refused, self.asked = server, [], 0
        self._admit = server.admit
        server.admit, server.look_at = self.admit, self.look_at

    async def admit(self, request):
        """Check creations and deletions."""
        await self._admit(request)
        is_there = self.server.objects.has(request.kind, request.namespace, request.name)
        if request.verb == "delete":
            self.judge(request, "DELETE", self.server.objects.get(request.kind, request.namespace, request.name), None)
        elif request.verb == "create" or (request.verb == "patch" and not is_there):
            self.judge(request, "CREATE", None, request.body)

    def look_at(self, request, old, new):
        """Check updates."""
        if old:
            self.judge(request, "UPDATE", old, new)

    def judge(self, request, operation, before, after):
        """Evaluate the policy."""
        resource, _, part = request.resource.partition("/")
        asked = {
            "operation": operation,
            "userInfo": {"username": "system:serviceaccount:vdev-system:vdev-fleet"},
            "resource": {"group": request.kind.group, "version": "v1", "resource": resource},
            "subResource": part,
            "name": request.name,
        }
        self.asked += 1
        before, after = (each and {"spec": {}, "status": {}, **each} for each in (before, after))  # as in real objects
        if why := refusal(self.spec["spec"], asked, before, after):
            self.refused.append((operation, request.resource, request.name, why))


@kustomize
async def test_the_permissions_of_the_role_are_enough(start, api_server, directory):
    """No permission is missing, and each one is used."""
    policy = Policy(api_server) if importlib.util.find_spec("cel_expr_python") else None
    await api_server.add("nodes", {"metadata": {"name": "k", "labels": {"type": "kwok"}}})
    allowed = await asyncio.to_thread(permissions)
    api_server.permissions = allowed
    file = directory / "vdev.yaml"
    text = CONFIG.replace("COUNT", "2").replace("LAST", "1")
    fleet = await start(text)
    await api_server.until(lambda: 3 == len(api_server.all("resourceslices")) and fleet.is_settled)
    await api_server.add("pods", POD, namespace="default", status={"containerStatuses": [STATUS]})
    await api_server.until(lambda: "vdev.dev/devices" in str(api_server.all("pods", "default")))
    await api_server.until(lambda: "allocatedResourcesStatus" in str(api_server.all("pods", "default")))
    await api_server.until(lambda: api_server.all("events", "default"))
    file.write_text(text.replace("count: 2}, advertise", "count: 3}, advertise"))
    await api_server.until(lambda: 9 == devices(api_server))
    late = {**POD, "metadata": {"name": "late", "namespace": "default"}}
    await api_server.add("pods", late, namespace="default", status={"phase": "Pending"})
    await api_server.until(lambda: "Failed" == api_server.object("pods", "late", "default")["status"]["phase"])
    await api_server.edit("nodes", "k", {"metadata": {"labels": {"type": "other"}}}, manager="kubectl")
    await api_server.until(lambda: not api_server.object("nodes", "k")["metadata"].get("annotations"))
    file.write_text(CONFIG.replace("advertise: [dra]", "").replace("COUNT", "2").replace("LAST", "0"))
    await api_server.until(lambda: 2 == len(api_server.all("nodes")) and fleet.is_settled)
    await fleet.stop()
    used = {f"{each.verb} {each.resource}" for each in api_server.asked}
    assert set() == used - allowed
    # An Event is patched if it repeats within an hour. A real server checks create too if an apply creates a Node.
    assert {"patch events", "create nodes"} >= allowed - used
    assert policy is None or (policy.asked > 20 and not policy.refused), policy.refused


def devices(api_server):
    """The number of devices in all slices."""
    return sum(len(each["spec"].get("devices") or ()) for each in api_server.all("resourceslices"))
