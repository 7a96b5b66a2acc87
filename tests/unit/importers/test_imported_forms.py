"""Configurations of other plugins: they are detected, unwrapped and converted to valid vdev files."""

import json
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.kit.previews import preview
from vdev import config
from vdev.errors import ConfigError, UsageError
from vdev.importers import FORMS, ImportOptions, imported, recognized
from vdev.importers.draft import Draft
from vdev.model.telemetry import SmiTool
from vdev.planning.plan import prove

GENERIC = "devices: [{name: fuse, groups: [{count: 10, paths: [{path: /dev/fuse}]}]}]"
SMARTER = "- {devicematch: '^video[0-9]*$', nummaxdevices: 10}"
SRIOV = json.dumps({"resourceList": [{"resourceName": "vf", "selectors": {"vendors": ["8086"]}}]})
POOLS = "nodePools: {default: {gpuProduct: Tesla-K80, gpuCount: 2, gpuMemory: 11441}}"
MIG = "{version: v1, mig-configs: {all-1g.5gb: [{devices: all, mig-enabled: true, mig-devices: {1g.5gb: 7}}]}}"
NVIDIA = "{version: v1, sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}}"


def config_map(**data: str) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "data": data})


def files(text: str, **wishes: object) -> list[Draft]:
    made = imported(text, "f", ImportOptions(**wishes))
    for each in made:
        assert not [problem for problem in config.load_text(each.text).problems if problem.is_error]
    return made


def only(text: str, **wishes: object) -> dict[str, object]:
    (made,) = files(text, **wishes)
    tree = yaml.safe_load(made.text)
    assert isinstance(tree, dict)
    return tree


def warnings(text: str, **wishes: object) -> str:
    return "\n".join(warning for each in files(text, **wishes) for warning in each.warnings)


def named(text: str, warning: str) -> dict[str, object]:
    """The result of an import that has this warning, and the same in a comment."""
    (made,) = files(text)
    lines = [line.strip() for line in made.text.splitlines()]
    assert warning in "\n".join(made.warnings)
    assert warning in " ".join(line.removeprefix("#").strip() for line in lines if line.startswith("#"))
    return yaml.safe_load(made.text)


FORM_OF = {
    "generic-device-plugin": (
        GENERIC,
        "name: x\ngroups: [{paths: [{path: /dev/x}]}]",
        f"genericDevicePlugin: {{{GENERIC}}}",
    ),
    "smarter-device-manager": (SMARTER, f"config:\n  {SMARTER}"),
    "sriov": (SRIOV,),
    "fake-gpu-operator": (POOLS, f"topology: {{{POOLS}}}", f"cluster: {{{POOLS}}}"),
    "mig-parted": (MIG,),
    "nvidia": (f"config: {{map: {{a: {NVIDIA!r}}}}}",),
}


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, texts in FORM_OF.items() for text in texts])
def test_the_form_is_detected_by_content(name: str, text: str) -> None:
    """In a file, in a ConfigMap, and in a list of objects."""
    for each in (
        text,
        config_map(**{"some.yaml": text}),
        json.dumps({"kind": "List", "apiVersion": "v1", "items": [json.loads(config_map(x=text))]}),
    ):
        assert recognized(each) == FORMS[name].title
        assert files(each)


def test_other_texts_have_no_form(subtests):
    """They are vdev's own form, NVIDIA's file, which vdev reads itself, and invalid YAML."""
    cases = ["", "a: 1", "[1, 2]", "version: v1\ndevices: []", NVIDIA, "kind: Pod\napiVersion: v1", "\t", "*x"]
    for text in cases:
        with subtests.test(text=text):
            assert not recognized(text)


@pytest.mark.parametrize("other", ["{version: v1, sharring: {}}", "sharing: {a", "[a: 1"])
def test_other_keys_of_a_config_map_are_named(other):
    found = warnings(config_map(a=NVIDIA, b=other))
    assert "'b' is left out, because it is not a valid configuration of NVIDIA's device plugin" in found
    assert "'a'" not in found


@pytest.mark.parametrize("other", ["", "# nothing", "---", "#!/bin/sh\nif [", "-----BEGIN CERTIFICATE-----\nMII\n"])
@pytest.mark.parametrize("text", [texts[0] for texts in FORM_OF.values()], ids=[*FORM_OF])
def test_keys_of_a_config_map_that_are_no_configuration_are_not_named(text, other):
    assert "left out, because" not in warnings(config_map(**{"a.yaml": text + "\n---\n", "b.sh": other}))


@pytest.mark.parametrize("text", ["mig-configs: {}", "nodePools: {}"])
def test_an_empty_configuration_beside_other_keys_is_refused(text):
    with pytest.raises(UsageError, match="it declares nothing"):
        files(config_map(**{"a.yaml": text, "b": "c: 1"}))


# --- generic-device-plugin --------------------------------------------------------------------------------------------


def entry(group: str) -> dict[str, object]:
    (found,) = only(f"devices: [{{name: ab, groups: [{group}]}}]")["devices"]
    return found


@pytest.mark.parametrize(
    ("path", "item"),
    [
        ("path: /dev/tty*", {"path": "/dev/tty*", "permissions": "mrw"}),
        (
            "path: /dev/x, permissions: r",
            {"path": "/dev/x", "permissions": "r", "kinds": ["char", "block", "directory"]},
        ),
        ("path: /opt/x, type: Mount, readOnly: true", {"path": "/opt/x", "type": "mount", "readOnly": True}),
        ("path: /dev/t*, mountPath: /dev/s/", {"path": "/dev/t*", "containerPath": "/dev/s/", "permissions": "mrw"}),
        (
            "path: /dev/t*, limit: 3, optional: true",
            {"path": "/dev/t*", "permissions": "mrw", "limit": 3, "optional": True},
        ),
    ],
)
def test_a_path_of_generic_device_plugin(path: str, item: dict[str, object]) -> None:
    assert [item] == entry(f"{{paths: [{{{path}}}]}}")["glob"]


def test_usb_devices_of_a_group_are_one_device() -> None:
    """One of several USB devices is enough."""
    one = {"vendor": "1209", "product": "000f", "serial": "5[*]"}
    assert (one, "all") == (entry('{usb: [{vendor: "1209", product: "000F", serial: "5*"}]}')["usb"], "all")
    two = entry('{usb: [{vendor: "1209", product: "f"}, {vendor: "1a86", product: "7523"}]}')
    assert [True, True] == [each["optional"] for each in two["usb"]]
    assert "all" == two["groupBy"]


def test_overlapping_paths_are_shared() -> None:
    both = ("{name: ab, groups: [{paths: [{path: /dev/snd}]}]}", "{name: cd, groups: [{paths: [{path: /dev/snd/x}]}]}")
    text = f"devices: [{', '.join(both)}]"
    assert [None, True] == [each.get("shared") for each in only(text)["devices"]]


def test_the_defaults_of_microshift() -> None:
    """The text of `microshift show-config --mode default`; usbs without values are ignored."""
    group = {
        "count": 1,
        "paths": [{"limit": 1, "mountPath": "/dev/ttyACM0", "path": "/dev/ttyACM0", "permissions": "mrw"}],
        "usbs": [{"product": "", "serial": "", "vendor": ""}],
    }
    block = {"devices": [{"name": "serial", "groups": [group]}], "domain": "", "status": "Disabled"}
    text = json.dumps({"genericDevicePlugin": block})

    (device,) = only(text)["devices"]

    assert device["resource"] == "device.microshift.io/serial"
    assert device["glob"][0]["path"] == "/dev/ttyACM0"
    assert "it is Disabled in MicroShift" in warnings(text)


def test_flags_in_a_manifest() -> None:
    args = [
        "--domain",
        "example.com",
        "--device",
        "name: fuse\ngroups: [{paths: [{path: /dev/fuse}]}]",
        "--log-level=info",
    ]
    spec = {"template": {"spec": {"containers": [{"name": "x", "args": args}]}}}
    text = "kind: Namespace\napiVersion: v1\n---\n" + json.dumps(
        {"apiVersion": "apps/v1", "kind": "DaemonSet", "spec": spec}
    )
    assert ["example.com/fuse"] == [each["resource"] for each in only(text)["devices"]]


@pytest.mark.parametrize(
    ("group", "warning"),
    [
        ("{paths: [{path: /dev/a, type: device}]}", "type 'device' is neither Device nor Mount"),
        ('{paths: [{path: /dev/a}], usb: [{vendor: "1", product: "1"}]}', "has both paths and usb"),
        ("{usb: [{vendor: xyz, product: '1'}]}", "vendor: is missing or not a hexadecimal id"),
        ("{paths: [{path: dev/a}]}", "'dev/a' is not an absolute path"),
        ("{paths: [{path: '/dev/[a'}]}", "the '[' in '[a' is never closed"),
        ("{count: many, paths: [{path: /dev/a}]}", "count: 'many' is not a number"),
        ("{paths: [{path: /dev/a, type: {}}], count: [1]}", "count: ['1'] is not a number"),
        ("{paths: [{path: /dev/a, permissions: [rw]}]}", "permissions: ['rw'] is not a text"),
        ("{}", "the group has no paths and no usb"),
        ("{paths: [{path: '/dev/a*'}, {path: '/dev/b*'}]}", "vdev pairs matches in the order"),
        ("{paths: [{path: '/dev/a*'}, {path: /dev/b, optional: true}]}", "an optional path with fewer matches"),
    ],
)
def test_unconverted_parts_of_a_group_are_named(group: str, warning: str) -> None:
    """The rest is converted."""
    ok = "{name: ok, groups: [{paths: [{path: /dev/z}]}]}"

    devices = named(f"devices: [{ok}, {{name: ab, groups: [{group}]}}]", warning)["devices"]

    assert "ok" in [each["name"] for each in devices]


# --- the others -------------------------------------------------------------------------------------------------------


def test_each_node_of_smarter_device_manager_is_a_resource() -> None:
    """It has a fixed name or a template, and replicas."""
    made = only("- {devicematch: ^snd$, nummaxdevices: 20}\n- {devicematch: '^ttyS[0-9]+$', nummaxdevices: 1}")

    assert ["smarter-devices/snd", "smarter-devices/{attributes.below}"] == [
        each["resource"] for each in made["devices"]
    ]
    assert [{"name": "smarter-devices/snd", "replicas": 20, "devices": ["snd"]}] == made["sharing"]["timeSlicing"][
        "resources"
    ]
    assert "Jetson" in warnings("- {devicematch: nvidia-gpu, nummaxdevices: 2}\n" + SMARTER)
    assert "has no equivalent path patterns" in warnings("- {devicematch: '(?i)x', nummaxdevices: 2}\n" + SMARTER)


def selector(**given: object) -> list[dict[str, object]]:
    text = json.dumps({"resourceList": [{"resourceName": "my_vf", "resourcePrefix": "a.org", "selectors": given}]})
    return [each["sysfs"] | {"container": each["container"]} for each in only(text)["devices"]]


def test_selectors_of_sriov() -> None:
    """Conditions become attributes. Alternatives, and kinds of drivers, become entries."""
    first, second = selector(vendors=["8086"], drivers=["iavf", "vfio-pci"], pfNames=["eth0#0,2-3"])
    assert ["vfio"] == first["children"]
    assert {"in": ["vfio-pci"]} == first["match"]["driver"]
    assert {"in": ["iavf"]} == second["match"]["driver"]
    assert {"in": ["0", "2", "3"]} == first["match"]["virtfn"]
    assert {"exists": True} == first["match"]["physfn/net/eth0"]
    assert {"env": {"PCIDEVICE_A_ORG_MY_VF": "{attributes.name}"}} == first["container"]
    assert 2 == len(selector(drivers=["iavf"], pfNames=["eth0", "eth1", "eth0#1"]))
    assert 3 == len(selector(vendors=["8086"]))
    (shared,) = selector(drivers=["iavf"], needVhostNet=True)
    assert ["/dev/vhost-net", "/dev/net/tun"] == [each["hostPath"] for each in shared["container"]["deviceNodes"]]


def test_selectors_of_sriov_as_text() -> None:
    as_text = json.loads(SRIOV)
    as_text["resourceList"][0]["selectors"] = json.dumps({"vendors": ["8086"]})

    assert only(json.dumps(as_text)) == only(SRIOV)


def test_properties_that_sysfs_does_not_have() -> None:
    text = json.dumps(
        {"resourceList": [{"resourceName": "a", "selectors": [{"pKeys": ["0x1"]}, {"drivers": ["iavf"]}]}]}
    )
    assert "resourceList[0].selectors[0].pKeys: sysfs does not show this property" in warnings(text)
    assert 1 == len(only(text)["devices"])
    aux = {"resourceName": "b", "deviceType": "auxNetDevice"}
    both = json.dumps({"resourceList": [aux, {"resourceName": "a", "selectors": {"drivers": ["iavf"]}}]})
    assert "auxNetDevice devices of intel.com/b are not PCI devices" in warnings(both)


def test_pools_of_fake_gpu_operator() -> None:
    """Each pool becomes a file, in the old form and in the form with profiles."""
    text = """
nodePools:
  big: {gpuProduct: NVIDIA-A100-SXM4-80GB, gpuCount: 8, gpuMemory: 81920, otherDevices: [{name: a.dev/npu, count: 3}]}
  new: {gpu: {backend: fake, profile: h100, overrides: {device_count: 4}}, numa: {zones: 2}, resources: [{x.org/y: 2}]}
migStrategy: mixed
"""
    big, new = files(text)
    assert ("big", "new") == (big.name, new.name)
    first, second = yaml.safe_load(big.text), yaml.safe_load(new.text)
    assert {"preset": "a100-sxm4-80gb", "count": 8} == first["devices"][0]["virtual"]
    assert ("a.dev/npu", {"count": 3}) == (first["devices"][1]["resource"], first["devices"][1]["virtual"])
    assert {"preset": "h100-sxm5-80gb", "count": 4} == second["devices"][0]["virtual"]
    assert ["nvidia.com/gpu", "x.org/y"] == [each["resource"] for each in second["devices"]]
    assert {"migStrategy": "mixed"} == first["flags"]


@pytest.mark.parametrize(
    ("pool", "product", "memory", "count"),
    [
        ("{gpuProduct: Tesla-K80, gpuCount: 2, gpuMemory: 11441}", "Tesla-K80", "11441", "2"),
        ("{gpuProduct: NVIDIA-A2, gpuCount: 4, gpuMemory: 15356}", "NVIDIA-A2", "15356", "4"),
        ("{gpu: {profile: gb300}}", "NVIDIA-GB300", str(278 * 1024), "8"),
    ],
)
def test_the_identity_of_a_pool_is_kept(tmp_path: Path, pool: str, product: str, memory: str, count: str) -> None:
    """A product without a preset also has the labels, metrics and tool of an NVIDIA GPU."""
    (made,) = files(f"nodePools: {{default: {pool}}}")

    file = tmp_path / "made.yaml"
    file.write_text(made.text + "node: {labels: true}\n")
    labels = preview([file], node="node-1", host_root=tmp_path).labels
    assert (product, memory, count) == tuple(labels[f"nvidia.com/gpu.{key}"] for key in ("product", "memory", "count"))
    assert [] == made.warnings
    (entry,) = config.load_text(made.text + "telemetry: {}\n").spec.entries
    assert entry.is_nvidia
    assert SmiTool.NVIDIA is entry.smi_tool
    assert SmiTool.NVIDIA is entry.vendor


@pytest.mark.parametrize("text", [MIG, POOLS, NVIDIA])
def test_an_unknown_preset_is_an_error(text: str) -> None:
    with pytest.raises(ConfigError, match="unknown preset 'a100'; did you mean"):
        imported(text, "f", ImportOptions(preset="a100"))


def test_configurations_of_mig_parted() -> None:
    text = """
version: v1
mig-configs:
  all-disabled: [{devices: all, mig-enabled: false}]
  some:
    - {devices: [0, 1], mig-enabled: false}
    - {devices: [2], mig-enabled: true, mig-devices: {1g.10gb: 2, 3g.40gb: 1}}
"""
    disabled, some = files(text)
    assert "partitions" not in yaml.safe_load(disabled.text)["devices"][0]
    (device,) = yaml.safe_load(some.text)["devices"]
    assert {"preset": "a100-sxm4-80gb", "count": 3} == device["virtual"]
    assert {"2": {"1g.10gb": 2, "3g.40gb": 1}} == device["partitions"]
    chosen = files(text, preset="h100-sxm5-80gb", count=4)[1]
    assert {"preset": "h100-sxm5-80gb", "count": 4} == yaml.safe_load(chosen.text)["devices"][0]["virtual"]


def test_the_model_fits_the_partitions() -> None:
    """Common models come first."""
    item = "{devices: all, mig-enabled: true, mig-devices: {%s}}"
    for parts, preset in (
        ("1g.10gb: 4", "a100-sxm4-40gb"),
        ("1g.10gb: 7", "a100-sxm4-80gb"),
        ("1g.12gb: 7", "h100-nvl"),
        ("3g.48gb: 2", "gh200-96gb"),
        ("1g.24gb+gfx: 4", "rtx-pro-6000"),
    ):
        made = only(f"{{version: v1, mig-configs: {{x: [{item % parts}]}}}}")
        assert preset == made["devices"][0]["virtual"]["preset"]


def test_a_configuration_without_partitions_has_the_model_of_the_others() -> None:
    items = "all-disabled: [{devices: all, mig-enabled: false}]"
    h100 = "all-1g.10gb: [{device-filter: '0x233010DE', devices: all, mig-enabled: true, mig-devices: {1g.10gb: 7}}]"
    disabled, _ = files(f"mig-configs: {{{items}, {h100}}}")

    assert "preset: h100-sxm5-80gb" in disabled.text


def test_configurations_of_nvidias_plugin() -> None:
    item = "{name: gpu, rename: gpu.x, devices: [0], replicas: 4}"
    flags = "flags: {migStrategy: mixed, failOnInitError: no}"
    one = f"version: v1\n{flags}\nsharing: {{timeSlicing: {{resources: [{item}]}}}}"
    a, b = files(config_map(a=one, b=NVIDIA), preset="a100-sxm4-40gb", count=2)

    assert ("a", "b") == (a.name, b.name)
    tree = yaml.safe_load(a.text)
    assert [{"name": "gpu", "replicas": 4}] == tree["sharing"]["timeSlicing"]["resources"]
    assert {"migStrategy": "mixed", "failOnInitError": False} == tree["flags"]
    assert {"preset": "a100-sxm4-40gb", "count": 2} == tree["devices"][0]["virtual"]
    assert 2 == sum("is ignored by NVIDIA's plugin" in warning for warning in a.warnings)


def test_sharing_that_vdev_refuses_is_left_out(subtests) -> None:
    """NVIDIA's plugin accepts it."""
    cases = [
        (
            "timeSlicing: {resources: [{name: gpu, replicas: 3}, {name: gpu, replicas: 2}]}",
            "every device of nvidia.com/gpu is already",
        ),
        ("timeSlicing: {resources: [{name: gpu, replicas: 100000}]}", "400000 devices"),
        (
            "timeSlicing: {resources: [{name: gpu, devices: [0], replicas: 2}, {name: gpu, devices: ['0'], rename: b,"
            " replicas: 3}]}",
            "already",
        ),
        ("mps: {resources: [{name: gpu, replicas: 60}]}", "MPS serves at most 48 clients of a device"),
    ]
    for block, warning in cases:
        with subtests.test(block=block):
            (made,) = files(f"{{version: v1, sharing: {{{block}}}}}", preset="t4", count=4)
            assert warning in "\n".join(made.warnings)
            assert () == prove(config.load_text(made.text).spec)


def test_helm_values_of_nvidias_plugin() -> None:
    """They override the file, as in the chart; null and empty values are ignored."""
    one = "{version: v1, flags: {migStrategy: single, plugin: {deviceIDStrategy: index}}}"
    values = f"""
config: {{map: {{a: {one}, b: {{version: v1, flags: {{gdsEnabled: true}}}}}}, default: a, name: ""}}
migStrategy: mixed
deviceListStrategy: cdi-cri
failOnInitError: no
compatWithCPUManager: true
nvidiaDriverRoot: /run/nvidia/driver
gdrcopyEnabled: null
image: {{tag: v1}}
mps: {{root: /run/mps}}
nodeSelector: {{}}
"""
    a, b = files(values, preset="t4", count=1)

    plugin = {"passDeviceSpecs": True, "deviceListStrategy": "cdi-cri"}
    flags = {"migStrategy": "mixed", "failOnInitError": False, "nvidiaDriverRoot": "/run/nvidia/driver"}
    assert {**flags, "plugin": {**plugin, "deviceIDStrategy": "index"}} == yaml.safe_load(a.text)["flags"]
    assert {**flags, "plugin": plugin, "gdsEnabled": True} == yaml.safe_load(b.text)["flags"]
    assert ["image, mps have no counterpart here", "config.default has no counterpart here"] == a.warnings == b.warnings


NO_COUNTERPART = "has no counterpart here"


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        ("devices: [{name: a, odd: 1, groups: [{paths: [{path: /dev/a}]}]}]", f"devices[0].odd {NO_COUNTERPART}"),
        (
            "devices: [{name: a, groups: [{odd: 1, paths: [{path: /dev/a}]}]}]",
            f"devices[0].groups[0].odd {NO_COUNTERPART}",
        ),
        (
            "devices: [{name: a, groups: [{paths: [{path: /dev/a, odd: 1}]}]}]",
            f"devices[0].groups[0].paths[0].odd {NO_COUNTERPART}",
        ),
        ("- {devicematch: ^a$, nummaxdevices: 1, odd: 1}", f"[0].odd {NO_COUNTERPART}"),
        ("config: [{devicematch: ^snd$, nummaxdevices: 2}]\nnodeSelector: {a: b}", "nodeSelector"),
        (
            "resourceList: [{resourceName: a, odd: 1, selectors: {vendors: ['8086']}}]",
            f"resourceList[0].odd {NO_COUNTERPART}",
        ),
        (
            "resourceList: [{resourceName: a, selectors: {odd: 1}}]",
            f"resourceList[0].selectors.odd {NO_COUNTERPART}",
        ),
        (
            "resourceList: [{resourceName: a, additionalInfo: {x: 1}, selectors: {vendors: ['8086']}}]",
            "PCIDEVICE_INTEL_COM_A_INFO is JSON",
        ),
        ("{version: v1, flags: {migStrategy: none}, imex: {channelIDs: [0]}}", "virtual devices have no IMEX channels"),
        ("[{devicematch: ^a$, nummaxdevices: 0}, {devicematch: ^b$, nummaxdevices: 1}]", "^a$ has nummaxdevices 0"),
        ("{nodePools: {a: {gpuCount: 2, gpuMemory: 1000}}}", "the model of the GPUs is unknown"),
        ("{nodePools: {a: {gpu: {profile: best}}}}", "gpu.profile: 'best' is not a built-in profile"),
        ("{nodePools: {a: {gpuProduct: Tesla-T4, gpuCount: 2, colour: red}}}", "colour"),
        ("{nodePools: {a: {gpu: {profile: t4, speed: 3}}}}", "gpu.speed"),
        ("{nodePools: {a: {gpu: {profile: t4}, numa: {zones: 2, walls: 3}}}}", f"numa {NO_COUNTERPART}"),
        ("{nodePools: {a: {gpuProduct: Tesla-T4, gpuCount: 2}}, gpuOperator: {version: v1}}", "gpuOperator"),
        ("topology: {nodePools: {a: {gpuProduct: Tesla-T4, gpuCount: 2}}}\nmigFaker: {enabled: true}", "migFaker"),
        ("mig-configs: {a: [{devices: all, mig-enabled: false, odd: 1}]}", f"mig-configs.a[0].odd {NO_COUNTERPART}"),
        (
            "mig-configs: {x: [{devices: some, mig-enabled: true, mig-devices: {}}]}",
            "mig-configs.x[0].devices: expected all, or a list of indices, got the string 'some'",
        ),
        ("mig-configs: {x: [7]}", "mig-configs.x[0].devices: is missing"),
        ("config: {map: {a: {version: v1, flags: {migStrategy: none}, sharing: {fair: {}, x: 1}}}}", "sharing.x"),
        (
            "config: {map: {a: {version: v1, flags: {migStrategy: none},"
            " sharing: {timeSlicing: {resources: [{replicas: 4}]}}}}}",
            "sharing.timeSlicing.resources[0]: 'name' is missing",
        ),
        (
            "config: {map: {a: {version: v1, flags: {migStrategy: mixed},"
            " sharing: {mps: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}}}}",
            "sharing.mps: MPS does not work with migStrategy mixed",
        ),
        (
            f"config: {{map: {{a: {NVIDIA!r}}}}}\nmigStrategy: some",
            "flags.migStrategy: the string 'some' is not allowed here",
        ),
    ],
)
def test_unconverted_parts_are_named(text: str, warning: str) -> None:
    assert named(text, warning)


# --- any text ---------------------------------------------------------------------------------------------------------

KEYS = st.sampled_from(
    [
        *("devices", "device", "name", "groups", "paths", "path", "usb", "vendor", "product", "count", "limit"),
        *("optional", "type", "permissions", "mountPath", "domain", "devicematch", "nummaxdevices", "resourceList"),
        *("resourceName", "selectors", "vendors", "drivers", "pfNames", "nodePools", "gpuProduct", "gpuCount"),
        *("gpuMemory", "otherDevices", "gpu", "profile", "overrides", "numa", "zones", "mig-configs", "mig-devices"),
        *("mig-enabled", "flags", "sharing", "timeSlicing", "resources", "replicas", "mps", "kind", "apiVersion"),
        *("data", "items", "spec", "template", "containers", "args", "config", "map", "version", "x"),
    ]
)
WORDS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 2**40),
    st.floats(allow_nan=False),
    st.text(max_size=8),
    st.sampled_from(
        ["/dev/a*", "^a[0-9]*$", "all", "1g.5gb", "--device", "ConfigMap", "DaemonSet", "0:1", "eth0#1-2", "a{b", "#\n"]
    ),
)
TREES = st.recursive(
    WORDS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=5), max_leaves=25
)
SEEDS = st.sampled_from([text for texts in FORM_OF.values() for text in texts])


@given(TREES)
def test_any_tree_can_be_imported(tree: object) -> None:
    """It is refused, or converted to valid files."""
    _try(json.dumps(tree))


@given(SEEDS, st.data())
def test_any_edit_of_a_configuration_can_be_imported(text: str, data: st.DataObject) -> None:
    tree = yaml.safe_load(text)
    places: list[tuple[object, object]] = []
    pending = [tree]
    while pending:
        here = pending.pop()
        pairs = here.items() if isinstance(here, dict) else enumerate(here) if isinstance(here, list) else ()
        for key, value in pairs:
            places.append((here, key))
            pending.append(value)
    holder, key = data.draw(st.sampled_from(places))
    holder[key] = data.draw(TREES)
    _try(json.dumps(tree))


def _try(text: str) -> None:
    for form in ("", *FORMS):
        try:
            made = imported(text, "f", ImportOptions(form=form))
        except (UsageError, ConfigError):
            pass
        else:
            for each in made:
                config.load_text(each.text)
    recognized(text)


@given(st.text(max_size=40))
def test_any_text_can_be_imported(text: str) -> None:
    _try(text)
