from vdev.file_choice import Choice, choose

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
            found = choose(FILES, node=node, label=label)
            assert name == found.file
            assert why in found.reason


def test_other_suffixes_belong_to_the_name():
    """The suggestion is a label value that names the file."""
    found = choose(["gpus.YAML", "a.yaml"], node="n", label="gpus")
    assert "did you mean 'gpus.YAML'?" in found.reason
    assert "gpus.YAML" == choose(["gpus.YAML", "a.yaml"], node="n", label="gpus.YAML").file


def test_no_file():
    """The reason lists the expected and the existing files."""
    found = choose(["a.yaml", "b.yaml"], node="n", label="")
    assert ("", True) == (found.file, "no n.yaml, no default.yaml; there are a.yaml, b.yaml" in found.reason)
    assert "empty" in choose([], node="n", label="").reason


def test_the_only_file():
    """It is chosen without a label, as with NVIDIA's fallback `single`; a label still needs its file."""
    assert Choice("a", "it is the only file") == choose(["..data", "a"], node="n", label="")
    assert "" == choose(["a"], node="n", label="b").file


def test_the_label_of_nvidias_plugin():
    """It names a file like vdev's own label, and the reason has its key."""
    key = "nvidia.com/device-plugin.config"
    assert Choice("plain", f"the node's label {key}=plain") == choose(FILES, node="n", label="plain", key=key)
    missing = choose(FILES, node="n", label="plane", key=key)
    assert ("", f"the node's label {key}=plane names no file; did you mean 'plain'?") == (missing.file, missing.reason)
