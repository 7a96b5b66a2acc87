"""What Kubernetes takes as label, and which labels and conditions belong to others."""

from vdev.model import names


def test_keys_that_are_taken(subtests):
    """With a DNS name before the slash or without, 253 and 63 characters; what other projects own is theirs to give."""
    cases = [
        "plain",
        "acme.dev/cooling",
        "acme.dev/A_b.c-9",
        "nvidia.com/gpu.product",
        "feature.node.kubernetes.io/pci-10de.present",
        "intel.feature.node.kubernetes.io/gpu",
        "kueue.x-k8s.io/flavor",
        "resource.kubernetes.io/x",
        "a" * 63,
        "a." * 126 + "a/" + "b" * 63,
    ]
    for key in cases:
        with subtests.test(key=key):
            assert "" == names.key_problem(key)


def test_keys_that_are_refused(subtests):
    """By the API server, or because the kubelet, its admission or an administrator owns them."""
    cases = [
        ("", "must be 1 to 63"),
        ("acme.dev/", "must be 1 to 63"),
        ("/x", "is not a DNS name"),
        ("Acme.dev/x", "is not a DNS name in lower case"),
        ("a/b/c", "is not a DNS name"),
        ("a..b/c", "is not a DNS name"),
        ("-a/c", "is not a DNS name"),
        ("acme.dev/-x", "must be 1 to 63"),
        ("acme.dev/x y", "must be 1 to 63"),
        ("a" * 64, "must be 1 to 63"),
        ("a." * 126 + "aa/b", "of at most 253 characters"),
        ("kubernetes.io/hostname", "belongs to Kubernetes"),
        ("topology.kubernetes.io/zone", "belongs to Kubernetes"),
        ("node.kubernetes.io/instance-type", "belongs to Kubernetes"),
        ("x.node.kubernetes.io/y", "belongs to Kubernetes"),
        ("node-role.kubernetes.io/worker", "belongs to Kubernetes"),
        ("node-restriction.kubernetes.io/x", "belongs to Kubernetes"),
        ("a.node-restriction.kubernetes.io/x", "belongs to Kubernetes"),
        ("kubelet.kubernetes.io/x", "belongs to Kubernetes"),
    ]
    for key, said in cases:
        with subtests.test(key=key):
            assert said in names.key_problem(key)


def test_values_that_are_taken(subtests):
    """An empty one too."""
    for value in ["", "a", "A.b_c-9", "x" * 63]:
        with subtests.test(value=value):
            assert "" == names.value_problem(value)


def test_values_that_are_refused(subtests):
    """A wrong character, a wrong end, or too many."""
    for value in ["a b", "-a", "a-", "a/b", "x" * 64, "ä", "a\n", "{x}"]:
        with subtests.test(value=value):
            assert names.value_problem(value)


def test_types_of_conditions_that_are_taken(subtests):
    """A qualified name."""
    for name in ["GpuHealthy", "acme.dev/GpuHealthy", "AcceleratedHardwareReady", "SysLogsXIDError"]:
        with subtests.test(name=name):
            assert "" == names.condition_type_problem(name)


def test_types_of_conditions_that_are_refused(subtests):
    """The kubelet's own, and what is no qualified name."""
    cases = [
        ("Ready", "belongs to the kubelet"),
        ("NetworkUnavailable", "belongs to the kubelet"),
        ("Gpu Healthy", "is not a valid type"),
        ("", "is not a valid type"),
        ("a/b/C", "is not a valid type"),
        ("x" * 317, "at most 316"),
    ]
    for name, said in cases:
        with subtests.test(name=name):
            assert said in names.condition_type_problem(name)
