"""`vdev completion`: completions in real shells."""

import shutil
import subprocess

import pytest

from vdev import config
from vdev.cli import COMMANDS, main

ASK = """
source "$1"; shift
COMP_WORDS=(vdev "$@"); COMP_CWORD=$#; COMP_LINE="vdev $*"
_shtab_vdev; echo "${COMPREPLY[@]}"
"""


@pytest.fixture
def script(tmp_path, capsys):
    """Write the script of a shell to a file."""

    def made(shell):
        assert 0 == main(["completion", shell])
        path = tmp_path / f"vdev.{shell}"
        path.write_text(capsys.readouterr().out)
        return str(path)

    return made


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["pres"], {"presets"}),
        ([""], set(COMMANDS)),
        (["presets", "a100-"], {name for name in config.preset_names() if name.startswith("a100-")}),
        (["fault", ""], {"list", "add", "clear", "trigger"}),
        (["status", "--wat"], {"--watch"}),
        (["plan", "-o", "j"], {"json"}),
        (["plan", "vde"], {"vdev.yaml"}),
        (["run", "--mig-strategy", ""], {"none", "single", "mixed"}),
        (["run", "--log-format", "c"], {"console"}),
        (["sim", "--scenario", "vde"], {"vdev.yaml"}),
    ],
)
def test_completions_in_bash(words, offered, script, tmp_path):
    """Commands, actions, options and their values, presets and files."""
    (tmp_path / "vdev.yaml").touch()
    asked = ["bash", "-c", ASK, "bash", script("bash"), *words]
    done = subprocess.run(asked, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert offered <= set(done.stdout.split())
    assert all(word.startswith(words[-1]) for word in done.stdout.split())


@pytest.mark.parametrize(("shell", "check"), [("bash", "-n"), ("zsh", "-n"), ("fish", "--no-execute")])
def test_the_script_has_valid_syntax(shell, check, script):
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed")
    done = subprocess.run([shell, check, script(shell)], capture_output=True, text=True, check=False)
    assert (0, "") == (done.returncode, done.stderr)
