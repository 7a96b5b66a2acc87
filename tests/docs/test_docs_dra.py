"""The page on DRA: its tables match the published devices and the results of the CEL expressions."""

import json
import re
from pathlib import Path

import pytest

import vdev
from tests.kit import reader
from vdev.cli import main
from vdev.sim.dra.cel_selectors import SelectorError, matches

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "dra.md").read_text()
DRIVER = "gpu.nvidia.com"
A100 = """
devices:
  - {{name: a, resource: nvidia.com/gpu, advertise: [dra], virtual: {{preset: a100-sxm4-40gb, count: 2}}, {how}}}
"""
STATIC = A100.format(how='partitions: {"1": [1g.5gb, 1g.5gb, 2g.10gb, 3g.20gb]}')
DYNAMIC = A100.format(how="dra: {partitions: dynamic}")
AMD = "devices: [{name: a, resource: amd.com/gpu, advertise: [dra], virtual: {preset: mi300x}}]"
(FIRST,) = [block.text for block in reader.blocks(PAGE) if block.file == "claimed.yaml"]


def table(heading):
    """The cells of each row of the table with this first heading."""
    _, _, rest = PAGE.partition(f"| {heading} |")
    lines = rest.splitlines()[2:]
    rows = lines[: next(number for number, line in enumerate(lines) if not line.startswith("|"))]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


EXPRESSIONS = {row[0].strip("`"): row[1:] for row in table("expression")}
PUBLISHED = {row[0]: row[1:] for row in table("devices")}


@pytest.fixture
def devices(tmp_path, capsys):
    """The devices that `vdev plan` publishes for a configuration, with their drivers."""

    def planned(text):
        file = tmp_path / "vdev.yaml"
        file.write_text(text)
        assert 0 == main(["plan", "--node", "n", "--output", "json", str(file)])
        slices = [each["spec"] for each in json.loads(capsys.readouterr().out)["resourceSlices"]]
        return [(each["driver"], device) for each in slices for device in each.get("devices", ())]

    return planned


def of_type(devices, word):
    """The devices with this value of the attribute `type`."""
    return [device for _, device in devices if device["attributes"]["type"] == {"string": word}]


def matched(expression, devices):
    """Whether the expression matches all, some or none of these devices, or fails."""
    found = set()
    for each in devices:
        try:
            found.add("all" if matches(expression, DRIVER, each) else "none")
        except SelectorError:
            found.add("error")
    return found.pop() if len(found) == 1 else "some"


def test_results_of_the_expressions(devices):
    pytest.importorskip("cel_expr_python", reason="cel-expr-python, which evaluates selectors, is not installed")
    static, dynamic = devices(STATIC), devices(DYNAMIC)
    columns = [of_type(static, "gpu"), of_type(static, "mig"), of_type(dynamic, "mig")]
    assert all(columns)
    assert EXPRESSIONS
    for expression, words in EXPRESSIONS.items():
        assert words == [matched(expression, column) for column in columns], expression


def test_every_attribute_of_nvidia_has_an_expression():
    names = re.findall(r"`([^`]+)`", f"{PUBLISHED['NVIDIA presets'][2]} {PUBLISHED['their partitions'][2]}")
    for name in names:
        assert any(f".{name.rpartition('/')[2]}" in each for each in EXPRESSIONS), name


def names_in(cell):
    """The texts in backquotes."""
    return set(re.findall(r"`([^`]+)`", cell))


@pytest.mark.parametrize(
    ("row", "text"),
    [("NVIDIA presets", STATIC), ("AMD presets", AMD), ("all others", FIRST)],
    ids=["nvidia", "amd", "own"],
)
def test_published_devices(devices, row, text):
    """Driver, name, attributes and capacity of the table's devices."""
    driver, names, attributes, capacity = PUBLISHED[row]
    ((by, device),) = [found for found in devices(text) if found[1]["name"] in names_in(names)]
    assert by == ("acme.dev" if row == "all others" else driver.strip("`"))
    own = {"rack", "slot", "firmware"} if row == "all others" else set()
    assert names_in(attributes) == device["attributes"].keys() - own
    assert names_in(capacity) == device["capacity"].keys() - ({"slots"} if own else set())


def test_published_partitions(devices):
    """They have the attributes of a GPU, and more."""
    whole = names_in(PUBLISHED["NVIDIA presets"][2])
    _, names, attributes, capacity = PUBLISHED["their partitions"]
    (device,) = [each for _, each in devices(STATIC.replace('"1"', '"0"')) if each["name"] in names_in(names)]
    assert whole | names_in(attributes) == device["attributes"].keys()
    assert names_in(capacity) == device["capacity"].keys()


def test_the_image_has_the_current_version():
    assert f"IMAGE=vdev:{vdev.__version__} " in PAGE


def test_the_page_has_the_keys_of_published_taints():
    from vdev import config
    from vdev.dra import published_devices
    from vdev.model.device import Health

    well, ill = Health(), Health(healthy=False, reason="too hot")
    text = """
    devices:
      - {name: gpu, resource: nvidia.com/gpu, advertise: [dra], virtual: {preset: t4}}
      - {name: npu, resource: acme.dev/npu, advertise: [dra], virtual: {}}
    """
    nvidia, other = config.load_text(text).spec.entries
    made = (
        published_devices.of_health(other, ill, ()),
        published_devices.of_loss(other),
        published_devices.of_health(nvidia, well, (79,)),
        published_devices.of_loss(nvidia),
    )
    for (taint,) in made:
        assert f"`{taint.key.replace('acme.dev', '<driver>')}`" in PAGE
    assert () == published_devices.of_health(other, well, ())
