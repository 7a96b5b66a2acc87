from vdev.file_choice import LABELS, choose_name

LABEL, NVIDIA_LABEL = LABELS

FILES = ["..data", "a100.yaml", "default.yaml", "worker-1.yaml", "plain"]


def test_choice_of_a_file(subtests):
    """The label counts first, then the node's name, then the default. A label without a file has no fallback."""
    cases = [
        ("worker-1", "a100", "a100.yaml", "label vdev.dev/config=a100"),
        ("worker-1", "a100.yaml", "a100.yaml", "label vdev.dev/config=a100.yaml"),
        ("worker-1", "plain", "plain", "label"),
        ("worker-1", "", "worker-1.yaml", "node's name, worker-1"),
        ("worker-2", "", "default.yaml", "no label vdev.dev/config and no file worker-2.yaml"),
        ("worker-1", "a10", "", "names no file; did you mean 'a100'?"),
        ("worker-1", "A100", "", "names no file; did you mean 'a100'?"),
        ("worker-1", "xyz", "", "names no file; there are a100.yaml, default.yaml, plain, worker-1.yaml"),
        ("worker-1", "..data", "", "names no file"),
    ]
    for node, label, name, why in cases:
        with subtests.test(name=name):
            found, reason = choose_name(FILES, node=node, labels={LABEL: label})
            assert name == found
            assert why in reason


def test_other_suffixes_belong_to_the_name():
    """The suggestion is a label value that names the file."""
    files = ["gpus.YAML", "a.yaml"]
    assert "did you mean 'gpus.YAML'?" in choose_name(files, node="n", labels={LABEL: "gpus"})[1]
    assert "gpus.YAML" == choose_name(files, node="n", labels={LABEL: "gpus.YAML"})[0]


def test_no_file():
    """The reason lists the expected and the existing files."""
    found, reason = choose_name(["a.yaml", "b.yaml"], node="n")
    assert ("", True) == (found, "no n.yaml, no default.yaml; there are a.yaml, b.yaml" in reason)
    assert "empty" in choose_name([], node="n")[1]


def test_the_only_file():
    """It is chosen without a label, as with NVIDIA's fallback `single`; a label still needs its file."""
    assert ("a", "it is the only file") == choose_name(["..data", "a"], node="n")
    assert "" == choose_name(["a"], node="n", labels={LABEL: "b"})[0]


def test_the_label_of_nvidias_plugin():
    """It names a file like vdev's own label, and the reason has its key."""
    assert ("plain", f"the node's label {NVIDIA_LABEL}=plain") == choose_name(
        FILES, node="n", labels={NVIDIA_LABEL: "plain"}
    )
    assert ("", f"the node's label {NVIDIA_LABEL}=plane names no file; did you mean 'plain'?") == choose_name(
        FILES, node="n", labels={NVIDIA_LABEL: "plane"}
    )
