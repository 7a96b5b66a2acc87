"""Layouts that a label of the node selects: their sources, and errors in their files."""

import json

import pytest

from vdev import config
from vdev.errors import ConfigError
from vdev.model.geometry import NamedLayout

CONFIG = """\
version: v1
flags: {migStrategy: mixed}
devices:
  - name: gpu
    resource: nvidia.com/gpu
    virtual: {preset: %s, count: 2}
    partitions: {fromLabel: nvidia.com/mig.config, %s}
"""
HEAD = "version: v1\nmig-configs:\n"


@pytest.fixture
def load(tmp_path):
    """Load a configuration together with a file of layouts, or with the layouts of the preset if there is no text."""

    def load(layouts=None, *, preset="a100-sxm4-40gb", more="file: layouts.yaml", partial=False):
        if layouts is not None:
            (tmp_path / "layouts.yaml").write_text(layouts)
        (tmp_path / "vdev.yaml").write_text(CONFIG % (preset, more))
        return config.load([tmp_path / "vdev.yaml"], partial=partial)

    return load


@pytest.fixture
def layouts(load):
    """The layouts that the label can select."""

    def layouts(text=None, **more):
        (entry,) = load(text, **more).spec.entries
        return entry.choice.layouts

    return layouts


def parts(first, *others):
    """A layout of two devices, which are alike if only one is given."""
    return NamedLayout(dict(enumerate([first, *(others or [first])])))


# --- without a file ---------------------------------------------------------------------------------------------------


def test_default_layouts(layouts):
    """They have mig-parted's names and as many partitions of each profile as fit."""
    assert {
        "all-disabled": parts(None),
        "all-enabled": parts(()),
        "all-1g.5gb": parts(("1g.5gb",) * 7),
        "all-1g.5gb.me": parts(("1g.5gb+me",)),
        "all-1g.5gb+me": parts(("1g.5gb+me",)),
        "all-1g.10gb": parts(("1g.10gb",) * 4),
        "all-2g.10gb": parts(("2g.10gb",) * 3),
        "all-3g.20gb": parts(("3g.20gb",) * 2),
        "all-4g.20gb": parts(("4g.20gb",)),
        "all-7g.40gb": parts(("7g.40gb",)),
        "all-balanced": parts(("1g.5gb", "1g.5gb", "2g.10gb", "3g.20gb")),
    } == layouts(more="default: all-balanced")


def test_devices_with_modes_have_no_layout_without_a_mode(layouts):
    found = layouts(preset="mi300x", more="default: cpx_nps4")
    assert parts(("cpx_nps4",) * 8) == found["cpx_nps4"]
    assert "all-enabled" not in found


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ("default: all-disabled", {}),
        ("", {}),
        ("default: all-enabled", {0: (), 1: ()}),
        ("default: all-3g.20gb", {0: ("3g.20gb",) * 2, 1: ("3g.20gb",) * 2}),
    ],
)
def test_a_node_without_the_label_has_the_default(load, more, expected):
    """Without `default`, devices are whole."""
    (entry,) = load(more=more).spec.entries
    assert expected == entry.partitions


def test_an_unknown_default_is_an_error_at_its_place(load):
    with pytest.raises(
        ConfigError, match=r"7:61: devices\[0\].partitions.default: unknown .* did you mean 'all-1g.5gb'"
    ):
        load(more="default: all-1g.5g")


def test_errors_in_the_mapping(subtests):
    cases = [
        ("{default: all-disabled}", "'fromLabel' is missing"),
        ("{fromLabel: nvidia.com/mig.config, defualt: x}", "unknown key 'defualt'"),
        ("{fromLabel: kubernetes.io/hostname}", "belongs to Kubernetes"),
        ("{fromLabel: not a key}", "is not a valid label key"),
        (f"{{fromLabel: example.com/{'x' * 60}}}", "use a shorter label"),
        ("{fromLabel: nvidia.com/mig.config, 0: [1g.5gb]}", "unknown key '0'"),
        ("{fromLabel: nvidia.com/mig.config, file: nowhere/at/all.yaml}", "all.yaml: cannot be read: No such file"),
    ]
    for text, expected in cases:
        with subtests.test(text=text):
            text = CONFIG.replace("{fromLabel: nvidia.com/mig.config, %s}", "%s") % ("a100-sxm4-40gb", text)
            with pytest.raises(ConfigError) as caught:
                config.load_text(text)
            assert expected in str(caught.value)


# --- mig-parted's file ------------------------------------------------------------------------------------------------


def test_a_file_of_mig_parted(layouts):
    """Items match by index and model, and the last match counts; unmatched devices do not change."""
    found = layouts(
        HEAD
        + """\
  none:
    - {devices: all, mig-enabled: false}
  empty:
    - {devices: all, mig-enabled: true, mig-devices: {}}
  mixed:
    - devices: [0, 9]
      mig-enabled: true
      mig-devices: {"1g.5gb": 2, "3g.20gb": 1, "2g.10gb": 0}
  by-model:
    - {device-filter: ["0x233010DE", "0x20b010de"], devices: all, mig-enabled: true, mig-devices: {"1g.10gb": 4}}
    - {device-filter: "0x233110DE", devices: all, mig-enabled: true, mig-devices: {"1g.10gb": 7}}
    - {device-filter: "", devices: [1], mig-enabled: true, mig-devices: {"7g.40gb": 1}}
  by-board:
    - {device-filter: "0x20B010DE:0x134F10DE", devices: all, mig-enabled: false}
  unreadable-model:
    - {device-filter: "A100", devices: all, mig-enabled: false}
"""
    )
    assert {
        "none": parts(None),
        "empty": parts(()),
        "mixed": NamedLayout({0: ("1g.5gb", "1g.5gb", "3g.20gb")}),
        "by-model": parts(("1g.10gb",) * 4, ("7g.40gb",)),
        "by-board": NamedLayout({}),
        "unreadable-model": NamedLayout({}),
    } == found


@pytest.mark.parametrize(
    ("config_", "why"),
    [
        ('{devices: all, mig-enabled: true, mig-devices: {"1g.24gb+gfx": 4}}', "unknown profile '1g.24gb+gfx'"),
        ('{devices: all, mig-enabled: true, mig-devices: {"1c.3g.20gb": 1}}', "compute instance"),
        ('{devices: all, mig-enabled: true, mig-devices: {"1g.5gb": 8}}', "does not fit beside 1g.5gb@0"),
        (
            "{devices: all, mig-enabled: false}, {devices: [1], mig-enabled: true, mig-devices: {}}",
            "device 1 would be both with MIG and without",
        ),
    ],
)
def test_a_layout_that_does_not_fit_is_kept(load, config_, why):
    """One file is for many models; only the selected layout must fit."""
    loaded = load(HEAD + f"  good: [{{devices: all, mig-enabled: false}}]\n  odd: [{config_}]\n")
    assert why in loaded.spec.entries[0].choice.layouts["odd"].refusal
    assert () == loaded.problems
    with pytest.raises(ConfigError, match="the layout 'odd' does not fit"):
        load(more="file: layouts.yaml, default: odd")


def test_errors_in_a_file_of_mig_parted(subtests, load):
    """They are reported together with those of the configuration."""
    cases = [
        ("mig-configs: {a: [{devices: all, mig-enabled: false}]}", "layouts.yaml:1:1: 'version' is missing"),
        (
            "version: v2\nmig-configs: {a: [{devices: all, mig-enabled: false}]}",
            ":1:10: version: the string 'v2' is not allowed here; expected v1",
        ),
        (HEAD + "  {}", ":3:3: mig-configs: there is no configuration"),
        (HEAD + "  a: [{mig-enabled: false}]", ":3:7: mig-configs.a[0]: 'devices' is missing"),
        (HEAD + "  a: [{devices: all, mig-enabled: true}]", ":3:7: mig-configs.a[0]: 'mig-devices' is missing"),
        (
            HEAD + "  a: [{devices: some, mig-enabled: false}]",
            ":3:17: mig-configs.a[0].devices: expected all, or a list",
        ),
        (
            HEAD + "  a: [{devices: all, mig-enabled: false, migdevices: {}}]",
            "unknown key 'migdevices'; did you mean 'mig-devices'? allowed: devices",
        ),
        (HEAD + "  a: [{devices: all, mig-enabled: false, mig-devices: {1g.5gb: 1}}]", "mig-enabled is false"),
        (HEAD + "  a: [{devices: all, mig-enabled: true, mig-devices: {1g.5gb: -1}}]", "-1 is out of range"),
        (
            HEAD + "  a: [{devices: all, mig-enabled: true, mig-devices: {1g.5bg: 7}}]",
            """:3:55: mig-configs.a[0].mig-devices["1g.5bg"]: '1g.5bg' is not allowed; expected a profile as NVIDIA""",
        ),
        (HEAD + "  a: [{devices: all, mig-enabled: false, device-filter: 0x20B010DE}]", "write it in quotes"),
        (HEAD + "  a: [{devices: all, mig-enabled: false}]\n  a: [{devices: all, mig-enabled: false}]", "given twice"),
        ("kind: ConfigMap\napiVersion: v1\ndata: {config.yaml: x}", "this is a Kubernetes object of kind ConfigMap"),
        ("[", "is not YAML"),
        ("", "is empty"),
    ]
    for text, expected in cases:
        with subtests.test(text=text):
            with pytest.raises(ConfigError) as caught:
                load(text, more="file: layouts.yaml, defualt: x" if text == "[" else "file: layouts.yaml")
            assert "layouts.yaml" in str(caught.value) or "defualt" in str(caught.value)
            if text != "[":
                assert expected in str(caught.value)


def test_a_bad_file_leaves_out_the_entry_that_names_it(load, tmp_path):
    """Two entries with the same file report its errors once, at their places in it and from top to bottom."""
    (tmp_path / "layouts.yaml").write_text("mig-configs: {}\nversion: v2")
    entry = (
        "  - {name: %s, resource: a.b/%s, virtual: {preset: a30}, partitions: {fromLabel: a.b/c, file: layouts.yaml}}\n"
    )
    text = "devices:\n  - {name: good, resource: a.b/c, virtual: {}}\n" + entry % ("x", "x") + entry % ("y", "y")
    (tmp_path / "vdev.yaml").write_text(text)
    loaded = config.load([tmp_path / "vdev.yaml"], partial=True)
    assert ["good"] == [each.name for each in loaded.spec.entries]
    places = [f"{tmp_path / 'layouts.yaml'}:{each}" for each in ("1:14: mig-configs", "2:10: version")]
    assert places == [each.where for each in loaded.errors]


# --- device-config-manager's file -------------------------------------------------------------------------------------


def profile(*modes, skipped=()):
    keys = ("computePartition", "memoryPartition", "numGPUsAssigned")
    modes = [dict(zip(keys, mode, strict=False)) for mode in modes]
    return {"skippedGPUs": {"ids": list(skipped)}, "profiles": modes}


def test_a_file_of_device_config_manager(load):
    """Modes are assigned in order to GPUs that are not skipped; profiles that it would refuse fail when selected."""
    profiles = {
        "default": profile(("CPX", "NPS4", 2)),
        "mixed": profile(("SPX", "NPS1", 1), ("CPX", "NPS1", 1)),
        "one": profile(("CPX", "NPS1", 1), skipped=[0]),
        "beyond": profile(("CPX", "NPS1", 1), skipped=[2]),
        "few": profile(("CPX", "NPS1")),
        "memory": profile(("CPX", "NPS4", 1), ("SPX", "NPS1", 1)),
        "unknown": profile(("CPX", "NPS3", 2)),
        "together": profile(("CPX", "NPS2", 2)),
    }
    services = {"names": ["amd-metrics-exporter"]}
    text = json.dumps({"gpu-config-profiles": profiles, "gpuClientSystemdServices": services}, indent=2)
    loaded = load(text, preset="mi300x", more="file: layouts.yaml, default: default")
    (entry,) = loaded.spec.entries
    found = entry.choice.layouts
    assert {0: ("cpx_nps4",) * 8, 1: ("cpx_nps4",) * 8} == entry.partitions
    assert parts(("spx_nps1",), ("cpx_nps1",) * 8) == found["mixed"]
    assert NamedLayout({1: ("cpx_nps1",) * 8}) == found["one"]
    refusals = {name: layout.refusal.partition(";")[0] for name, layout in found.items() if layout.refusal}
    assert {
        "beyond": "it assigns 1 GPUs and skips 1, and there are 2",
        "few": "it assigns 0 GPUs, and there are 2",
        "memory": "it mixes memory modes, and all GPUs of a node have the same",
        "unknown": "unknown layout 'cpx_nps3'",
        "together": "unknown layout 'cpx_nps2'",
    } == refusals


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"gpu-config-profiles": {"a": {"profile": []}}}', "unknown key 'profile'"),
        ('{"gpu-config-profiles": {"a": {"skippedGPUs": {"ids": [-1]}}}}', "-1 is out of range"),
    ],
)
def test_errors_in_a_file_of_device_config_manager(load, text, expected):
    with pytest.raises(ConfigError, match=expected):
        load(text, preset="mi300x")
