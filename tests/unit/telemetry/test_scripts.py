"""The scripts of the tools: shellcheck, and their variables."""

import json
import re
import shutil
import subprocess

import pytest

from tests.kit.smi_tools import WALL, h100, instance, mi300x
from vdev.telemetry.amd_tool import amd_data
from vdev.telemetry.nvidia_tool import nvidia_data
from vdev.telemetry.tool_data import script

TOOLS = ("nvidia-smi", "amd-smi")
PASSED = {
    "SC1007",  # `Value= ` empties a variable
    "SC1090",  # the data files are there at run time only
    "SC1091",
    "SC2016",  # what single quotes keep is expanded by `eval`, for each device
    "SC2059",  # the texts of devices are formats of printf; vdev doubles the `%` of values in them
    "SC2154",  # what they set: see the test of it
    "SC2317",  # functions are called by name
}


def findings(tool: str) -> list[dict[str, str | int]]:
    """The findings of shellcheck."""
    if shutil.which("shellcheck") is None:
        pytest.skip("shellcheck is not here")
    command = ["shellcheck", "-s", "sh", "-f", "json", "-"]
    done = subprocess.run(command, input=script(tool), capture_output=True, text=True, check=False)
    found: list[dict[str, str | int]] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("tool", TOOLS)
def test_scripts_are_clean_and_use_what_the_data_files_have(tool: str) -> None:
    """Every variable in lower case is in the data file of a device or a partition."""
    found = findings(tool)
    left = [each for each in found if f"SC{each['code']}" not in PASSED]
    assert left == []
    of_nvidia = nvidia_data(h100(0), WALL) + nvidia_data(instance(h100(0), 0, "1g.10gb", range(1), 9984, 0, 16), WALL)
    text = of_nvidia if tool == "nvidia-smi" else amd_data(mi300x(0))
    told = set(re.findall(r"^([a-z_0-9]+)=", text, re.MULTILINE))
    used = {str(each["message"]).split()[0] for each in found if each["code"] == 2154}
    commands = re.findall("each_gpu .*", script(tool))  # for eval, so shellcheck does not look into them
    in_quotes = {name for command in commands for name in re.findall(r"\$([a-z_]+)", command)}
    assert used
    assert in_quotes
    assert used | in_quotes <= told
