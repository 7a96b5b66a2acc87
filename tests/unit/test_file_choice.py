from vdev.loading import Choice, choose

FILES = ["..data", "a100.yaml", "default.yaml", "worker-1.yaml", "plain"]


def test_a_file_is_chosen(subtests):
    """By label, else by name, else the default; an unknown label never falls through to another file."""
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
            assert name == found.name
            assert why in found.why


def test_a_suffix_of_another_kind_belongs_to_the_name():
    """What is proposed is a value of the label that would name the file."""
    found = choose(["gpus.YAML", "a.yaml"], node="n", label="gpus")
    assert "did you mean 'gpus.YAML'?" in found.why
    assert "gpus.YAML" == choose(["gpus.YAML", "a.yaml"], node="n", label="gpus.YAML").name


def test_nothing_to_choose():
    """Without a file for the node the reason says what was looked for and what there is."""
    found = choose(["a.yaml", "b.yaml"], node="n", label="")
    assert ("", True) == (found.name, "no n.yaml, no default.yaml; there are a.yaml, b.yaml" in found.why)
    assert "empty" in choose([], node="n", label="").why


def test_the_only_file():
    """Is taken where nothing else decides, as with NVIDIA's fallback `single`; a label still needs its file."""
    assert Choice("a", "it is the only file") == choose(["..data", "a"], node="n", label="")
    assert "" == choose(["a"], node="n", label="b").name


def test_the_label_of_nvidias_plugin():
    """Names a file as vdev's own does, and the reason says so."""
    key = "nvidia.com/device-plugin.config"
    assert Choice("plain", f"the node's label {key}=plain") == choose(FILES, node="n", label="plain", key=key)
    missing = choose(FILES, node="n", label="plane", key=key)
    assert ("", f"the node's label {key}=plane names no file; did you mean 'plain'?") == (missing.name, missing.why)
