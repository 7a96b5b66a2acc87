"""The dashboard and the alert rules speak only of metrics, labels and values that exist."""

import json
import re
from pathlib import Path

import pytest
import yaml
from prometheus_client.metrics import MetricWrapperBase

from vdev.observe.metrics import Metrics

MONITORING = Path(__file__).parents[2] / "deploy" / "monitoring"


def _known():
    """Series names with their labels."""
    known = {}
    for metric in vars(Metrics()).values():
        if isinstance(metric, MetricWrapperBase):
            (family,) = metric.describe()
            suffixes = {"counter": ["_total"], "histogram": ["_bucket", "_count", "_sum"]}.get(family.type, [""])
            known |= {family.name + suffix: {*metric._labelnames, "le", "instance"} for suffix in suffixes}
    return known


def _expressions():
    dashboard = json.loads((MONITORING / "dashboard.json").read_text())
    yield from (target["expr"] for panel in dashboard["panels"] for target in panel["targets"])
    rules = yaml.safe_load((MONITORING / "alerts.yaml").read_text())
    yield from (rule["expr"] for group in rules["groups"] for rule in group["rules"])


@pytest.mark.parametrize("expression", sorted(set(_expressions())))
def test_only_what_exists(expression):
    """Each series and each label that an expression names is one that the agent has."""
    known = _known()
    names = re.findall(r"vdev_[a-z_]+", expression)
    assert [] == [name for name in names if name not in known]
    labels = {label for text in re.findall(r"{([^}]*)}", expression) for label in re.findall(r"(\w+)\s*[!=~]", text)}
    labels |= {each.strip() for text in re.findall(r"by \(([^)]*)\)", expression) for each in text.split(",")}
    assert labels <= set().union(*(known[name] for name in names))


def test_alerts_have_sentences():
    """Each alert has a severity and says what is the matter."""
    rules = yaml.safe_load((MONITORING / "alerts.yaml").read_text())
    for rule in rules["groups"][0]["rules"]:
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert rule["annotations"]["summary"]


def test_panels_do_not_overlap():
    """The dashboard's panels have numbers of their own and places of their own."""
    panels = json.loads((MONITORING / "dashboard.json").read_text())["panels"]
    assert len(panels) == len({panel["id"] for panel in panels})
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells))
