"""Evaluates expressions on vdev's metrics with Prometheus' own tool."""

import shutil
import subprocess

import pytest
import yaml

promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool, which Prometheus brings, is not here")


def evaluate(directory, series, expressions, *, at="0m"):
    """Check that each expression is 1 at this time, with a scrape interval of one minute."""
    case = {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {"expr": each, "eval_time": at, "exp_samples": [{"labels": "{}", "value": 1}]} for each in expressions
        ],
    }
    (directory / "case.yaml").write_text(yaml.safe_dump({"evaluation_interval": "1m", "tests": [case]}))
    command = ["promtool", "test", "rules", str(directory / "case.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
