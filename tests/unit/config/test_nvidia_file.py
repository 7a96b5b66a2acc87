"""An unchanged configuration of NVIDIA's plugin together with a file of devices."""

import pytest

from tests.kit.previews import preview
from vdev import config
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
    """A sharing block with one item."""
    return f"sharing: {{{block}: {{resources: [{{name: gpu, replicas: {replicas}, devices: {devices}}}]}}}}"


@pytest.fixture
def load(tmp_path):
    """Write the texts to files and load them together."""

    def load(*texts, **options):
        files = [tmp_path / f"{number}.yaml" for number in range(len(texts))]
        for file, text in zip(files, texts, strict=True):
            file.write_text(text)
        return config.load(files, **options)

    return load


def test_the_order_of_files_does_not_matter(load):
    assert load(FLAGS, DEVICES).spec.flags == load(DEVICES, FLAGS).spec.flags


def test_a_wrong_flag_is_the_only_error(load):
    """Checks that depend on the flags are skipped while one of them is wrong."""
    with pytest.raises(ConfigError) as refused:
        load(DEVICES, "flags: {migStrategy: mixed, nvidiaDriverRoot: relative}")
    assert ["flags.nvidiaDriverRoot"] == [problem.where.rpartition(" ")[2] for problem in refused.value.problems]


def test_a_flag_overrides_the_file(load):
    """Checks that depend on it use the value of the flag."""
    none = Override("none", "flag --mig-strategy")
    loaded = load(DEVICES, FLAGS, overrides={"flags.migStrategy": none})
    assert MigStrategy.NONE is loaded.spec.flags.mig_strategy
    assert "the partitions of a100 are not advertised under migStrategy none" in {w.message for w in loaded.warnings}


def test_two_cdi_strategies_are_a_warning(load):
    """NVIDIA's documentation advises against both."""
    text = "flags: {plugin: {deviceListStrategy: [cdi-cri, cdi-annotations]}}"
    (warning,) = load(DEVICES.replace("partitions", "# "), text).warnings
    assert "inject every device twice" in warning.message
    assert warning.where.endswith("1.yaml:1:18: flags.plugin.deviceListStrategy")


def test_nanoseconds_are_an_interval():
    """NVIDIA's `sleepInterval` may be a whole number of nanoseconds."""
    loaded = config.load_text("version: v1\nflags: {gfd: {sleepInterval: 60000000000}}\n")
    assert not loaded.errors


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
def test_keys_that_nvidias_plugin_ignores(load, by_default, rename):
    """Each has a notice with its place, and no warning, because vdev follows it."""
    loaded = load(DEVICES, IGNORED % by_default)

    where = [problem.where.split(": ")[1] for problem in loaded.notices()]
    assert [*rename, "sharing.timeSlicing.resources[0].devices", "resources.gpus"] == where
    assert all("notice: NVIDIA's own plugin ignores " in str(problem) for problem in loaded.notices())
    assert not [problem for problem in loaded.problems if "sharing" in problem.where]


# --- files that NVIDIA's plugin accepts ------------------------------------------------------------------------------

WHOLE = """
devices:
  - {name: a100, resource: nvidia.com/gpu, virtual: {preset: a100-sxm4-40gb, count: 2}}
"""


def two_items(one, other):
    """A sharing block with two items for one resource."""
    return f"sharing: {{timeSlicing: {{resources: [{{name: gpu, {one}}}, {{name: gpu, {other}}}]}}}}"


ITEM = "{resources: [{name: gpu, replicas: 3}]}"


@pytest.fixture
def plan(tmp_path):
    """The number of devices by resource on a node with two GPUs, with this text as the second file."""

    def plan(text):
        files = [tmp_path / "0.yaml", tmp_path / "1.yaml"]
        for file, content in zip(files, (WHOLE, text), strict=True):
            file.write_text(content)
        seen = preview(files, node="n", host_root=tmp_path)
        assert not seen.refused, seen.problems
        counts = {name: len(resource.slots) for name, resource in seen.plan.devices.resources.items()}
        return counts, [str(each) for each in seen.problems]

    return plan


def test_mistakes_that_nvidias_plugin_accepts_are_warnings(subtests, plan):
    """Each has its place and says what happens instead."""
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
            "1:77: sharing.timeSlicing.resources[1]",
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
    """As in Go. Except for the first letter, another case has a warning with the right key."""
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
        (["<<: {migStrategy: none, migStrategy: single}"], "this one counts"),
    ],
)
def test_duplicate_keys(load, lines, counts):
    """The last one counts; if the cases differ, the one that is last in Go's JSON."""
    loaded = load(WHOLE, "\n  ".join(["flags:", *lines]))

    assert MigStrategy.SINGLE is loaded.spec.flags.mig_strategy
    assert any(
        "flags.migStrategy: warning: key 'migStrategy' is given twice" in str(each) and counts in str(each)
        for each in loaded.warnings
    )


@pytest.mark.parametrize("block", ["mps:", "mps: null", "MPS: ~"])
def test_an_empty_mps_block_has_no_effect(plan, block):
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
        (f"sharing: {{timeSlicing: {ITEM}, mps: {ITEM}}}", "exclude each other"),
        (shared("all", "mps", 49), "at most 48"),
        (shared("[]"), "the list of devices is empty"),
        (shared("[0, 0]"), "listed twice"),
    ],
)
@pytest.mark.parametrize("section", ["devices: []", "node: {labels: true}", "device: []"])
def test_a_file_with_a_section_of_vdev_is_strict(load, text, words, section):
    """NVIDIA's plugin does not read such files. A misspelled section counts as one of vdev."""
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
def test_sharing_that_does_not_fit_the_node_is_an_error_in_a_file_of_vdev(tmp_path, text, words):
    (tmp_path / "own.yaml").write_text(f"{WHOLE}{text}")
    seen = preview([tmp_path / "own.yaml"], node="n", host_root=tmp_path)
    assert seen.refused
    assert [each for each in seen.problems if each.is_error and words in each.message]


@pytest.mark.parametrize("devices", ["[]", "[0, 0]", "[9]", "9"])
def test_an_item_for_another_vendors_resource_is_strict(tmp_path, devices):
    """NVIDIA's plugin would not start with it."""
    (tmp_path / "own.yaml").write_text("devices: [{name: a, resource: acme.dev/npu, virtual: {count: 2}}]")
    (tmp_path / "shared.yaml").write_text(shared(devices).replace("gpu", "acme.dev/npu"))
    assert preview([tmp_path / "own.yaml", tmp_path / "shared.yaml"], node="n", host_root=tmp_path).refused


def test_a_second_document_in_a_file_of_vdev_is_refused(load):
    with pytest.raises(ConfigError, match=r"0.yaml:3:1: a second document starts here"):
        load(f"{WHOLE.strip()}\n---\nflags: {{}}")


def test_flags_are_strict(load):
    with pytest.raises(ConfigError, match="flag --device-list-strategy"):
        load(
            WHOLE,
            "flags: {}",
            overrides={"flags.plugin.deviceListStrategy": Override((), "flag --device-list-strategy")},
        )
