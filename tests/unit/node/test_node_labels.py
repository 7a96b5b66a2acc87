"""Labels of entries, conflicts and invalid values; and properties of every configuration."""

import json

from hypothesis import given
from hypothesis import strategies as st

from vdev import config
from vdev.model import names
from vdev.node.labels import node_labels
from vdev.node.vendor_labels import Machine
from vdev.planning.inventory import arrange
from vdev.planning.inventory import virtual_devices as devices

ENTRY = "node: {labels: true}\nflags: {migStrategy: mixed}\ndevices:\n- name: a\n  resource: a.b/a\n"


def test_templates_that_agree(labels):
    text = ENTRY + (
        "  virtual: {count: 3, memory: 16Gi, attributes: {m: X1}}\n"
        '  labels: {a.b/m: "v-{attributes.m}", a.b/mem: "{memory.mib}", a.b/c: cold, a.b/e: ""}\n'
    )
    found = labels(text)
    assert () == found.problems
    assert {"a.b/m": "v-X1", "a.b/mem": "16384", "a.b/c": "cold", "a.b/e": ""} == dict(found.values)


def test_templates_that_differ(labels):
    """The value of the first device is used, with a warning."""
    found = labels(ENTRY + "  virtual: {count: 5, numa: [3, 3, 1, 1, 0]}\n  labels: {a.b/n: '{numa}'}")
    assert {"a.b/n": "3"} == dict(found.values)
    (problem,) = found.problems
    assert not problem.is_error
    assert "the label a.b/n has several values: '3', which is used, and '1', '0'" == problem.message
    assert problem.where.endswith("devices[0].labels.a.b/n")


def test_two_entries_with_one_label(labels):
    """The first entry in the file wins. Equal values are no conflict."""
    text = ENTRY + (
        "  virtual: {}\n  labels: {a.b/x: one, a.b/y: same}\n"
        "- {name: b, resource: a.b/b, virtual: {}, labels: {a.b/x: two, a.b/y: same}}"
    )
    found = labels(text)
    assert {"a.b/x": "one", "a.b/y": "same"} == dict(found.values)
    (problem,) = found.problems
    assert "the label a.b/x has several values: 'one', which is used, and 'two'" == problem.message


def test_an_entry_overrides_the_vendors_label(labels):
    text = ENTRY + "  virtual: {preset: t4}\n  labels: {nvidia.com/gpu.product: My-GPU}"
    found = labels(text)
    assert () == found.problems
    assert "My-GPU" == found.values["nvidia.com/gpu.product"]


def test_a_value_is_sanitised(labels):
    """As in GFD, invalid characters are removed and words are joined."""
    found = labels(ENTRY + "  virtual: {attributes: {m: 'Acme (R) X/1'}}\n  labels: {a.b/m: '{attributes.m}'}")
    assert ({"a.b/m": "Acme-R-X1"}, ()) == (dict(found.values), found.problems)


def test_a_value_that_stays_invalid_is_left_out(labels):
    long = "x" * 64
    found = labels(ENTRY + f"  virtual: {{attributes: {{m: {long}}}}}\n  labels: {{a.b/m: '{{attributes.m}}'}}")
    assert {} == found.values
    (problem,) = found.problems
    assert not problem.is_error
    assert "the label a.b/m is left out: " in problem.message
    assert "has 64 characters; at most 63 are allowed" in problem.message
    found = labels(ENTRY + f"  virtual: {{preset: t4, attributes: {{model: {long}}}}}")
    assert "nvidia.com/gpu.product" not in found.values
    assert ["the label nvidia.com/gpu.product is left out"] == [
        each.message.partition(":")[0] for each in found.problems
    ]


# --- every configuration ---------------------------------------------------------------------------------------------

PRESETS = ("a100-sxm4-40gb", "a30", "t4", "h100-nvl", "b200", "mi300x", "mi325x", "gaudi2", "tpu-v5e", "tpu-v6e-8", "")
LAYOUTS = {
    "a100-sxm4-40gb": ("all-balanced", "all-1g.5gb", ["1g.5gb+me"], []),
    "a30": ("all-balanced", ["2g.12gb"]),
    "b200": ("all-balanced",),
    "mi300x": ("cpx_nps4", "dpx_nps1"),
}
ATTRIBUTES = ("model", "product", "machine", "driverVersion", "cudaVersion", "family", "accelerator", "m")
TEXTS = st.text(st.characters(max_codepoint=0x2FF, exclude_categories=["Cc"]), max_size=80)


@st.composite
def entries(draw, number):
    preset = draw(st.sampled_from(PRESETS))
    virtual = {"attributes": draw(st.dictionaries(st.sampled_from(ATTRIBUTES), TEXTS)) | {"m": draw(TEXTS)}}
    if preset:
        virtual["preset"] = preset
    if preset != "tpu-v6e-8":
        virtual["count"] = draw(st.integers(1, 3))
    entry = {"name": f"e{number}", "resource": draw(st.sampled_from(("nvidia.com/gpu", "amd.com/gpu", "a.b/c")))}
    if preset in LAYOUTS and draw(st.booleans()):
        entry["partitions"] = {draw(st.sampled_from(("0", "all"))): draw(st.sampled_from(LAYOUTS[preset]))}
    keys = st.sampled_from(("a.b/x", "y", "nvidia.com/gpu.product"))
    values = st.sampled_from(("{id}", "{attributes.m}", "a{index}b", "{numa}", "fixed", "{profile}"))
    return entry | {"virtual": virtual, "labels": draw(st.dictionaries(keys, values))}


@st.composite
def files(draw):
    """A configuration as JSON."""
    sharing = {"resources": [{"name": "nvidia.com/gpu", "replicas": draw(st.integers(2, 5))}]}
    return {
        "node": {"labels": True},
        "flags": {"migStrategy": draw(st.sampled_from(("none", "single", "mixed")))},
        "sharing": draw(st.sampled_from(({}, {"timeSlicing": sharing}))),
        "devices": [draw(entries(number)) for number in range(draw(st.integers(1, 3)))],
    }


def worlds(file):
    spec = config.load_text(json.dumps(file)).spec
    return spec, {entry.name: tuple(devices(entry, entry.virtual, "n")) for entry in spec.entries}


@given(files(), TEXTS)
def test_every_label_is_valid(file, product):
    """Labels that are left out have a warning, never an error."""
    spec, found = worlds(file)
    values, problems = node_labels(spec, "n", found, arrange(spec, "n", found), Machine(product, 1))
    for key, value in values.items():
        assert "" == names.key_problem(key)
        assert "" == names.value_problem(value)
    assert not any(each.is_error for each in problems)
