"""NVIDIA's configuration files load unchanged, and every validation rule has its own message."""

from pathlib import Path

import pytest

from tests.kit.refused import refusals
from vdev import config
from vdev.errors import ConfigError
from vdev.model.entry import DeviceListStrategy, MigStrategy
from vdev.model.problem import Override
from vdev.model.spec import SharingKind

COMPLETE = """
version: v1
flags:
  migStrategy: mixed
  failOnInitError: false
  mpsRoot: /run/nvidia/mps
  nvidiaDriverRoot: /run/nvidia/driver
  nvidiaDevRoot: /run/nvidia/dev
  gdrcopyEnabled: false
  gdsEnabled: true
  mofedEnabled: false
  useNodeFeatureAPI: true
  deviceDiscoveryStrategy: auto
  plugin:
    passDeviceSpecs: true
    deviceListStrategy: [envvar, volume-mounts]
    deviceIDStrategy: index
    cdiAnnotationPrefix: cdi.k8s.io/
    nvidiaCTKPath: /usr/bin/nvidia-ctk
    containerDriverRoot: /driver-root
    sharedDevicesAllocationPolicy: packed
  gfd:
    oneshot: false
    noTimestamp: false
    sleepInterval: 60s
    outputFile: /etc/kubernetes/node-feature-discovery/features.d/gfd
    machineTypeFile: /sys/class/dmi/id/product_name
resources:
  gpus: [{pattern: "*-SXM4-*", name: gpu-sxm4}, {pattern: "*", name: nvidia.com/gpu}]
  mig: [{pattern: "1g.5gb", name: mig-small}]
sharing:
  timeSlicing:
    renameByDefault: true
    failRequestsGreaterThanOne: true
    resources:
    - {name: gpu, replicas: 4, devices: [0, "0:1", GPU-41abb1d2-8fe6-5c3c-b92d-01706fd41397]}
    - {name: nvidia.com/mig-small, rename: mig-tiny, devices: 2, replicas: 2}
imex: {channelIDs: [0], required: false}
"""
ITEMS = "{resources: [{name: gpu, replicas: 2}]}"
MPS = f"{{mps: {ITEMS}}}"
PARTITIONED = "devices: [{name: a, resource: nvidia.com/gpu, virtual: {preset: a30}, partitions: {all: all-1g.6gb}}]"


def test_a_complete_file_loads_unchanged() -> None:
    """Flags, names without a domain, sharing and patterns keep their meaning."""
    spec = config.load_text(COMPLETE, "f").spec
    flags, plugin = spec.flags, spec.flags.plugin
    assert (MigStrategy.MIXED, False, True) == (flags.mig_strategy, flags.fail_on_init_error, flags.gds_enabled)
    assert ("/run/nvidia/driver", "/run/nvidia/dev", "/run/nvidia/mps") == (
        flags.nvidia_driver_root,
        flags.nvidia_dev_root,
        flags.mps_root,
    )
    assert (True, "index", "packed") == (
        plugin.pass_device_specs,
        plugin.device_id_strategy,
        plugin.shared_devices_allocation_policy,
    )
    assert (DeviceListStrategy.ENVVAR, DeviceListStrategy.VOLUME_MOUNTS) == plugin.device_list_strategy
    assert spec.sharing is not None
    assert (SharingKind.TIME_SLICING, True, True) == (
        spec.sharing.kind,
        spec.sharing.rename_by_default,
        spec.sharing.fail_requests_greater_than_one,
    )
    gpu, mig = spec.sharing.resources
    assert ("nvidia.com/gpu", 4, None, True) == (gpu.name, gpu.replicas, gpu.rename, gpu.for_nvidia)
    assert ("0", "0:1", "GPU-41abb1d2-8fe6-5c3c-b92d-01706fd41397") == gpu.devices
    assert ("nvidia.com/mig-small", 2, "nvidia.com/mig-tiny", True) == (
        mig.name,
        mig.replicas,
        mig.rename,
        mig.for_nvidia,
    )
    assert 2 == mig.devices
    patterns = [(pattern.pattern, pattern.name) for pattern in (*spec.resources.gpus, *spec.resources.mig)]
    assert [
        ("*-SXM4-*", "nvidia.com/gpu-sxm4"),
        ("*", "nvidia.com/gpu"),
        ("1g.5gb", "nvidia.com/mig-small"),
    ] == patterns


def test_an_entry_overrides_the_model_for_patterns() -> None:
    virtual = "{preset: nvidia-gpu, attributes: {model: Tesla K80, product: Tesla-K80}}"
    loaded = config.load_text(f"version: v1\ndevices: [{{name: a, resource: nvidia.com/gpu, virtual: {virtual}}}]")
    assert ("Tesla K80", "Tesla-K80") == loaded.spec.entries[0].gpu_names


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("envvar", ("envvar",)),
        ('"envvar,cdi-cri"', ("envvar", "cdi-cri")),
        ('"envvar, cdi-annotations"', ("envvar", "cdi-annotations")),
        ("[volume-mounts, envvar]", ("volume-mounts", "envvar")),
    ],
)
def test_device_list_strategy_is_a_string_or_a_list(written: str, expected: tuple[str, ...]) -> None:
    spec = config.load_text(f"flags: {{plugin: {{deviceListStrategy: {written}}}}}").spec
    assert expected == spec.flags.plugin.device_list_strategy


@pytest.mark.parametrize(("kind", "expected"), [("timeSlicing", False), ("mps", True)])
def test_requests_for_several_replicas_fail_by_default_under_mps_only(kind: str, expected: bool) -> None:
    text = f"flags: {{mpsRoot: /mps}}\nsharing: {{{kind}: {{resources: [{{name: gpu, replicas: 2}}]}}}}"
    sharing = config.load_text(text).spec.sharing
    assert sharing is not None
    assert expected is sharing.fail_requests_greater_than_one


def item(fields: str) -> str:
    """A time-slicing block with one item."""
    return f"sharing:\n  timeSlicing:\n    resources:\n    - {{{fields}}}\n"


def test_every_rule_has_its_message_and_place(subtests):
    """Some of the rules are missing in NVIDIA's plugin."""
    cases = [
        ("version: v2", "f:1:10: version: ", "unknown version: v2"),
        ("sharing: {timeSlicing: }", "f:1:24: sharing.timeSlicing: ", "'resources' is missing"),
        ("sharing: {mps: {resources: []}}", "f:1:28: sharing.mps.resources: ", "no resources specified"),
        (item("replicas: 2"), "f:4:7: sharing.timeSlicing.resources[0]: ", "'name' is missing"),
        (item("name: gpu, replicas: 1"), "f:4:29: sharing.timeSlicing.resources[0].replicas: ", "expected 2 to"),
        (item("name: gpu, replicas: 999999999"), "f:4:29: ", "expected 2 to"),
        (item("name: gpu, replicas: 2, devices: some"), "f:4:41: ", "devices set as 'some', and the only word"),
        (item("name: gpu, replicas: 2, devices: 0"), "f:4:41: ", "a count of devices must be at least 1, got 0"),
        (item("name: gpu, replicas: 2, devices: 2.5"), "f:4:41: ", "the number 2.5 does not choose devices"),
        (item("name: gpu, replicas: 2, devices: {a: b}"), "f:4:41: ", "a mapping does not choose devices"),
        (item("name: gpu, replicas: 2, devices: [1.5]"), "f:4:42: ", "the number 1.5 refers to no device"),
        (item('name: gpu, replicas: 2, devices: ["a b"]'), "f:4:42: ", "the string 'a b' refers to no device"),
        (item('name: gpu, replicas: 2, devices: [0, "0"]'), "f:4:45: ", "device 0 is listed twice"),
        (item("name: gpu, replicas: 2, devices: []"), "f:4:41: ", "the list of devices is empty"),
        ("resources: {gpus: [{name: gpu}]}", "f:1:20: resources.gpus[0]: ", "'pattern' is missing"),
        ("flags: {plugin: {deviceListStrategy: 5}}", "f:1:38: flags.plugin.deviceListStrategy: ", "the number 5"),
        ("flags: {plugin: {deviceListStrategy: []}}", "f:1:38: flags.plugin.deviceListStrategy: ", "the list is empty"),
        (
            "flags: {plugin: {deviceListStrategy: cdi}}",
            "f:1:38: ",
            "expected envvar, volume-mounts, cdi-annotations or",
        ),
        ("flags: {plugin: {deviceIDStrategy: id}}", "f:1:36: ", "expected uuid or index"),
        ("flags: {migStrategy: both}", "f:1:22: flags.migStrategy: ", "expected none, single or mixed"),
        ("flags: {deviceDiscoveryStrategy: x}", "f:1:34: ", "expected auto, nvml or tegra"),
        ("imex: {channelIDs: [2]}", "f:1:20: imex.channelIDs: ", "channelIDs must be [] or [0], got [2]"),
        (
            "flags: {migStrategy: mixed, mpsRoot: /mps}\nsharing: {mps: {resources: [{name: gpu, replicas: 2}]}}",
            "f:2:11: sharing.mps: ",
            "does not work with migStrategy mixed",
        ),
        (
            "flags: {mpsRoot: /mps}\nsharing: {mps: {resources: [{name: gpu, replicas: 49}]}}",
            "f:2:51: sharing.mps.resources[0].replicas: ",
            "MPS serves at most 48 clients of a device",
        ),
        (
            f"flags: {{migStrategy: single, mpsRoot: /mps}}\nsharing: {MPS}\n{PARTITIONED}",
            "f:2:36: sharing.mps.resources[0].name: ",
            "partitions cannot be shared with MPS, and nvidia.com/gpu has some, at f:3:71",
        ),
        (
            f"sharing:\n  timeSlicing: {ITEMS}\n  mps: {ITEMS}",
            "f:3:3: sharing.mps: ",
            "timeSlicing and mps exclude each other",
        ),
        ("flags: {mpsRoot: mps}", "f:1:18: flags.mpsRoot: ", "is not an absolute path"),
        ("flags: {plugin: {cdiAnnotationPrefix: x}}", "f:1:39: ", "the beginning of an annotation's key"),
        (item("name: a_b.com/gpu, replicas: 2"), "f:4:14: ", "not a DNS name"),
    ]
    for text, place, words in cases:
        with subtests.test(text=text):
            own = text if PARTITIONED in text else f"{text}\ndevices: []"
            found = [message for message in refusals(own) if message.startswith(place)]
            assert words in "\n".join(found)


@pytest.mark.parametrize(
    ("one", "other", "words"),
    [
        ("all", "all", "every device of nvidia.com/gpu is already shared, at f:4:7"),
        ("all", "[3]", "device 3 of nvidia.com/gpu is already shared"),
        ("[3]", "all", "every device of nvidia.com/gpu is already shared"),
        ("2", "3", "device 0 of nvidia.com/gpu is already shared"),
        ("2", "[1]", "device 1 of nvidia.com/gpu is already shared"),
        ("[0, 7]", "1", "device 0 of nvidia.com/gpu is already shared"),
        ("[0, 1]", "[2, 1]", "device 1 of nvidia.com/gpu is already shared"),
    ],
)
def test_items_for_one_resource_must_not_overlap(one: str, other: str, words: str) -> None:
    """The second item has the error."""
    text = item(f"name: gpu, replicas: 2, devices: {one}") + f"    - {{name: gpu, replicas: 3, devices: {other}}}\n"
    (message,) = refusals(f"{text}devices: []")
    assert message.startswith("f:5:41: sharing.timeSlicing.resources[1].devices: ")
    assert words in message


@pytest.mark.parametrize(("one", "other"), [("2", "[2, 3]"), ("[0]", "[1]"), ("[1]", "1"), ('["0:1"]', "[0]")])
def test_items_for_one_resource_may_have_different_devices(one: str, other: str) -> None:
    text = item(f"name: gpu, replicas: 2, devices: {one}") + f"    - {{name: gpu, replicas: 3, devices: {other}}}\n"
    sharing = config.load_text(text).spec.sharing
    assert sharing is not None
    assert 2 == len(sharing.resources)


@pytest.mark.parametrize(
    ("sharing", "words"),
    [
        ("resources: [{name: a.b/x, replicas: 2, rename: a.b/y}]", "a.b/x shared as a.b/y collides with the resource"),
        ("renameByDefault: true, resources: [{name: a.b/z, replicas: 2}]", "a.b/z shared as a.b/z.shared collides"),
        (
            "resources: [{name: a.b/x, replicas: 2, rename: a.b/n}, {name: a.b/y, replicas: 2, rename: a.b/n}]",
            "a.b/y shared as a.b/n collides with a.b/x",
        ),
        (
            'resources: [{name: "a.b/{attributes.x}", replicas: 2}]',
            "].name: no entry has the resource a.b/{attributes.x}; write it as",
        ),
        ("resources: [{name: a.b/x, replicas: 2}, {name: a.b/x, replicas: 3}]", "every device of a.b/x is already"),
        (
            f"renameByDefault: true, resources: [{{name: a.b/{'x' * 60}, replicas: 2}}]",
            "renameByDefault makes it the part of",
        ),
    ],
)
def test_renames_must_not_collide(sharing: str, words: str) -> None:
    """A new name must be valid and unused."""
    text = "devices:\n"
    for name in ("x", "y", "z", "z.shared"):
        text += f"- {{name: {name}, resource: a.b/{name}, glob: /dev/{name}}}\n"
    (message,) = refusals(text + f"sharing: {{timeSlicing: {{{sharing}}}}}\n")
    assert words in message


def test_a_rename_must_not_collide_with_a_partitions_resource() -> None:
    text = """flags: {migStrategy: mixed}
devices: [{name: a, resource: nvidia.com/gpu, virtual: {preset: a30, count: 2}, partitions: {0: [1g.6gb]}}]
sharing: {timeSlicing: {resources: [{name: gpu, replicas: 2, rename: mig-1g.6gb}]}}
"""
    (message,) = refusals(text)
    assert "nvidia.com/gpu shared as nvidia.com/mig-1g.6gb collides" in message


def test_an_error_in_a_flag_names_the_flag() -> None:
    overrides = {"flags.nvidiaDriverRoot": Override("x", "env NVIDIA_DRIVER_ROOT")}
    with pytest.raises(ConfigError, match=r"^env NVIDIA_DRIVER_ROOT: flags.nvidiaDriverRoot: 'x' is not an absolute"):
        config.load_text("version: v1", overrides=overrides)


# --- scalars as Go reads them ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        *((each, True) for each in ("y", "Y", "yes", "Yes", "YES", "on", "On", "ON", "true", "True", "TRUE")),
        *((each, False) for each in ("n", "N", "no", "No", "NO", "off", "Off", "OFF", "false", "False", "FALSE")),
    ],
)
def test_booleans_in_an_nvidia_file(written: str, expected: bool) -> None:
    """All words of YAML 1.1, each in its three spellings."""
    assert expected is config.load_text(f"flags: {{failOnInitError: {written}}}").spec.flags.fail_on_init_error


def test_values_that_go_does_not_read_as_boolean(subtests):
    cases = ['"true"', '"yes"', "1", "0", "yEs", "t", "1.0", "!!str yes"]
    for written in cases:
        with (
            subtests.test(written=written),
            pytest.raises(ConfigError, match=r"flags.failOnInitError: expected true or false"),
        ):
            config.load_text(f"flags: {{failOnInitError: {written}}}")


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        *(
            ("2.0", 2),
            ("2.", 2),
            ("1e1", 10),
            ("+3", 3),
            ("0x10", 16),
            ("010", 8),
            ("0o10", 8),
            ("0b11", 3),
            ("1_0", 10),
        ),
        *(("08", 8), ("20.0e-1", 2), (".2e1", 2)),
    ],
)
def test_numbers_in_an_nvidia_file(written: str, expected: int) -> None:
    """A number is whole if Go's JSON writes it without a fraction."""
    text = item(f"name: gpu, replicas: {written}, devices: {written}") + "    - {name: x, replicas: 2, devices: [1.0]}"
    sharing = config.load_text(text).spec.sharing
    assert sharing is not None
    assert [(expected, expected), (2, ("1",))] == [(each.replicas, each.devices) for each in sharing.resources]


def test_values_that_go_does_not_read_as_whole_number(subtests):
    cases = ["2.5", "1e21", '"2"', "two", "0x", "1__x", "1e400", ".inf", "on"]
    for written in cases:
        with (
            subtests.test(written=written),
            pytest.raises(ConfigError, match=r"replicas: (expected a whole number, got|.* is out of range)"),
        ):
            config.load_text(item(f"name: gpu, replicas: {written}"))


def test_each_file_is_read_by_its_own_sections(tmp_path: Path) -> None:
    """NVIDIA's rules for scalars apply only to files without sections of vdev."""
    (tmp_path / "own.yaml").write_text(NPU)
    (tmp_path / "theirs.yaml").write_text("flags: {failOnInitError: no}\n" + item("name: a.b/c, replicas: 2.0"))
    files = [tmp_path / "own.yaml", tmp_path / "theirs.yaml"]
    assert not config.load(files).spec.flags.fail_on_init_error
    (tmp_path / "own.yaml").write_text(NPU.replace("count: 1", "count: 2.0"))
    with pytest.raises(ConfigError, match=r"expected a whole number, got the number 2\.0"):
        config.load(files)


NPU = "devices: [{name: a, resource: a.b/c, virtual: {count: 1}}]\n"


@pytest.mark.parametrize(
    "content", ["", "\n", "# nothing yet\n", "---\n# nothing\n...\n", "~", "null\n", "\ufeff", "{}"]
)
def test_an_empty_nvidia_file_is_valid_with_devices(content: str, tmp_path: Path) -> None:
    """NVIDIA's plugin reads an empty file as a configuration with defaults."""
    (tmp_path / "own.yaml").write_text(NPU)
    (tmp_path / "theirs.yaml").write_text(content)
    for names in (("own", "theirs"), ("theirs", "own")):
        loaded = config.load([tmp_path / f"{name}.yaml" for name in names])
        assert ((), 1) == (loaded.problems, len(loaded.spec.entries))


def test_a_link_to_dev_null_is_valid_with_devices(tmp_path: Path) -> None:
    """The fallback `empty` of NVIDIA's config manager creates it."""
    (tmp_path / "own.yaml").write_text(NPU)
    (tmp_path / "theirs.yaml").symlink_to("/dev/null")
    assert not config.load([tmp_path / "own.yaml", tmp_path / "theirs.yaml"]).problems


def test_only_empty_files_are_refused(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text("# later")
    with pytest.raises(ConfigError, match="is empty; expected a mapping"):
        config.load([tmp_path / "a", tmp_path / "b"])
