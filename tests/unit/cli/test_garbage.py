"""Collections of garbage: none while the plugin is imported, as ever afterwards."""

import subprocess
import sys

RUN = """
import gc, sys
from vdev import agent

async def run(_self):
    print(gc.isenabled(), gc.get_freeze_count() > 10_000)
    return 0

agent.Agent.run = run
from vdev.__main__ import main
main()
"""


def test_garbage_is_collected_once_the_agent_runs(tmp_path):
    """But nobody looks at the modules any more."""
    command = [sys.executable, "-c", RUN, "run", "--config-file", str(tmp_path / "vdev.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert ["True", "True"] == done.stdout.split()
