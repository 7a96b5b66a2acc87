"""Errors of the configuration: each has its place, and all are reported at once, in the order of the file."""

import re
from pathlib import Path

import pytest

from tests.kit.refused import check_refusals, refusals
from vdev import config
from vdev.errors import ConfigError

HEAD = "devices:\n  - name: a\n    resource: example.com/a\n    "  # callers append line 4


def test_errors_in_an_entry(subtests):
    """The message has the place or path, what is wrong, and what is allowed."""
    cases = [
        ("virtual: {count: 0}", "f:4:22: devices[0].virtual.count: 0 is out of range; expected 1 to 200000"),
        ("virtual: {numa: [0, 1, 2], count: 2}", "f:4:21: devices[0].virtual.numa: 3 NUMA nodes for 2 devices"),
        ("virtual: {count: 3, links: [[0, 3]]}", "links[0][1]: there is no device 3; expected 0 to 2"),
        ("virtual: {count: 3, links: [[1, 1]]}", "links[0][1]: device 1 is in this group twice"),
        ("virtual: {count: 3, links: [[1]]}", "links[0]: a group of linked devices needs at least two indices"),
        ("virtual: {count: 2, links: [[0, 1], [2, 0]]}", "links[1][0]: the score of 1 with 0 is 2"),
        ("virtual: {count: 2, links: [[5, 1], [1, 0]]}", "links[0][0]: device 0 is linked to itself"),
        ("virtual: {count: 300, links: [[0, 1]]}", "links: there are 300 devices; links are for at most 256"),
        ("virtual: {preset: a100-sxm4-40g}", "unknown preset 'a100-sxm4-40g'; did you mean 'a100-sxm4-40gb'?"),
        ("virtual: {preset: dgx-a100, count: 9}", "count: the preset 'dgx-a100' has only 8 devices, not 9"),
        ("virtual: {memory: 16Q}", "virtual.memory: '16Q' has the unknown suffix 'Q'"),
        ("virtual: {}\n    glob: /dev/x", "devices[0]: virtual and glob exclude each other; give exactly one of"),
        ("exclude: [/dev/x]", "devices[0]: no device source"),
        ("virtual: {}\n    groupBy: name", "f:5:5: devices[0].groupBy: groupBy is for glob and usb only"),
        ("virtual: {}\n    shared: true", "f:5:5: devices[0].shared: shared is for glob, sysfs and usb only"),
        (
            'glob: [{path: /dev/a*, containerPath: "/c/*"}]',
            "containerPath: '/c/*' has a '*', which is not a wildcard here but a part of the name",
        ),
        (
            'glob: [{path: /dev/a?, containerPath: "/c/a?"}]',
            "containerPath: '/c/a?' has a '?', which is not a wildcard here but",
        ),
        (
            "virtual: {}\n    container: {deviceNodes: [{hostPath: /dev/tty*}]}",
            "deviceNodes[0].hostPath: '/dev/tty*' has a '*'",
        ),
        ("glob: ttyUSB*", "f:4:11: devices[0].glob: 'ttyUSB*' is not an absolute path"),
        ("glob: /dev/../etc/*", "contains '..'"),
        ('usb: {vendor: "1050", containerPath: "/c\\n"}', "'/c\\n' has a line break or another control character"),
        ("glob: []", "devices[0].glob: the list is empty"),
        ("glob: [{path: /dev/a, permissions: rwx}]", "permissions: 'rwx' is not a set of permissions"),
        ("glob: [{path: /dev/a, permissions: rr}]", "permissions: 'rr' is not a set of permissions"),
        ("glob: [{path: /d, type: mount, permissions: r}]", "permissions: permissions is for type device only"),
        ("glob: [{path: /d, readOnly: true}]", "readOnly: readOnly is for type mount only"),
        (
            "glob: [{path: /d, type: Device}]",
            "type: the string 'Device' is not allowed here; did you mean 'device'? expected device or mount",
        ),
        ('usb: [{vendor: "1050"}, {optional: true}]', "devices[0].usb[1]: every USB device would match"),
        ('usb: [{vendor: "1050"}, {vendor: 1050}]', "devices[0].usb[1].vendor: expected a string"),
        ('usb: {vendor: "1050"}\n    groupBy: name', "groupBy name is for glob only; expected position"),
        (
            'usb: [{vendor: "1050", containerPath: /k}, {vendor: "1051", containerPath: /k}]',
            "usb[1].containerPath: /k is already taken in the container, at f:4:43",
        ),
        (
            "glob: [{path: /dev/a, container_path: /x}]",
            "unknown key 'container_path'; did you mean 'containerPath'? allowed: path, containerPath",
        ),
        ("glob: /dev/mem", "glob: /dev/mem gives a container power over the whole host; set allowDangerous: true"),
        ("glob: //dev/./kmem", "/dev/kmem gives a container power"),
        ("virtual: {}\n    container: {mounts: [{hostPath: /dev/port}]}", "mounts[0].hostPath: /dev/port gives"),
        (
            "virtual: {}\n    container: {env: {A-B: x}}",
            "f:5:23: devices[0].container.env.A-B: 'A-B' is not a valid environment",
        ),
        ('virtual: {}\n    container: {env: {A: "{x}"}}', "env.A: unknown placeholder {x}; allowed: {id}"),
        ('virtual: {}\n    container: {env: {A: "{id"}}', "env.A: stray '{'"),
        ('virtual: {attributes: {m: x}}\n    container: {env: {A: "{attributes.n}"}}', "unknown attribute 'n'"),
        (
            'glob: /dev/a*\n    container: {env: {A: "{attributes.serial}"}}',
            "env.A: unknown attribute 'serial'; the device's attributes: base, below, match, target",
        ),
        (
            'usb: {vendor: "1050", children: [tty]}\n    container: {env: {A: "{attributes.seriel}"}}',
            "env.A: unknown attribute 'seriel'; did you mean 'serial'? the device's attributes: manufacturerName, "
            "port, product, productName, serial, tty, vendor",
        ),
        (
            'sysfs: {class: net, match: {mtu: "*"}}\n    labels: {x.dev/a: "{attributes.address}"}',
            "labels[\"x.dev/a\"]: unknown attribute 'address'; the device's attributes: driver, mtu, name",
        ),
        (
            'glob: [{path: /dev/a*, containerPath: "/dev/{attributes.nr}"}]',
            "f:4:43: devices[0].glob[0].containerPath: unknown attribute 'nr'",
        ),
        (
            'usb: {vendor: "1050", containerPath: "/dev/{attributes.nr}"}',
            "f:4:42: devices[0].usb.containerPath: unknown attribute 'nr'",
        ),
        (
            'usb: [{vendor: "1"}, {vendor: "2", containerPath: "/{attributes.nr}"}]',
            "devices[0].usb[1].containerPath: unknown attribute 'nr'",
        ),
        (
            'sysfs: {bus: pci, containerPath: "/dev/{attributes.nr}"}',
            "devices[0].sysfs.containerPath: unknown attribute 'nr'",
        ),
        ('sysfs: {class: net, match: {m: {">": nan}}}', "match.m: expected a number, got the string 'nan'"),
        ('sysfs: {class: net, match: {m: {">": 1_0}}}', "match.m: expected a number, got the string '1_0'"),
        ('sysfs: {class: net, match: {m: {exists: "true"}}}', "got the string 'true'; remove the quotes"),
        ('sysfs: {class: net, match: {"": x}}', 'match[""]: must not be empty'),
        ("sysfs: {class: net, match: {/etc/x: x}}", "match[\"/etc/x\"]: '/etc/x' is an absolute path; write it"),
        ("sysfs: {class: ../net}", "class: '../net' is not allowed; expected the name of a class, a bus or"),
        ('sysfs: {class: net, match: {m: "[b-a]"}}', "match.m: [b-a] matches nothing: its range is backwards"),
        ('sysfs: {class: net, match: {m: {in: [x, "[^a]"]}}}', "match.m: [^a] matches what [a] matches, and '^'"),
        ('usb: {serial: "[a"}', "usb.serial: the '[' in '[a' is never closed"),
        ('usb: {port: "1-{1,2}"}', "usb.port: braces are not wildcards, so '1-{1,2}' matches only text"),
        (
            'glob: "/dev/ttyUSB[^0-9]"',
            "devices[0].glob: [^0-9] matches what [0-9] matches, and '^'; write [!0-9] for every other character, or "
            "[0-9^] if '^' is meant",
        ),
        (
            "virtual: {}\n    container: {deviceNodes: [{hostPath: /dev/null, containerPath: /dev/x/}]}",
            "containerPath: '/dev/x/' ends in '/', and this is the path of one node; write the node's name after it",
        ),
        ("virtual: {}\n    container: {deviceNodes: [{hostPath: /dev/null/}]}", "hostPath: '/dev/null/' ends in '/'"),
        ('virtual: {node: {like: "null", containerPath: /dev/x/}}', "node.containerPath: '/dev/x/' ends in '/'"),
        (
            "glob: [{path: /dev/a}, {path: /dev/./a}]",
            "devices[0].glob[1].path: /dev/./a is already taken in the container, at f:4:19; give each another path",
        ),
        (
            "virtual: {}\n    container: {mounts: [{hostPath: /b}, {hostPath: /c, containerPath: /b/}]}",
            "mounts[1].containerPath: /b/ is already taken in the container",
        ),
        (
            'virtual: {preset: a30}\n    partitions: {"all": [], "*": all-1g.6gb}',
            "devices[0].partitions[\"*\"]: 'all' and '*' are the same: the devices that no other key names",
        ),
        ("virtual: {}\n    container: {env: {A: null}}", "env.A: 'A' has no value"),
        ("virtual: {}\n    container: {mounts: [{hostPath: opt}]}", "hostPath: 'opt' is not an absolute path"),
        (
            "glob: [{path: /dev/a*, containerPath: /x}]\n    container: {mounts: [{hostPath: /x}]}",
            "mounts[0].hostPath: /x is already taken in the container, at f:4:43",
        ),
        ("virtual: {count: }", "f:4:22: devices[0].virtual.count: 'count' has no value; remove the key or give it one"),
        ("virtual: {memory: ~, count: 0}", "count: 0 is out of range"),
        ("virtual:", "devices[0].virtual: 'virtual' has no value"),
        ("virtual: {}\n    container: {env: }", "devices[0].container.env: 'env' has no value"),
        ("glob: [/dev/null, 5]", "devices[0].glob[1]: expected a string, and 5 unquoted is a number in YAML"),
        ('virtual: {}\n    container: {env: {"A\\0": x}}', "f:5:23: a key has a NUL character"),
        ('virtual: {}\n    container: {env: {A: "x\\0y"}}', "f:5:26: devices[0].container.env.A: the text has a NUL"),
        (
            "virtual: {}\n    container: {mounts: [{hostPath: /a, containerPath: /}]}",
            "f:5:56: devices[0].container.mounts[0].containerPath: / is the root of the container",
        ),
        ('virtual: {}\n    container: {annotations: {"bad key": x}}', "f:5:31: devices[0].container.annotations"),
        ('virtual: {}\n    container: {annotations: {"a_b/c": x}}', "'a_b' before '/' is not a DNS name"),
        (
            "glob: /dev/{null,zero}",
            "braces are not wildcards, so '/dev/{null,zero}' matches only a path with braces in",
        ),
        ("glob: '/dev/['", "f:4:11: devices[0].glob: the '[' in '[' is never closed; write [[] for the character"),
        ("glob: /dev/a*\n    exclude: ['/dev/[b-a]']", "exclude[0]: [b-a] matches nothing: its range is"),
        ("virtual: {}\n    onNodes: 'n-[z-a]'", "onNodes: [z-a] matches nothing"),
        ("sysfs: {}", "devices[0].sysfs: nothing says where in sysfs the devices are; give exactly one of class, bus"),
        (
            "sysfs: {class: drm, match: {a: 1}}",
            'match.a: expected a pattern, got the number 1; write it in quotes: "1"',
        ),
        (
            "sysfs: {class: drm, match: {a: {like: x}}}",
            "match.a: the string 'like' is not allowed here; did you mean 'le'? expected one of in, notIn",
        ),
        ("sysfs: {class: drm, match: {a: {in: x}}}", "match.a: expected a list, got the string"),
        ("sysfs: {class: drm, match: {a: {ge: 1, le: 2}}}", "match.a: expected one operator, got 2"),
        ("usb: {}", "devices[0].usb: every USB device would match"),
        ("usb: {vendor: xyz}", "usb.vendor: 'xyz' is not allowed; expected up to four hexadecimal digits"),
        ("glob: /dev/a\n    health: {probe: file}", "devices[0].health: probe file needs the key path"),
        ("glob: /dev/a\n    health: {probe: command}", "devices[0].health: probe command needs the key command"),
        ("glob: /dev/a\n    health: {probe: exists, path: /x}", "path: path is for probe file only"),
        ("glob: /dev/a\n    health: {}", "devices[0].health: 'probe' is missing"),
        (
            "glob: /dev/a\n    partitions: {all: [x]}",
            "f:5:5: devices[0].partitions: these devices cannot be partitioned",
        ),
        ("virtual: {preset: a30}\n    partitions: {1: [1g.6gb]}", "there is no device 1; the entry has 1"),
        ("virtual: {preset: a30}\n    partitions: {x: [1g.6gb]}", "partitions.x: 'x' is not allowed"),
        ("virtual: {preset: a30, count: 3}\n    partitions: {2-1: [1g.6gb]}", "the range 2-1 is empty"),
        (
            "virtual: {preset: a30, count: 3}\n    partitions: {0-1: [1g.6gb], 1: [1g.6gb]}",
            "device 1 already gets its partitions from '0-1'",
        ),
        (
            "virtual: {preset: a30}\n    partitions: {0: [1g.6gb, 9g.6gb]}",
            'f:5:30: devices[0].partitions["0"][1]: unknown',
        ),
        (
            "virtual: {preset: a30}\n    partitions: {0: [4g.24gb, 1g.6gb]}",
            'f:5:31: devices[0].partitions["0"][1]: 1g.6gb',
        ),
        (
            "virtual: {preset: a30}\n    partitions: {0: {1g.6gb: 1, 9g.6gb: 1}}",
            'f:5:33: devices[0].partitions["0"]["9g.6gb"]: unknown',
        ),
        (
            "virtual: {preset: a30}\n    partitions: {0: {4g.24gb: 1, 1g.6gb: 1}}",
            'f:5:34: devices[0].partitions["0"]["1g.6gb"]: 1g.6gb',
        ),
        ("virtual: {preset: a30}\n    partitions: {0: {1g.6gb: -1}}", 'partitions["0"]["1g.6gb"]: -1 is out of range'),
        ("virtual: {preset: a30}\n    partitions: {0: all-2}", "unknown layout 'all-2'"),
        ("virtual: {preset: a30}\n    partitions: {0: [1c.2g.12gb]}", "is a compute instance inside"),
    ]
    check_refusals(subtests, cases, f"{HEAD}@")


def test_resource_names_follow_the_kubelets_rules(subtests):
    """A name that the kubelet would refuse is an error of the configuration."""
    cases = [
        ("gpu", "has no domain"),
        ("kubernetes.io/gpu", "kubernetes.io"),
        ("requests.example.com/x", "requests."),
        ("Example.com/x", "not a DNS name"),
        ("example.com/", "0 characters"),
        ("example.com/a/b", "more than one"),
        ("example.com/-a", "letter or digit at both ends"),
        ("example.com/" + "a" * 64, "64 characters"),
    ]
    for name, words in cases:
        with subtests.test(name=name):
            (message,) = refusals(f"devices: [{{name: a, resource: {name}, virtual: {{}}}}]")
            assert message.startswith("f:1:31: devices[0].resource: ")
            assert words in message


@pytest.mark.parametrize("name", ["A", "-a", "a_b", '""', "a" * 64])
def test_entry_names_are_lower_case_words(name: str) -> None:
    """Ids and file names contain them."""
    (message,) = refusals(f"devices: [{{name: {name}, resource: a.b/c, virtual: {{}}}}]")
    assert "devices[0].name: " in message


def test_entry_names_are_unique() -> None:
    """The second entry has the error, with the place of the first."""
    entry = "{name: a, resource: a.b/c, virtual: {}}"
    (message,) = refusals(f"devices:\n- {entry}\n- {entry}")
    assert message.startswith("f:3:10: devices[1].name: the name 'a' is taken by the entry at f:2:10")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("flgs: {}", "flgs: unknown key 'flgs'; did you mean 'flags'? allowed: version, flags, devices, sharing, "),
        ("flgs: {}", "did you mean 'flags'?"),
        ("flags: {renameByDefault: true}", "it belongs under sharing.timeSlicing or sharing.mps"),
        ("flags: {deviceListStrategy: envvar}", "it belongs under flags.plugin"),
        ("migStrategy: mixed", "it belongs under flags"),
        ("flags: {plugin: {migStrateg: x}}", "did you mean 'migStrategy' under flags?"),
        ("sharing: {timeSlicing: {resources: [{nam: x}]}}", "did you mean 'name'?"),
        ("fleet: {nodes: [{name: a, taint: []}]}", "did you mean 'taints'?"),  # though fault rules have the key 'taint'
    ],
)
def test_an_unknown_key_gets_suggestions(text: str, expected: str) -> None:
    """Similar keys of the same mapping come first, then the sections that have the key."""
    assert expected in "\n".join(refusals(f"{text}\ndevices: []"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("devices: {name: a, virtual: {}}", "devices: expected a list, got a mapping; write '- ' before each item"),
        (
            "devices: [{container: {env: [A=b]}}]",
            "expected a mapping, got a list; write 'name: value' pairs, without '- '",
        ),
        ("devices: [{virtual: [{count: 2}]}]", "got a list; its keys: preset, count"),
        ("devices: [{partitions: [1g.5gb]}]", "got a list; say which devices have them: {all: …}"),
        ("faults: [{name: a}]", "its keys: seed, kernelLog, rules"),
    ],
)
def test_lists_and_mappings_that_are_mixed_up(text: str, expected: str) -> None:
    """The error shows the right form, with the keys if they are known."""
    assert expected in "\n".join(refusals(text))


@pytest.mark.parametrize("line", ["virtual:", "virtual: {}\n    health: {probe: }"])
def test_an_empty_value_is_one_error(line: str) -> None:
    """It is not also reported as a missing key."""
    (message,) = refusals(HEAD + line)
    assert "has no value" in message


@pytest.mark.parametrize(
    "text",
    [
        "flags:",
        "flags: {plugin: , gfd: , migStrategy: }",
        "sharing:",
        "resources: {gpus: }",
        "imex:",
        "faults:",
        "devices: [{name: a, resource: a.b/c, virtual: {node: {like: null}}}]",
    ],
)
def test_sections_may_be_empty(text: str) -> None:
    """Empty sections and NVIDIA's keys are allowed; `like: null` names the device /dev/null."""
    config.load_text(text)


def test_a_node_pattern_in_capitals_is_a_warning() -> None:
    """Kubernetes allows only lower case in names of nodes."""
    (warning,) = config.load_text(HEAD + "virtual: {}\n    onNodes: [Node-1]", "f").warnings
    assert "onNodes[0]" in str(warning)
    assert "write 'node-1'" in warning.hint


@pytest.mark.parametrize("path", ["/dev/a[!b]", "/dev/[]]", "/dev/[{]a,b}", "/dev/{a}", "/dev/[a-a]", "/dev/[z-ab]"])
def test_valid_patterns(path: str) -> None:
    config.load_text(HEAD + f"glob: '{path}'")


def test_all_errors_come_at_once_sorted_by_place() -> None:
    """Errors in shapes, values and relations of every section are sorted by line."""
    text = """version: v2
flags: {migStrategy: mix}
devices:
  - {name: a, resource: nope, virtual: {}}
  - {name: b, resource: a.b/c, glob: /dev/mem}
  - {name: b, resource: a.b/c, virtual: {count: 2, numa: [1, 2, 3]}}
sharing:
  timeSlicing: {resources: [{name: x, replicas: 1}]}
"""
    found = refusals(text)
    lines = [int(re.match(r"f:(\d+):", message)[1]) for message in found]  # type: ignore[index]
    assert [1, 2, 4, 5, 6, 6, 8] == lines


def test_a_wrong_section_does_not_hide_errors_of_others() -> None:
    found = refusals("flags: []\nsharing:\n  x: 1\n")
    assert ["f:1:8", "f:3:3"] == [message.partition(": ")[0] for message in found]


def test_replicas_that_do_not_fit_in_a_list_are_refused() -> None:
    text = "devices: [{name: a, resource: a.b/a, virtual: {count: 9}}]\n"
    text += "sharing: {timeSlicing: {resources: [{name: a.b/a, replicas: 50000}]}}\n"
    (message,) = refusals(text)
    assert "resources[0].replicas: a.b/a shared by 50000 makes 450000 devices" in message


@pytest.mark.parametrize(
    ("count", "sharing", "total"),
    [
        ("200000", "", 1_200_000),
        ("50000", "{name: a.b/a, replicas: 40}", 2_300_000),
        ("50000", "{name: a.b/a, replicas: 200000, devices: 7}", 1_700_000),
        ("50000", "{name: a.b/a, replicas: 200000, devices: [0, 1, 2, 3, 4]}", 1_300_000),
    ],
)
def test_too_many_devices_are_refused(count: str, sharing: str, total: int) -> None:
    """The check runs before the devices are created."""
    text = "".join(f"- {{name: {name}, resource: a.b/{name}, virtual: {{count: {count}}}}}\n" for name in "abcdef")
    text += f"sharing: {{timeSlicing: {{resources: [{sharing}]}}}}\n" if sharing else ""
    expected = f"f:2:1: devices: a node would have {total} devices and replicas; at most 1000000 are allowed"
    assert [expected] == refusals(f"devices:\n{text}")


def test_dangerous_paths_can_be_allowed() -> None:
    assert config.load_text(HEAD + "glob: /dev/mem\n    allowDangerous: true").spec.entries


def test_a_file_without_devices_is_a_warning() -> None:
    (warning,) = config.load_text("version: v1", "f").warnings
    assert "no devices are declared" in str(warning)


@pytest.mark.parametrize(
    ("links", "count", "expected"),
    [
        ("[[0, 1]]", 2, {(0, 1): 100, (1, 0): 100}),
        ("[[0, 50], [50, 0]]", 2, {(0, 1): 50, (1, 0): 50}),
        ("[[0, 1], [1, 0]]", 2, {(0, 1): 1, (1, 0): 1}),
        ("[[0, 1], [1, 2]]", 3, {(0, 1): 100, (1, 0): 100, (1, 2): 100, (2, 1): 100}),
        ("[[0]]", 1, {}),
        ("[]", 2, {}),
    ],
)
def test_links_are_groups_unless_they_are_a_square_of_scores(
    links: str, count: int, expected: dict[tuple[int, int], int]
) -> None:
    """`count` lists of `count` numbers are scores."""
    text = HEAD + f"virtual: {{count: {count}, links: {links}}}"
    source = config.load_text(text).spec.entries[0].virtual
    assert source is not None
    assert expected == source.links


def test_an_entry_overrides_its_preset() -> None:
    """It overrides count, numa, links and single attributes of a node preset."""
    text = HEAD + "virtual: {preset: dgx-a100, count: 2, numa: 4, links: [], attributes: {model: mine}}"
    source = config.load_text(text).spec.entries[0].virtual
    assert source is not None
    assert (2, (4,), {}, "mine") == (source.count, source.numa, source.links, source.attributes["model"])
    assert "NVIDIA-A100-SXM4-40GB" == source.attributes["product"]


def test_a_smaller_count_takes_the_first_devices_of_the_preset() -> None:
    """They keep their NUMA nodes and links."""
    source = config.load_text(HEAD + "virtual: {preset: dgx-a100, count: 3}").spec.entries[0].virtual
    assert source is not None
    assert (3, (3, 3, 1)) == (source.count, source.numa)
    assert {(one, other) for one in range(3) for other in range(3) if one != other} == set(source.links)


def test_presets_dir_is_relative_to_the_file(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "x1.yaml").write_text("base: a30\nmemory: 1Gi\n")
    file = tmp_path / "vdev.yaml"
    file.write_text("presetsDir: mine\n" + HEAD + "virtual: {preset: x1}\n")
    source = config.load([file]).spec.entries[0].virtual
    assert source is not None
    assert 2**30 == source.memory
    file.write_text("presetsDir: nowhere\n" + HEAD + "virtual: {preset: a30}\n")
    with pytest.raises(ConfigError, match=r"presetsDir: .*nowhere is not a directory"):
        config.load([file])


def test_a_preset_without_a_base_has_the_driver_of_its_vendor(tmp_path: Path) -> None:
    """Labels and templates use the version."""
    (tmp_path / "x1.yaml").write_text("idStyle: nvidia\nmemory: 1Gi\n")
    text = HEAD + "virtual: {preset: x1}\n    labels: {a.dev/driver: 'v{attributes.driverVersion}'}\n"
    file = tmp_path / "vdev.yaml"
    file.write_text(f"presetsDir: .\n{text}")
    source = config.load([file]).spec.entries[0].virtual
    assert source is not None
    assert "580.95.05" == source.attributes["driverVersion"]


def test_profiles_may_be_counted() -> None:
    """`partitions` and layouts accept counts of profiles, as mig-parted's `mig-devices`."""
    block = "{slices: 4, profiles: {x: {slices: 1, memory: 1Gi}}, layouts: {two: {x: 2}}}"
    text = HEAD + f"virtual: {{count: 4, partitioning: {block}}}\n    partitions: {{0: two, 1: {{x: 3}}, 2: {{}}}}"
    assert {0: ("x",) * 2, 1: ("x",) * 3, 2: ()} == config.load_text(text).spec.entries[0].partitions


def test_partitions_for_all_are_for_the_remaining_devices() -> None:
    """Layouts are resolved to profiles."""
    text = HEAD + "virtual: {preset: a30, count: 3}\n    partitions: {all: all-2g.12gb, 1: [4g.24gb]}"
    partitions = config.load_text(text).spec.entries[0].partitions
    assert {0: ("2g.12gb",) * 2, 1: ("4g.24gb",), 2: ("2g.12gb",) * 2} == partitions
