"""The page on autoscaling: its configuration runs, and Prometheus evaluates its queries as described."""

from pathlib import Path

import pytest
import yaml

from tests.kit import reader
from tests.kit.measured import measured
from tests.kit.promtool import evaluate, promtool
from vdev.telemetry.exporters import page
from vdev.telemetry.simulation import parse_load

PAGE = (Path(__file__).parents[2] / "docs" / "autoscaling.md").read_text()


def block(name):
    """The block for this file on the page."""
    return next(block.text for block in reader.blocks(PAGE) if block.file == name)


QUERY = yaml.safe_load(block("scaledobject.yaml"))["spec"]["triggers"][0]["metadata"]["query"]
(RULE,) = yaml.safe_load(block("adapter-rules.yaml"))["rules"]["custom"]
OF_PODS = (
    RULE["metricsQuery"]
    .replace("<<.GroupBy>>", "pod")
    .replace("<<.Series>>", "DCGM_FI_DEV_GPU_UTIL")
    .replace("<<.LabelMatchers>>", 'namespace="default"')
)


def series(loads):
    """The series of a scrape with a pod for each of these annotations (None: a pod without the annotation)."""
    users = {("nvidia.com/gpu", number): [f"default/server-{number}/server"] for number in range(len(loads))}
    pod_loads = {f"default/server-{number}": parse_load(load) for number, load in enumerate(loads) if load is not None}
    shown = page([("n", measured(block("autoscale.yaml"), users=users, node="n", pod_loads=pod_loads))], "Hostname")
    found = [line.rsplit(" ", 1) for line in shown.splitlines() if line.startswith("DCGM_FI_DEV_GPU_UTIL{")]
    return {name: f"{value} {value}" for name, value in found}


def test_the_page_explains_the_query_of_the_object():
    assert QUERY in PAGE.partition("With KEDA:")[0]


@promtool
@pytest.mark.parametrize(
    ("loads", "low", "high"),
    [
        (["20-40"], 20, 40),
        ([None], 30, 30),
        (["95"], 95, 95),
        (["95", "20-40"], 57, 68),
        (["95", "95"], 95, 95),
    ],
)
def test_the_queries_give_the_mean_load_of_the_pods(tmp_path, loads, low, high):
    """Both queries have the same value."""
    expressions = [f"{QUERY} >= bool {low}", f"{QUERY} <= bool {high}", f"avg({OF_PODS}) == bool {QUERY}"]
    expressions.append(f"count({OF_PODS}) == bool {len(loads)}")
    evaluate(tmp_path, series(loads), expressions, at="1m")
