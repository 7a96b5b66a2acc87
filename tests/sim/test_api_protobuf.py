"""Bodies in Kubernetes' protobuf form, as Go clients send them for the kinds that they know."""

import base64
import json
from pathlib import Path

from google.protobuf.message import Message

from tests.kit.rest import Caller
from vdev.pb import api_objects_pb2 as pb
from vdev.sim.api import protobuf_bodies, validation
from vdev.sim.api.server import ApiServer

PROTOBUF = "application/vnd.kubernetes.protobuf"
MAPS, PODS = "/api/v1/namespaces/default/configmaps", "/api/v1/namespaces/default/pods"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
DRA = "resource.k8s.io/v1"
RECORDED = json.loads(Path(__file__).with_name("protobuf_bodies.json").read_text())
"""Objects with every field that is understood, by kind, and a slice that the server takes; each has the body in which
client-go 0.36 sends it, in base64."""
SLICE = RECORDED["one"]["object"]
SLICE_BODY = base64.b64decode(RECORDED["one"]["body"])


def body(api_version, kind, message=None):
    """The body in which a client sends a message."""
    about = pb.TypeMeta(apiVersion=api_version, kind=kind)
    raw = b"" if message is None else message.SerializeToString()
    return b"k8s\0" + pb.Unknown(typeMeta=about, raw=raw).SerializeToString()


def test_recorded_bodies_match_their_json(subtests):
    """The recorded bodies are those of a Go client."""
    for name, recorded in RECORDED.items():
        with subtests.test(name=name):
            assert recorded["object"] == protobuf_bodies.document(base64.b64decode(recorded["body"]))


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
            unknown = pb.Unknown.FromString(base64.b64decode(recorded["body"])[4:])
            note(unknown)
            note(getattr(pb, name).FromString(unknown.raw))
    every = {field.full_name for each in pb.DESCRIPTOR.message_types_by_name.values() for field in each.fields}
    assert set() == every - found - {"vdev.api.Time.nanos"}  # which clients do not send


def test_no_field_of_dra_is_unknown():
    """Their types are right, too. The values are not: the recorded objects have every field at once."""
    for kind in ("ResourceSlice", "DeviceClass", "ResourceClaim", "ResourceClaimTemplate"):
        wrong = validation.wrong_fields(kind, RECORDED[kind]["object"])
        assert [] == [each for each in wrong if "unknown field" in each[1] or ": must be a" in each[1]]


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
    """The answer has the reason, and the server continues."""
    cases = [
        (PODS, body("v1", "Pod"), 415, "Pod of v1: the body must be application/json"),
        (SLICES, body("resource.k8s.io/v1beta1", "ResourceSlice"), 415, "must be application/json"),
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
