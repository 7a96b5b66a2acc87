"""Preset files: those of vdev, and those of users."""

from itertools import permutations
from pathlib import Path as FilePath

import pytest

import vdev
from vdev import config
from vdev.config.loader import FileTexts, read_text
from vdev.config.presets import Preset, load_preset, preset_names
from vdev.errors import ConfigError
from vdev.model.device import IdStyle
from vdev.model.geometry import LayoutError, layout, repeated
from vdev.model.problem import did_you_mean
from vdev.model.virtual import VirtualDevices
from vdev.planning.partitions import place

GIB = 2**30
OURS = preset_names()


def links(preset):
    return VirtualDevices().resolved(preset, count=preset.count).links


def path_of(node, index):
    """The path of a preset's node for the device with this index."""
    return node.path.render({"index": str(index + node.first_index)})


# --- presets of vdev --------------------------------------------------------------------------------------------------


def test_every_value_has_a_source(subtests):
    for name in OURS:
        with subtests.test(name=name):
            text = (FilePath(vdev.__file__).parent / "presets" / f"{name}.yaml").read_text()
            model = Preset.model_validate(read_text(text, name).root)
            keys = {type(model).model_fields[field].alias for field in model.model_fields_set}
            named_elsewhere = {"description", "sources", "unverified", "resource", "idStyle", "visibleDevicesEnv"}
            assert not keys - named_elsewhere - model.sources.keys()
            assert all(key.partition(".")[0] in keys | named_elsewhere for key in model.unverified)


def test_documented_presets_exist():
    assert {
        *("a100-sxm4-40gb", "a100-sxm4-80gb", "a100-pcie-40gb", "a100-pcie-80gb", "a30", "l40s", "t4"),
        *("h100-sxm5-80gb", "h100-pcie-80gb", "h100-nvl", "h200", "b200", "gb200"),
        *("rtx-pro-6000", "h100-96gb", "h20", "gh200-96gb", "gh200-144gb", "gb200-189gb", "b300", "gb300"),
        *("l4", "a10", "a40", "v100-sxm2-16gb", "v100-sxm2-32gb", "mi250", "mi355x", "nvidia-gpu"),
        *("mi300x", "mi325x", "gaudi2", "gaudi3", "tpu-v5e-8", "tpu-v6e-8"),
        *("dgx-a100", "dgx-h100", "mi300x-8"),
    } <= set(OURS)


SEVEN = {
    # compute slices, memory slices, count, placements: `nvidia-smi mig -lgip` and `-lgipp`
    "1g": (1, 1, 7, (0, 1, 2, 3, 4, 5, 6)),
    "1g+me": (1, 1, 1, (0, 1, 2, 3, 4, 5, 6)),
    "1g wide": (1, 2, 4, (0, 2, 4, 6)),
    "2g": (2, 2, 3, (0, 2, 4)),
    "3g": (3, 4, 2, (0, 4)),
    "4g": (4, 4, 1, (0,)),
    "7g": (7, 8, 1, (0,)),
}
MIG = {
    "a100-sxm4-40gb": "1g.5gb 1g.5gb+me 1g.10gb 2g.10gb 3g.20gb 4g.20gb 7g.40gb",
    "a100-pcie-40gb": "1g.5gb 1g.5gb+me 1g.10gb 2g.10gb 3g.20gb 4g.20gb 7g.40gb",
    "a100-sxm4-80gb": "1g.10gb 1g.10gb+me 1g.20gb 2g.20gb 3g.40gb 4g.40gb 7g.80gb",
    "a100-pcie-80gb": "1g.10gb 1g.10gb+me 1g.20gb 2g.20gb 3g.40gb 4g.40gb 7g.80gb",
    "h100-sxm5-80gb": "1g.10gb 1g.10gb+me 1g.20gb 2g.20gb 3g.40gb 4g.40gb 7g.80gb",
    "h100-pcie-80gb": "1g.10gb 1g.10gb+me 1g.20gb 2g.20gb 3g.40gb 4g.40gb 7g.80gb",
    "h100-nvl": "1g.12gb 1g.12gb+me 1g.24gb 2g.24gb 3g.47gb 4g.47gb 7g.94gb",
    "h200": "1g.18gb 1g.18gb+me 1g.35gb 2g.35gb 3g.71gb 4g.71gb 7g.141gb",
    "b200": "1g.23gb 1g.23gb+me 1g.45gb 2g.45gb 3g.90gb 4g.90gb 7g.180gb",
    "gb200": "1g.23gb 1g.23gb+me 1g.47gb 2g.47gb 3g.93gb 4g.93gb 7g.186gb",
    "gb200-189gb": "1g.24gb 1g.24gb+me 1g.47gb 2g.47gb 3g.95gb 4g.95gb 7g.189gb",
    "h100-96gb": "1g.12gb 1g.12gb+me 1g.24gb 2g.24gb 3g.48gb 4g.48gb 7g.96gb",
    "h20": "1g.12gb 1g.12gb+me 1g.24gb 2g.24gb 3g.48gb 4g.48gb 7g.96gb",
    "gh200-96gb": "1g.12gb 1g.12gb+me 1g.24gb 2g.24gb 3g.48gb 4g.48gb 7g.96gb",
    "gh200-144gb": "1g.18gb 1g.18gb+me 1g.36gb 2g.36gb 3g.72gb 4g.72gb 7g.144gb",
    "b300": "1g.34gb 1g.34gb+me 1g.67gb 2g.67gb 3g.135gb 4g.135gb 7g.269gb",
    "gb300": "1g.35gb 1g.35gb+me 1g.70gb 2g.70gb 3g.139gb 4g.139gb 7g.278gb",
}
FOUR = ("a30", "rtx-pro-6000")  # compute slices


def test_the_grid_of_seven_compute_slices(subtests):
    """These MIG devices have the same grid of eight memory slices, with different profile names."""
    for name in MIG:
        with subtests.test(name=name):
            geometry = load_preset(name).partitioning
            found = {
                profile.name: (profile.compute, profile.slices, profile.max, profile.placements)
                for profile in geometry.profiles.values()
            }
            assert (8, 7, dict(zip(MIG[name].split(), SEVEN.values(), strict=True))) == (
                geometry.slices,
                geometry.compute,
                found,
            )


def test_all_layouts_have_the_maximum_count(subtests):
    """all-<profile> has the count that `nvidia-smi mig -lgip` shows, and fits."""
    for name in [*MIG, *FOUR]:
        with subtests.test(name=name):
            geometry = load_preset(name).partitioning
            for profile in geometry.profiles.values():
                assert profile.max == len(place(geometry, layout(geometry, f"all-{profile.name}")))


def test_devices_that_cannot_be_partitioned(subtests):
    cases = ["l40s", "l4", "a10", "a40", "v100-sxm2-16gb", "t4", "mi250", "gaudi2", "gaudi3", "tpu-v5e", "tpu-v6e"]
    for name in cases:
        with subtests.test(name=name):
            assert load_preset(name).partitioning is None


@pytest.mark.parametrize(("name", "memory"), [("mi300x", 192), ("mi325x", 256)])
@pytest.mark.parametrize(
    ("mode", "count"),
    [
        ("spx_nps1", 1),
        ("dpx_nps1", 2),
        ("dpx_nps2", 2),
        ("qpx_nps1", 4),
        ("qpx_nps4", 4),
        ("cpx_nps1", 8),
        ("cpx_nps4", 8),
    ],
)
def test_modes_of_amd(name, memory, mode, count):
    """Each mode divides the device and its memory into equal parts."""
    geometry = load_preset(name).partitioning
    placements = place(geometry, layout(geometry, mode))
    assert [memory * GIB // count] * count == [placement.profile.memory for placement in placements]


def test_an_rtx_pro_6000():
    """It has twelve memory slices and a limited number of media engines: +me.all takes all of them, -me none."""
    geometry = load_preset("rtx-pro-6000").partitioning
    found = place(geometry, ["2g.48gb", "1g.24gb-me", "1g.24gb+gfx"])
    assert list(range(12)) == sorted(each for placement in found for each in placement.slices)
    with pytest.raises(LayoutError, match="slices"):
        place(geometry, ["2g.48gb", "2g.48gb", "1g.24gb"])
    assert place(geometry, ["1g.24gb+me.all", "1g.24gb-me", "2g.48gb-me"])
    with pytest.raises(LayoutError, match=r"^1g.24gb needs 1 of engines-decoder, and those before it leave 0 of 4$"):
        place(geometry, ["1g.24gb+me.all", "1g.24gb"])


@pytest.mark.parametrize(
    ("name", "numa", "score"),
    [
        ("dgx-a100", (3, 3, 1, 1, 7, 7, 5, 5), 1200),
        ("dgx-h100", (0, 0, 0, 0, 1, 1, 1, 1), 1800),
        ("mi300x-8", (0, 0, 0, 0, 1, 1, 1, 1), 100),
    ],
)
def test_whole_nodes(name, numa, score):
    """They have eight devices that are all linked, on the NUMA nodes of the real board."""
    preset = load_preset(name)
    assert (8, numa, dict.fromkeys(permutations(range(8), 2), score)) == (preset.count, preset.numa, links(preset))


def test_a_node_has_the_values_of_its_model():
    node, model = load_preset("dgx-a100"), load_preset("a100-sxm4-40gb")
    assert (
        model.memory,
        model.partitioning,
        {**model.attributes, "machine": node.attributes["machine"]},
        IdStyle.NVIDIA,
    ) == (node.memory, node.partitioning, node.attributes, node.id_style)


@pytest.mark.parametrize(
    ("name", "index", "paths"),
    [
        (
            "t4",
            2,
            ["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset", "/dev/nvidia2"],
        ),
        ("mi300x", 3, ["/dev/kfd", "/dev/dri/card3", "/dev/dri/renderD131"]),
        ("gaudi3", 7, ["/dev/accel/accel7", "/dev/accel/accel_controlD7"]),
        ("tpu-v5e-8", 0, []),
    ],
)
def test_device_nodes(name, index, paths):
    """They are those that the vendor's plugin hands out, with the driver's numbers."""
    assert paths == [path_of(node, index) for node in load_preset(name).device_nodes]


# --- mig-parted's default file ----------------------------------------------------------------------------------------

# NVIDIA/mig-parted bd7160f4, deployments/systemd/config-default.yaml: 81 configurations. Those that cut every GPU of a
# # node into one profile are named all-<profile> there, with '.' for '+'.
UNIFORM = """
1g.5gb+me=1 1g.5gb=7 1g.6gb+me=1 1g.6gb=4 1g.10gb+me=1 1g.12gb+me=1 1g.12gb=7 1g.18gb+me=1 1g.18gb=7 1g.20gb=4
1g.23gb+me=1 1g.23gb=7 1g.24gb+gfx=4 1g.24gb+me.all=1 1g.24gb+me=1 1g.24gb-me=4 1g.24gb=4 1g.34gb+me=1
1g.34gb=7 1g.35gb+me=1 1g.36gb=4 1g.45gb=4 1g.47gb=4 1g.67gb=4 1g.70gb=4 2g.10gb=3 2g.12gb+me=1 2g.12gb=2
2g.20gb=3 2g.24gb=3 2g.35gb=3 2g.36gb=3 2g.45gb=3 2g.47gb=3 2g.48gb+gfx=2 2g.48gb+me.all=1 2g.48gb-me=2
2g.48gb=2 2g.67gb=3 2g.70gb=3 3g.20gb=2 3g.40gb=2 3g.47gb=2 3g.48gb=2 3g.71gb=2 3g.72gb=2 3g.90gb=2 3g.93gb=2
3g.95gb=2 3g.135gb=2 3g.139gb=2 4g.20gb=1 4g.24gb=1 4g.40gb=1 4g.47gb=1 4g.48gb=1 4g.71gb=1 4g.72gb=1
4g.90gb=1 4g.93gb=1 4g.95gb=1 4g.96gb+gfx=1 4g.96gb=1 4g.135gb=1 4g.139gb=1 7g.40gb=1 7g.80gb=1 7g.94gb=1
7g.96gb=1 7g.141gb=1 7g.144gb=1 7g.180gb=1 7g.186gb=1 7g.189gb=1 7g.269gb=1 7g.278gb=1
"""
BY_DEVICE = {
    "all-1g.10gb": {
        "2330 2331 2322 20B2 20B5 20F3 20F5 2324": {"1g.10gb": 7},
        "20B0 20B1 20F1 20F6": {"1g.10gb": 4},
    },
    "all-1g.35gb": {"2335": {"1g.35gb": 4}, "31C2": {"1g.35gb": 7}},
    "all-balanced": {
        "2941": {"1g.23gb": 2, "2g.47gb": 1, "3g.93gb": 1},
        "31C2": {"1g.35gb": 2, "2g.70gb": 1, "3g.139gb": 1},
        "2BB5": {"1g.24gb": 2, "2g.48gb": 1},
        "2901": {"1g.23gb": 2, "2g.45gb": 1, "3g.90gb": 1},
        "3182": {"1g.34gb": 2, "2g.67gb": 1, "3g.135gb": 1},
        "2348": {"1g.18gb": 2, "2g.36gb": 1, "3g.72gb": 1},
        "2335 233B": {"1g.18gb": 2, "2g.35gb": 1, "3g.71gb": 1},
        "2321 233A": {"1g.12gb": 2, "2g.24gb": 1, "3g.47gb": 1},
        "2330 2331 2322 20B2 20B5 20F3 20F5 2324": {"1g.10gb": 2, "2g.20gb": 1, "3g.40gb": 1},
        "20B0 20B1 20F1 20F6": {"1g.5gb": 2, "2g.10gb": 1, "3g.20gb": 1},
        "20B7": {"1g.6gb": 2, "2g.12gb": 1},
        "2342 233D 20B6 2329": {"1g.12gb": 2, "2g.24gb": 1, "3g.48gb": 1},
    },
}
NO_PARTS = ("all-disabled", "all-enabled")


def can_be_cut(preset, counts):
    try:
        place(preset.partitioning, repeated(counts))
    except LayoutError:
        return False
    return True


def test_every_configuration_of_mig_parted_fits_a_preset():
    """A configuration for certain PCI device ids fits a preset with such an id."""
    presets = [preset for name in OURS if (preset := load_preset(name)).partitioning]
    configurations = {}
    for item in UNIFORM.split():
        profile, _, count = item.partition("=")
        configurations[f"all-{profile.replace('+', '.')}"] = {"": {profile: int(count)}}
    configurations |= BY_DEVICE
    assert 81 == len(configurations) + len(NO_PARTS)

    unfit = []
    for name, items in configurations.items():
        for ids, counts in items.items():
            meant = [each for each in presets if not ids or each.attributes.get("pciDeviceId", "")[2:6] in ids.split()]
            if not any(can_be_cut(each, counts) for each in meant):
                unfit.append((name, ids, counts))
    assert [] == unfit


# --- presets of users -------------------------------------------------------------------------------------------------


@pytest.fixture
def own(tmp_path):
    """Write files into a directory of presets. Returns the list of directories."""

    def write(**files):
        for name, text in files.items():
            (tmp_path / f"{name}.yaml").write_text(text)
        return [tmp_path]

    return write


def test_a_users_preset_has_every_key(own):
    dirs = own(
        npu="""
resource: acme.dev/npu
count: 3
memory: 16Gi
numa: [0, 0, 1]
attributes: {model: Acme X1, version: 8.10}
links: [[2, 0]]
deviceNodes: [{path: "/dev/acme{index}", firstIndex: 1}]
partitionNodes: []
partitioning: {slices: 4, profiles: {1x.4gb: {slices: 1, memory: 4Gi}}}
"""
    )
    preset = load_preset("npu", FileTexts(preset_dirs=dirs))
    assert ("npu", 3, 16 * GIB, (0, 0, 1), {(0, 2): 100, (2, 0): 100}, {"model": "Acme X1", "version": "8.10"}) == (
        preset.name,
        preset.count,
        preset.memory,
        preset.numa,
        links(preset),
        preset.attributes,
    )
    assert (["/dev/acme1"], (), "1x.4gb") == (
        [path_of(node, 0) for node in preset.device_nodes],
        preset.nodes_of_partitions,
        next(iter(preset.partitioning.profiles)),
    )


def test_a_users_preset_overrides_one_of_vdev(own):
    """The other presets of vdev stay available."""
    dirs = own(t4="memory: 8Gi", npu="memory: 1Gi")
    assert {"t4", "npu", "a100-sxm4-40gb"} <= set(preset_names(FileTexts(preset_dirs=dirs)))
    assert (8 * GIB, 40 * GIB, 16 * GIB) == (
        load_preset("t4", FileTexts(preset_dirs=dirs)).memory,
        load_preset("a100-sxm4-40gb", FileTexts(preset_dirs=dirs)).memory,
        load_preset("t4").memory,
    )


def test_a_users_preset_may_be_based_on_one_of_vdev(own):
    """It has only the differences; attributes are merged."""
    preset = load_preset(
        "lab", FileTexts(preset_dirs=own(lab="base: dgx-a100\nlinkScore: 600\nattributes: {rack: r1, model: Lab}"))
    )
    assert (40 * GIB, 8, 600, "r1", "Lab", "ampere") == (
        preset.memory,
        preset.count,
        links(preset)[0, 1],
        preset.attributes["rack"],
        preset.attributes["model"],
        preset.attributes["architecture"],
    )


def test_links_as_scores(own):
    """A list for each device with a number for each device is a table of scores."""
    text = "count: 3\nlinks: [[0, 100, 0], [100, 0, 50], [0, 50, 0]]"
    assert {(0, 1): 100, (1, 0): 100, (1, 2): 50, (2, 1): 50} == links(
        load_preset("a", FileTexts(preset_dirs=own(a=text)))
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("memori: 4Gi", "a.yaml:1:1: memori: unknown key 'memori'; did you mean 'memory'? allowed: base, description"),
        ("memory: 4GB", "a.yaml:1:9: memory: '4GB' has the unknown suffix 'GB'; did you mean 'G'?"),
        ("count: '4'", "a.yaml:1:8: count: expected a whole number, got the string '4'; remove the quotes"),
        ("idStyle: uuid", "a.yaml:1:10: idStyle: the string 'uuid' is not allowed here; expected name or nvidia"),
        ("numa: 1", "a.yaml:1:7: numa: expected a list, got the number 1"),
        ("count: 3\nnuma: [0, 1]", "a.yaml:2:7: numa: 2 NUMA nodes for 3 devices; give one for all devices, or"),
        ("numa: [0, 1]", "a.yaml:1:7: numa: 2 NUMA nodes for any number of devices"),
        ("links: [[0, 1]]", "a.yaml:1:10: links[0][0]: there is no device 0; links need a count"),
        (
            "count: 2\nlinks: [[0, 1], [2, 0]]",
            "a.yaml:2:18: links[1][0]: the score of 1 with 0 is 2, and of 0 with 1 it is 1",
        ),
        (
            "deviceNodes: [{path: /dev/x, pat: 1}]",
            "a.yaml:1:30: deviceNodes[0].pat: unknown key 'pat'; did you mean 'path'? allowed: path, permissions",
        ),
        ("deviceNodes: [{}]", "a.yaml:1:15: deviceNodes[0]: 'path' is missing"),
        (
            "partitioning:\n  slices: 4\n  profiles:\n    1x: {slices: 5, memory: 1Gi}",
            'a.yaml:4:18: partitioning.profiles["1x"].slices: 5 slices do not fit a device of 4',
        ),
        (
            "partitioning:\n  slices: 4\n  profiles:\n    1x: {slices: 1, memory: 1Gi, maxx: 1}",
            "a.yaml:4:34: partitioning.profiles[\"1x\"].maxx: unknown key 'maxx'; did you mean 'max'? allowed: slices,",
        ),
        ("memory: 1Gi\nmemory: 2Gi", "a.yaml:2:1: memory: key 'memory' is given twice"),
        ("base: a", "a.yaml:1:7: base: a preset cannot be based on itself: a -> a"),
        ("base: zzz", "a.yaml:1:7: base: unknown preset 'zzz'; known: a, a10, a100-pcie-40gb"),
        ("[]", "a.yaml:1:1: expected a mapping at the top of the file"),
    ],
)
def test_errors(own, text, expected):
    """Each has file, line and column, and a suggestion if there is one."""
    dirs = own(a=text)
    with pytest.raises(ConfigError) as refused:
        load_preset("a", FileTexts(preset_dirs=dirs))
    assert str(refused.value).startswith(f"{dirs[0]}/{expected}")


def test_all_errors_at_once(own):
    with pytest.raises(ConfigError) as refused:
        load_preset("a", FileTexts(preset_dirs=own(a="memory: x\ncount: y")))
    assert 2 == len(refused.value.problems)


def test_errors_of_a_preset_are_reported_once(own):
    """They are at their places in its file, after those of the configuration."""
    dirs = own(a="memory: x\ncount: y")
    entries = "".join(f"  - {{name: {each}, resource: a.b/{each}, virtual: {{preset: a}}}}\n" for each in "xy")
    with pytest.raises(ConfigError) as refused:
        config.load_text(f"devices:\n{entries}shraing: {{}}\n", "f", preset_dirs=dirs)
    places = [str(each.place) for each in refused.value.problems]
    assert ["f:4:1", f"{dirs[0]}/a.yaml:1:9", f"{dirs[0]}/a.yaml:2:8"] == places


@pytest.mark.parametrize("name", ["zzz", "../presets/t4", ""])
def test_unknown_names(name):
    """The error lists known names; a name is never used as a path."""
    with pytest.raises(ConfigError) as refused:
        load_preset(name)
    first = f"known: {', '.join(OURS[:10])} and {len(OURS) - 10} more; see vdev presets"
    assert (f"unknown preset {name!r}", first) == (refused.value.problems[0].message, refused.value.problems[0].hint)


def test_a_misspelled_name_has_a_suggestion():
    with pytest.raises(ConfigError, match="did you mean 'a100-sxm4-40gb'"):
        load_preset("a100-smx4-40gb")
    with pytest.raises(ConfigError, match="did you mean 'a100-sxm4-40gb'"):
        load_preset("A100-SXM4-40GB")


@pytest.mark.parametrize(
    ("name", "family"), [("a100", 4), ("H100", 4), ("gaudi", 2), ("tpu", 6), ("dgx", 2), ("a1x", 0), ("", 0)]
)
def test_a_family_has_all_its_models_as_suggestions(name, family):
    offered = did_you_mean(name, OURS) if name not in OURS else ""
    assert family == sum(each.startswith(name.lower()) and repr(each) in offered for each in OURS)


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("nvidia-h100", "h100-sxm5-80gb"),
        ("NVIDIA A100", "a100-sxm4-80gb"),
        ("amd-mi300", "mi300x"),
        ("nvidia-gb200", "gb200"),
    ],
)
def test_a_name_with_its_vendor_has_a_suggestion(name, near):
    """By spelling alone, dgx-h100 would be closer to nvidia-h100 than the model."""
    with pytest.raises(ConfigError) as refused:
        load_preset(name)
    assert repr(near) in str(refused.value)


def test_a_missing_directory(tmp_path):
    with pytest.raises(ConfigError, match="nowhere: the presets directory cannot be read: No such file or directory"):
        load_preset("t4", FileTexts(preset_dirs=[tmp_path / "nowhere"]))
