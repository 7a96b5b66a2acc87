"""Valid labels in Kubernetes, and labels and conditions that belong to others."""

from vdev.model.names import condition_type_problem, key_problem, value_problem


def test_valid_names(subtests):
    """A key has up to 253 characters before the slash and 63 after it; keys of other projects are allowed."""
    cases = {
        key_problem: [
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
        ],
        value_problem: ["", "a", "A.b_c-9", "x" * 63],
        condition_type_problem: ["GpuHealthy", "acme.dev/GpuHealthy", "AcceleratedHardwareReady", "SysLogsXIDError"],
    }
    for problem_of, texts in cases.items():
        for text in texts:
            with subtests.test(text=text):
                assert "" == problem_of(text)


def test_refused_names(subtests):
    """They are invalid, or belong to the kubelet, its admission or an administrator."""
    cases = [
        (key_problem, "", "must be 1 to 63"),
        (key_problem, "acme.dev/", "must be 1 to 63"),
        (key_problem, "/x", "is not a DNS name"),
        (key_problem, "Acme.dev/x", "is not a DNS name in lower case"),
        (key_problem, "a/b/c", "is not a DNS name"),
        (key_problem, "a..b/c", "is not a DNS name"),
        (key_problem, "-a/c", "is not a DNS name"),
        (key_problem, "acme.dev/-x", "must be 1 to 63"),
        (key_problem, "acme.dev/x y", "must be 1 to 63"),
        (key_problem, "a" * 64, "must be 1 to 63"),
        (key_problem, "a." * 126 + "aa/b", "of at most 253 characters"),
        (key_problem, "kubernetes.io/hostname", "belongs to Kubernetes"),
        (key_problem, "topology.kubernetes.io/zone", "belongs to Kubernetes"),
        (key_problem, "node.kubernetes.io/instance-type", "belongs to Kubernetes"),
        (key_problem, "x.node.kubernetes.io/y", "belongs to Kubernetes"),
        (key_problem, "node-role.kubernetes.io/worker", "belongs to Kubernetes"),
        (key_problem, "node-restriction.kubernetes.io/x", "belongs to Kubernetes"),
        (key_problem, "a.node-restriction.kubernetes.io/x", "belongs to Kubernetes"),
        (key_problem, "kubelet.kubernetes.io/x", "belongs to Kubernetes"),
        *((value_problem, text, "label value") for text in ["a b", "-a", "a-", "a/b", "ä", "a\n", "{x}"]),
        (value_problem, "x" * 64, "at most 63"),
        (condition_type_problem, "Ready", "belongs to the kubelet"),
        (condition_type_problem, "NetworkUnavailable", "belongs to the kubelet"),
        (condition_type_problem, "Gpu Healthy", "is not a valid type"),
        (condition_type_problem, "", "is not a valid type"),
        (condition_type_problem, "a/b/C", "is not a valid type"),
        (condition_type_problem, "x" * 317, "at most 316"),
    ]
    for problem_of, text, said in cases:
        with subtests.test(text=text):
            assert said in problem_of(text)
