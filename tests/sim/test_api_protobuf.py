"""Bodies in Kubernetes' protobuf form, as Go clients send them for the kinds that they know."""

import base64
import json
from pathlib import Path

from google.protobuf.message import Message

from tests.kit.rest import Caller
from vdev.pb import api_objects_pb2 as pb
from vdev.sim.api import protobuf_bodies
from vdev.sim.api.server import ApiServer

PROTOBUF = "application/vnd.kubernetes.protobuf"
MAPS, PODS = "/api/v1/namespaces/default/configmaps", "/api/v1/namespaces/default/pods"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
TIME, MICRO_TIME = "2026-05-06T07:08:09Z", "2026-05-06T07:08:09.012345Z"


def metadata(name, **more):
    """Metadata with every field."""
    owner = {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "u1"}
    fields = {"manager": "m", "operation": "Update", "apiVersion": "v1", "time": TIME, "fieldsType": "FieldsV1"}
    return {
        "name": name,
        "generateName": "beginning-",
        "namespace": "default",
        "selfLink": "/self",
        "uid": "u2",
        "resourceVersion": "7",
        "generation": 3,
        "creationTimestamp": TIME,
        "deletionTimestamp": TIME,
        "deletionGracePeriodSeconds": 0,
        "labels": {"a": "b", "c": ""},
        "annotations": {"acme.dev/text": "ä €"},
        "ownerReferences": [{**owner, "controller": False, "blockOwnerDeletion": True}],
        "finalizers": ["acme.dev/hold"],
        "managedFields": [{**fields, "fieldsV1": {"f:data": {".": {}, "f:a": {}}}, "subresource": "status"}],
        **more,
    }


def reference(name):
    """An ObjectReference with every field."""
    found = {"kind": "Pod", "namespace": "default", "name": name, "uid": "u3", "apiVersion": "v1"}
    return {**found, "resourceVersion": "8", "fieldPath": "spec.containers{main}"}


SELECTOR = {
    "nodeSelectorTerms": [
        {
            "matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}],
            "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}],
        }
    ]
}
TOLERATION = {"key": "a", "operator": "Equal", "value": "b", "effect": "NoExecute", "tolerationSeconds": 0}
CEL = {"cel": {"expression": 'device.driver == "acme.dev"'}}
OPAQUE = {"opaque": {"driver": "acme.dev", "parameters": {"kind": "Sharing", "n": [1, 2.5, None]}}}
ASKED = {
    "deviceClassName": "acme",
    "selectors": [CEL],
    "allocationMode": "ExactCount",
    "count": 2,
    "tolerations": [TOLERATION],
    "capacity": {"requests": {"memory": "1Gi"}},
}
CLAIM = {
    "devices": {
        "requests": [
            {"name": "one", "exactly": {**ASKED, "adminAccess": False}},
            {"name": "two", "firstAvailable": [{"name": "big", **ASKED}]},
        ],
        "constraints": [{"requests": ["one"], "matchAttribute": "acme.dev/a", "distinctAttribute": "acme.dev/b"}],
        "config": [{"requests": ["one"], **OPAQUE}],
    }
}
DEVICE = {
    "name": "gpu-0",
    "attributes": {
        "index": {"int": 0},
        "healthy": {"bool": False},
        "model": {"string": ""},
        "driver": {"version": "1.2.3"},
    },
    "capacity": {
        "memory": {
            "value": "16Gi",
            "requestPolicy": {
                "default": "1Gi",
                "validValues": ["1Gi", "2Gi"],
                "validRange": {"min": "1Gi", "max": "8Gi", "step": "1Gi"},
            },
        }
    },
    "consumesCounters": [{"counterSet": "set", "counters": {"slices": {"value": "3"}}}],
    "nodeName": "n1",
    "nodeSelector": SELECTOR,
    "allNodes": True,
    "taints": [{"key": "acme.dev/hot", "value": "yes", "effect": "NoSchedule", "timeAdded": TIME}],
    "bindsToNode": True,
    "bindingConditions": ["acme.dev/ready"],
    "bindingFailureConditions": ["acme.dev/failed"],
    "allowMultipleAllocations": True,
}
CONDITION = {"type": "Ready", "status": "True", "observedGeneration": 4, "lastTransitionTime": TIME, "reason": "r"}
RESULT = {
    "request": "one",
    "driver": "acme.dev",
    "pool": "n1",
    "device": "gpu-0",
    "adminAccess": True,
    "tolerations": [TOLERATION],
    "bindingConditions": ["acme.dev/ready"],
    "bindingFailureConditions": ["acme.dev/failed"],
    "shareID": "s1",
    "consumedCapacity": {"memory": "1Gi"},
}
STATUS = {
    "allocation": {
        "devices": {"results": [RESULT], "config": [{"source": "FromClass", "requests": ["one"], **OPAQUE}]},
        "nodeSelector": SELECTOR,
        "allocationTimestamp": TIME,
    },
    "reservedFor": [{"apiGroup": "apps", "resource": "pods", "name": "p", "uid": "u4"}],
    "devices": [
        {
            "driver": "acme.dev",
            "pool": "n1",
            "device": "gpu-0",
            "shareID": "s1",
            "conditions": [{**CONDITION, "message": "m"}],
            "data": {"b": [True]},
            "networkData": {"interfaceName": "eth0", "ips": ["10.0.0.1/8"], "hardwareAddress": "aa:bb"},
        }
    ],
}
DRA = "resource.k8s.io/v1"
OBJECTS = (
    {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata("m"),
        "data": {"a": "b"},
        "binaryData": {"c": "AP8="},
        "immutable": False,
    },
    {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": metadata("n"),
        "spec": {"finalizers": ["kubernetes"]},
        "status": {"phase": "Active"},
    },
    {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": metadata("e"),
        "involvedObject": reference("p"),
        "reason": "Hot",
        "message": "it is hot",
        "source": {"component": "acme", "host": "n1"},
        "firstTimestamp": TIME,
        "lastTimestamp": TIME,
        "count": 2,
        "type": "Warning",
        "eventTime": MICRO_TIME,
        "series": {"count": 3, "lastObservedTime": MICRO_TIME},
        "action": "Cool",
        "related": reference("q"),
        "reportingComponent": "acme.dev/driver",
        "reportingInstance": "n1",
    },
    {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": metadata("l"),
        "spec": {
            "holderIdentity": "",
            "leaseDurationSeconds": 15,
            "acquireTime": MICRO_TIME,
            "renewTime": MICRO_TIME,
            "leaseTransitions": 0,
            "strategy": "OldestEmulationVersion",
            "preferredHolder": "b",
        },
    },
    {
        "apiVersion": DRA,
        "kind": "ResourceSlice",
        "metadata": metadata("s"),
        "spec": {
            "driver": "acme.dev",
            "pool": {"name": "n1", "generation": 0, "resourceSliceCount": 1},
            "nodeName": "n1",
            "nodeSelector": SELECTOR,
            "allNodes": False,
            "devices": [DEVICE, {"name": "gpu-1"}],
            "perDeviceNodeSelection": True,
            "sharedCounters": [{"name": "set", "counters": {"slices": {"value": "7"}}}],
        },
    },
    {
        "apiVersion": DRA,
        "kind": "DeviceClass",
        "metadata": metadata("c"),
        "spec": {"selectors": [CEL], "config": [OPAQUE], "extendedResourceName": "acme.dev/gpu"},
    },
    {"apiVersion": DRA, "kind": "ResourceClaim", "metadata": metadata("k"), "spec": CLAIM, "status": STATUS},
    {
        "apiVersion": DRA,
        "kind": "ResourceClaimTemplate",
        "metadata": metadata("t"),
        "spec": {"metadata": metadata("x"), "spec": CLAIM},
    },
    {
        "apiVersion": DRA,
        "kind": "DeleteOptions",
        "gracePeriodSeconds": 0,
        "preconditions": {"uid": "u5", "resourceVersion": ""},
        "orphanDependents": False,
        "propagationPolicy": "Background",
        "dryRun": ["All"],
    },
)
"""Objects with every field that is understood."""
RECORDED = json.loads(Path(__file__).with_name("protobuf_bodies.json").read_text())
"""The bodies in which client-go 0.36 sends these objects, in base64, by kind, and a slice that the server takes."""
SLICE = {
    "apiVersion": DRA,
    "kind": "ResourceSlice",
    "metadata": {"name": "one"},
    "spec": {
        "driver": "acme.dev",
        "pool": {"name": "n1", "generation": 1, "resourceSliceCount": 1},
        "nodeName": "n1",
        "devices": [{"name": "gpu-0", "attributes": DEVICE["attributes"], "capacity": {"memory": {"value": "16Gi"}}}],
    },
}
SLICE_BODY = base64.b64decode(RECORDED["one"])


def body(api_version, kind, message=None):
    """The body in which a client sends a message."""
    about = pb.TypeMeta(apiVersion=api_version, kind=kind)
    raw = b"" if message is None else message.SerializeToString()
    return b"k8s\0" + pb.Unknown(typeMeta=about, raw=raw).SerializeToString()


def test_each_field_is_what_it_is_in_json(subtests):
    """The recorded bodies are those of a Go client."""
    for wanted in OBJECTS:
        with subtests.test(wanted=wanted):
            assert wanted == protobuf_bodies.document(base64.b64decode(RECORDED[wanted["kind"]]))


def test_the_recorded_bodies_have_every_field():
    """Otherwise a wrong field number could go unnoticed."""
    found = set()

    def note(message):
        for field, value in message.ListFields():
            found.add(field.full_name)
            if isinstance(value, Message):
                note(value)
            elif hasattr(value, "values"):
                [note(each) for each in value.values() if isinstance(each, Message)]
            elif not isinstance(value, str | bytes | int):
                [note(each) for each in value if isinstance(each, Message)]

    for name, recorded in RECORDED.items():
        if name != "one":
            unknown = pb.Unknown.FromString(base64.b64decode(recorded)[4:])
            note(unknown)
            note(getattr(pb, name).FromString(unknown.raw))
    every = {field.full_name for each in pb.DESCRIPTOR.message_types_by_name.values() for field in each.fields}
    assert set() == every - found - {"vdev.api.Time.nanos"}  # which clients do not send


def test_fields_that_are_not_set_are_left_out():
    """A time without a value is null; a message without fields is an object."""
    made = pb.Event(metadata=pb.ObjectMeta(creationTimestamp=pb.Time()), eventTime=pb.MicroTime(), source={})
    wanted = {"metadata": {"creationTimestamp": None}, "eventTime": None, "source": {}}
    assert {"apiVersion": "v1", "kind": "Event", **wanted} == protobuf_bodies.document(body("v1", "Event", made))


async def test_a_slice_is_the_same_as_in_json():
    """A driver's slice is created, changed and deleted in protobuf, and read in JSON."""
    async with ApiServer() as one, ApiServer() as two:
        ask, other = Caller(one), Caller(two)
        status, made = await ask("POST", SLICES, SLICE_BODY, PROTOBUF)
        assert 201 == status
        _, wanted = await other("POST", SLICES, SLICE)
        assert made["spec"] == wanted["spec"] == SLICE["spec"]
        assert made["metadata"].keys() == wanted["metadata"].keys()

        version = made["metadata"]["resourceVersion"]
        changed = pb.ResourceSlice.FromString(pb.Unknown.FromString(SLICE_BODY[4:]).raw)
        changed.metadata.resourceVersion = version
        changed.spec.pool.generation = 2
        status, found = await ask("PUT", f"{SLICES}/one", body(DRA, "ResourceSlice", changed), PROTOBUF)
        assert (200, 2) == (status, found["spec"]["pool"]["generation"])

        old = body(DRA, "DeleteOptions", pb.DeleteOptions(preconditions={"resourceVersion": version}))
        assert 409 == (await ask("DELETE", f"{SLICES}/one", old, PROTOBUF))[0]
        assert 200 == (await ask("DELETE", f"{SLICES}/one", body(DRA, "DeleteOptions"), PROTOBUF))[0]


async def test_wrong_bodies(subtests):
    """The answer names the kinds that are possible, and the server continues."""
    cases = [
        (PODS, body("v1", "Pod"), 415, "Pod of v1: the body must be application/json"),
        (SLICES, body("resource.k8s.io/v1beta1", "ResourceSlice"), 415, "only DeleteOptions, ConfigMap"),
        (MAPS, b'{"kind": "ConfigMap"}', 400, r"begins with b'k8s\x00'"),
        (MAPS, body("v1", "ConfigMap", pb.ConfigMap(data={"a": "b"}))[:-1], 400, "error decoding the body"),
        (MAPS, body("v1", "Namespace"), 400, "apiVersion and kind must be v1 and ConfigMap"),
        (
            MAPS,
            body("v1", "ConfigMap", pb.ConfigMap(metadata={"creationTimestamp": {"seconds": 1 << 62}})),
            400,
            "error decoding the body",
        ),
        (
            SLICES,
            body(DRA, "ResourceClaim", pb.ResourceClaim(status={"devices": [{"data": {"raw": b"[" * 100_000}}]})),
            400,
            "error decoding the body",
        ),
    ]
    for path, sent, status, said in cases:
        with subtests.test(path=path):
            async with ApiServer() as server:
                ask = Caller(server)
                answer = await ask("POST", path, sent, PROTOBUF)
                assert status == answer[0]
                assert said in answer[1]["message"]
                assert 200 == (await ask("GET", MAPS))[0]
