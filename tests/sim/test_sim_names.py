"""Which resource names the kubelet takes."""

from vdev.sim.objects import formats


def test_names(subtests):
    """Exactly the names that a real kubelet takes are taken."""
    cases = [
        ("acme.dev/npu", True),
        ("acme.dev/NPU_1.x-y", True),
        ("a/b", True),
        ("Acme.dev/npu", False),
        ("gpu", False),
        ("acme.dev/", False),
        ("/npu", False),
        ("acme.dev/a/b", False),
        ("acme.dev/-npu", False),
        ("acme.dev/npu\n", False),
        ("kubernetes.io/npu", False),
        ("foo.kubernetes.io/npu", False),
        ("requests.acme.dev/npu", False),
        ("acme..dev/npu", False),
        ("acme.dev/" + "n" * 63, True),
        ("acme.dev/" + "n" * 64, False),
        ("a" * 244 + "/npu", True),
        ("a" * 245 + "/npu", False),
    ]
    for name, expected in cases:
        with subtests.test(name=name):
            assert expected is not any(formats.extended_resource(name))
