"""Metrics that nobody can ask for."""

import subprocess
import sys

from vdev.observe.metrics import Metrics

WORK = """
import sys
import vdev.agent, vdev.cli.processes.run
from vdev.observe.metrics import Metrics
Metrics(shown=False)
print(*sorted({name.partition(".")[0] for name in sys.modules} & {"prometheus_client", "starlette", "uvicorn"}))
"""


def test_nothing_is_imported_for_them():
    """Neither what counts nor what serves."""
    done = subprocess.run([sys.executable, "-c", WORK], capture_output=True, text=True, check=True, timeout=60)
    assert [] == done.stdout.split()


def test_whoever_counts_needs_not_know():
    """Each metric takes what its namesake takes that is shown."""
    for metrics in (Metrics(), Metrics(shown=False)):
        metrics.devices.labels("acme.dev/npu", "Healthy").set(2)
        metrics.registrations.labels("acme.dev/npu").inc()
        metrics.flaps.labels("acme.dev/npu").inc(2)
        metrics.rpc.labels("Allocate", "acme.dev/npu", "OK").observe(0.001)
        metrics.reload_ok.set(1)
        metrics.forget("acme.dev/npu")
