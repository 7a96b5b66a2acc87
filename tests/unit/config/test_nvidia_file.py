"""A complete configuration of NVIDIA's plugin, unchanged, beside a file of devices."""

import pytest

from vdev import config
from vdev.cli.plan import preview
from vdev.errors import ConfigError
from vdev.model.entry import DeviceIdStrategy, MigStrategy
from vdev.model.problem import Override

DEVICES = """
devices:
  - name: a100
    resource: nvidia.com/gpu
    virtual: {preset: a100-sxm4-40gb, count: 2}
    partitions: {"0": all-balanced}
"""
FLAGS = """
version: v1
flags: {migStrategy: mixed, plugin: {passDeviceSpecs: true, deviceListStrategy: envvar, deviceIDStrategy: index}}
"""


def shared(devices, block="timeSlicing", replicas=2):
    """A block of sharing with one item."""
    return f"sharing: {{{block}: {{resources: [{{name: gpu, replicas: {replicas}, devices: {devices}}}]}}}}"


@pytest.fixture
def load(tmp_path):
    """Load texts as files beside each other."""

    def load(*texts, **options):
        files = [tmp_path / f"{number}.yaml" for number in range(len(texts))]
        for file, text in zip(files, texts, strict=True):
            file.write_text(text)
        return config.load(files, **options)

    return load


def test_the_file_may_come_first(load):
    """The order of the files says nothing."""
    assert load(FLAGS, DEVICES).spec.flags == load(DEVICES, FLAGS).spec.flags


def test_a_broken_flag_is_the_only_complaint(load):
    """What would follow from the flags is not judged while one of them is wrong."""
    with pytest.raises(ConfigError) as refused:
        load(DEVICES, "flags: {migStrategy: mixed, nvidiaDriverRoot: relative}")
    assert ["flags.nvidiaDriverRoot"] == [problem.where.rpartition(" ")[2] for problem in refused.value.problems]


def test_a_flag_wins_over_the_file(load):
    """Flags and variables stand over what the file says, and what follows from them is judged anew."""
    none = Override("none", "flag --mig-strategy")
    loaded = load(DEVICES, FLAGS, overrides={"flags.migStrategy": none})
    assert MigStrategy.NONE is loaded.spec.flags.mig_strategy
    assert "the partitions of a100 are not advertised under migStrategy none" in {w.message for w in loaded.warnings}


@pytest.mark.parametrize(
    ("plugin", "key", "message"),
    [
        ("{passDeviceSpecs: true, deviceListStrategy: cdi-cri}", "passDeviceSpecs", "has no effect"),
        ("{deviceListStrategy: [cdi-cri, cdi-annotations]}", "deviceListStrategy", "inject every device twice"),
    ],
)
def test_flags_that_contradict_each_other_are_warned_about(load, plugin, key, message):
    """What NVIDIA's plugin ignores in silence, or advises against, is said with its place."""
    (warning,) = load(DEVICES.replace("partitions", "# "), f"flags: {{plugin: {plugin}}}").warnings
    assert message in warning.message
    assert warning.where.endswith(f"1.yaml:1:18: flags.plugin.{key}")


def test_nanoseconds_are_an_interval():
    """NVIDIA's `sleepInterval` may be a whole number of nanoseconds; the file loads, with the key's warning."""
    loaded = config.load_text("version: v1\nflags: {gfd: {sleepInterval: 60000000000}}\n")
    assert not loaded.errors
    assert any("sleepInterval is accepted and not used" in problem.message for problem in loaded.problems)


def test_mps_has_the_root_of_the_chart(load):
    """The ConfigMap of somebody who uses NVIDIA's Helm chart says nothing of it: the chart does."""
    loaded = load(DEVICES, "version: v1\nsharing: {mps: {resources: [{name: gpu, replicas: 2}]}}")

    assert ("/run/nvidia/mps", []) == (
        loaded.spec.flags.mps_directory,
        [each for each in loaded.problems if each.is_error],
    )


IGNORED = """
sharing:
  timeSlicing:
    renameByDefault: %s
    resources:
      - {name: gpu, rename: gpu.shared, replicas: 2, devices: [0]}
      - {name: acme.dev/npu, rename: acme.dev/x, replicas: 2, devices: 1}
resources:
  gpus: [{pattern: "*", name: gpu}]
"""


@pytest.mark.parametrize(
    ("by_default", "rename"), [("false", ["sharing.timeSlicing.resources[0].rename"]), ("true", [])]
)
def test_what_the_other_plugin_would_ignore(load, by_default, rename):
    """A notice with its place for each key that NVIDIA's plugin does not follow; no warning, for vdev does."""
    loaded = load(DEVICES, IGNORED % by_default)

    where = [problem.where.split(": ")[1] for problem in loaded.notices]
    assert [*rename, "sharing.timeSlicing.resources[0].devices", "resources.gpus"] == where
    assert all("notice: NVIDIA's own plugin ignores " in str(problem) for problem in loaded.notices)
    assert not [problem for problem in loaded.problems if "sharing" in problem.where]


# --- what NVIDIA's plugin starts with --------------------------------------------------------------------------------

WHOLE = """
devices:
  - {name: a100, resource: nvidia.com/gpu, virtual: {preset: a100-sxm4-40gb, count: 2}}
"""


def two_items(one, other):
    """A block of sharing with two items for one resource."""
    return f"sharing: {{timeSlicing: {{resources: [{{name: gpu, {one}}}, {{name: gpu, {other}}}]}}}}"


ITEM = "{resources: [{name: gpu, replicas: 3}]}"


@pytest.fixture
def plan(tmp_path):
    """What a node with two GPUs would advertise with that text as its second file: number of devices by resource."""

    def plan(text):
        files = [tmp_path / "0.yaml", tmp_path / "1.yaml"]
        for file, content in zip(files, (WHOLE, text), strict=True):
            file.write_text(content)
        seen = preview(files, node="n", host_root=tmp_path, overrides={})
        assert not seen.refused, seen.problems
        counts = {name: len(resource.slots) for name, resource in seen.inventory.resources.items()}
        return counts, [str(each) for each in seen.problems]

    return plan


def test_what_the_other_plugin_starts_with_is_a_warning(subtests, plan):
    """With its place, and what happens instead."""
    cases = [
        ("flags: {plugin: {foo: 1}}", {"gpu": 2}, "1:18: flags.plugin.foo", "unknown key 'foo' is ignored"),
        ("flags: {}\nlabels: {a: b}", {"gpu": 2}, "2:1: labels", "unknown key 'labels' is ignored"),
        ("flags: {renameByDefault: true}", {"gpu": 2}, "1:9: flags.renameByDefault", "belongs under sharing.timeSl"),
        (
            "sharing: {timeSlicing: {resources: [{name: gpu, replicas: 2, Devices: [0]}]}}",
            {"gpu": 4},
            "1:62: sharing.timeSlicing.resources[0].Devices",
            "unknown key 'Devices' is ignored",
        ),
        ("flags: {}\n---\nflags: {migStrategy: x}", {"gpu": 2}, "2:1", "a second document starts here; it is ignored"),
        (
            "flags: {plugin: {deviceListStrategy: []}}",
            {"gpu": 2},
            "1:18: flags.plugin.deviceListStrategy",
            "containers get no list",
        ),
        (
            "flags: {plugin: {cdiAnnotationPrefix: custom}}",
            {"gpu": 2},
            "1:18: flags.plugin.cdiAnnotationPrefix",
            "it is used all the same",
        ),
        (
            two_items("replicas: 3", "replicas: 2"),
            {"gpu": 6},
            "1:63: sharing.timeSlicing.resources[1]",
            "the larger number of replicas",
        ),
        (
            two_items("replicas: 2, devices: [0]", "replicas: 3, devices: 1"),
            {"gpu": 4},
            "1:102: sharing.timeSlicing.resources[1].devices",
            "the larger number of replicas",
        ),
        (
            f"sharing: {{timeSlicing: {{resources: [{{name: gpu, replicas: 2}}]}}, mps: {ITEM}}}",
            {"gpu": 6},
            "1:11: sharing.timeSlicing",
            "timeSlicing beside mps is ignored",
        ),
        (shared("all", "mps", 49), {"gpu": 98}, "1:41: sharing.mps.resources[0].replicas", "all are offered"),
        (shared("9"), {"gpu": 4}, "1:37: sharing.timeSlicing.resources[0]", "every device is shared"),
        (shared("[9]"), {"gpu": 4}, "1:37: sharing.timeSlicing.resources[0]", "every device is shared"),
        (shared("['0:0']"), {"gpu": 4}, "1:37: sharing.timeSlicing.resources[0]", "every device is shared"),
        (shared("[]"), {"gpu": 4}, "1:62: sharing.timeSlicing.resources[0].devices", "every device is shared"),
        (shared("[0, 0]"), {"gpu": 3}, "1:75: sharing.timeSlicing.resources[0].devices[1]", "it counts once"),
        (
            "resources: {gpus: [{pattern: Tesla*, name: tesla}]}",
            {"gpu": 2},
            "1:20: resources.gpus[0]",
            "it stays nvidia.com/gpu",
        ),
    ]
    for text, expected, place, words in cases:
        with subtests.test(text=text):
            counts, problems = plan(text)

            assert {f"nvidia.com/{name}": number for name, number in expected.items()} == counts
            assert [each for each in problems if f"1.yaml:{place}: warning: " in each and words in each], problems


@pytest.mark.parametrize("line", ["migStrategy: single", "MIGSTRATEGY: single", "migstrategy: single"])
def test_keys_may_be_written_in_any_case(load, line):
    """As Go reads them; but for the first, with a warning that says the key's name."""
    loaded = load(WHOLE, f"Flags:\n  {line}\n  plugin: {{deviceIdStrategy: index}}")

    assert (MigStrategy.SINGLE, DeviceIdStrategy.INDEX) == (
        loaded.spec.flags.mig_strategy,
        loaded.spec.flags.plugin.device_id_strategy,
    )
    assert any(
        "1.yaml:3:12: flags.plugin.deviceIDStrategy: warning: key 'deviceIdStrategy' counts as" in str(each)
        for each in loaded.warnings
    )
    assert 2 + (not line.startswith("migS")) == len(loaded.warnings)


@pytest.mark.parametrize(
    ("lines", "counts"),
    [
        (["migStrategy: none", "migStrategy: single"], "this one counts"),
        (["MigStrategy: none", "migStrategy: single"], "this one counts"),
        (["migStrategy: single", "MigStrategy: none"], "that one counts"),
    ],
)
def test_of_a_key_that_is_given_twice_one_counts(load, lines, counts):
    """The last one, and of two in different cases the one that Go's JSON has last."""
    loaded = load(WHOLE, "\n  ".join(["flags:", *lines]))

    assert MigStrategy.SINGLE is loaded.spec.flags.mig_strategy
    assert any(
        "1.yaml:3:3: flags.migStrategy: warning: key 'migStrategy' is given twice" in str(each) and counts in str(each)
        for each in loaded.warnings
    )


@pytest.mark.parametrize("block", ["mps:", "mps: null", "MPS: ~"])
def test_an_empty_mps_block_is_none(plan, block):
    """Beside timeSlicing, whose items count."""
    text = f"sharing:\n  timeSlicing: {{resources: [{{name: gpu, replicas: 2}}]}}\n  {block}"
    assert {"nvidia.com/gpu": 4} == plan(text)[0]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("flags: {MigStrategy: none}", "unknown key 'MigStrategy'"),
        ("flags: {plugin: {foo: 1}}", "unknown key 'foo'"),
        ("flags: {migStrategy: none, migStrategy: none}", "given twice"),
        ("flags: {plugin: {deviceListStrategy: []}}", "the list is empty"),
        ('flags: {plugin: {cdiAnnotationPrefix: ""}}', "the beginning of an annotation's key"),
        (two_items("replicas: 2", "replicas: 3"), "is already shared"),
        (f"sharing: {{timeSlicing: {ITEM}, mps: {ITEM}}}", "exclude each other"),
        (shared("all", "mps", 49), "at most 48"),
        (shared("[]"), "the list of devices is empty"),
        (shared("[0, 0]"), "listed twice"),
    ],
)
@pytest.mark.parametrize("section", ["devices: []", "node: {labels: true}", "device: []"])
def test_a_file_with_a_section_of_our_own_stays_strict(load, text, words, section):
    """The other plugin reads none of these, whatever the file has beside them; nor is a slip of the pen its own."""
    with pytest.raises(ConfigError, match=words):
        load(f"{section}\n{text}")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (shared("9"), "9 devices of 'nvidia.com/gpu' are to be shared, but this node has 2"),
        (shared("[9]"), "has no device with index '9' on this node"),
        ("resources: {gpus: [{pattern: Tesla*, name: tesla}]}", "does not match any resources.gpus pattern"),
    ],
)
def test_what_does_not_fit_the_node_is_an_error_in_a_file_of_our_own(tmp_path, text, words):
    """As before."""
    (tmp_path / "own.yaml").write_text(f"{WHOLE}{text}")
    seen = preview([tmp_path / "own.yaml"], node="n", host_root=tmp_path, overrides={})
    assert seen.refused
    assert [each for each in seen.problems if each.is_error and words in each.message]


@pytest.mark.parametrize("devices", ["[]", "[0, 0]", "[9]", "9"])
def test_an_item_for_another_makers_resource_stays_strict(tmp_path, devices):
    """NVIDIA's plugin would not start with it."""
    (tmp_path / "own.yaml").write_text("devices: [{name: a, resource: acme.dev/npu, virtual: {count: 2}}]")
    (tmp_path / "shared.yaml").write_text(shared(devices).replace("gpu", "acme.dev/npu"))
    assert preview(
        [tmp_path / "own.yaml", tmp_path / "shared.yaml"], node="n", host_root=tmp_path, overrides={}
    ).refused


def test_a_second_document_in_a_file_of_our_own_is_refused(load):
    """It would be lost."""
    with pytest.raises(ConfigError, match=r"0.yaml:3:1: a second document starts here"):
        load(f"{WHOLE.strip()}\n---\nflags: {{}}")


def test_a_flag_is_judged_by_itself(load):
    """The file may say what it likes; a flag of the command line is ours."""
    with pytest.raises(ConfigError, match="flag --device-list-strategy"):
        load(
            WHOLE,
            "flags: {}",
            overrides={"flags.plugin.deviceListStrategy": Override((), "flag --device-list-strategy")},
        )
