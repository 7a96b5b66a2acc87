"""The Dockerfile: its build steps run in a directory, without a container engine, and the resulting program works."""

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

import vdev

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Step:
    """One instruction of a Dockerfile and the stage that it belongs to."""

    stage: int
    name: str
    text: str


def steps():
    """The Dockerfile's instructions, with continued lines joined and without comments."""
    lines = [line for line in (ROOT / "Dockerfile").read_text().splitlines() if not line.lstrip().startswith("#")]
    found, stage = [], -1
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        if line.strip():
            name, _, text = line.strip().partition(" ")
            stage += name == "FROM"
            found.append(Step(stage, name, " ".join(text.split()) if name != "RUN" else text.strip()))
    return found


def of(name, stage=None):
    """The texts of all instructions with this name."""
    return [step.text for step in steps() if step.name == name and stage in (None, step.stage)]


@pytest.fixture
def image(tmp_path_factory):
    """The directory that the build stage creates."""
    root = tmp_path_factory.mktemp("image")
    work = root / "src"

    def there(path):
        return root / path.lstrip("/") if path.startswith("/") else work / path

    for step in steps():
        if step.stage != 0:
            continue
        if step.name == "WORKDIR":
            there(step.text).mkdir(parents=True)
        elif step.name == "COPY":
            source, target = shlex.split(step.text)
            there(target).parent.mkdir(parents=True, exist_ok=True)
            if (ROOT / source).is_dir():
                shutil.copytree(ROOT / source, there(target), ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(ROOT / source, there(target))
        elif step.name == "RUN":
            command = step.text.replace("/opt/vdev", str(root / "opt/vdev"))
            command = command.replace("python -m", f"{sys.executable} -m")
            done = subprocess.run(["sh", "-ec", command], cwd=work, capture_output=True, text=True, check=False)
            if "pip install" in command and done.returncode and "hash" not in done.stderr.lower():
                pytest.skip(f"the packages cannot be had here: {done.stderr.strip().splitlines()[-1]}")
            assert done.returncode == 0, done.stderr
    return root / "opt" / "vdev"


def run(image, *arguments):
    """Run the image's command with its ENTRYPOINT and ENV."""
    environ = {"PATH": f"{image / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}"}
    environ |= {"PYTHONPATH": str(image / "lib"), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(["vdev", *arguments], env=environ, cwd="/", capture_output=True, text=True, check=False)


@pytest.mark.install
@pytest.mark.long
@pytest.mark.timeout(300)
def test_the_built_image_runs(image):
    """`vdev --version` and `vdev validate` work with the locked packages only.

    Every module, also of the packages, has unchecked bytecode, because compiling at startup doubles the startup time
    and takes 7 MiB.
    """
    assert f"vdev {vdev.__version__}\n" == run(image, "--version").stdout
    assert 0 == run(image, "validate", str(ROOT / "configs/quickstart.yaml")).returncode
    flags = {}
    for module in (image / "lib").rglob("*.py"):
        cache = Path(importlib.util.cache_from_source(str(module)))
        flags[str(module)] = cache.read_bytes()[4] if cache.exists() else None  # 1: hash-based and unchecked (PEP 552)
    assert {} == {module: flag for module, flag in flags.items() if flag != 1}
    assert any("/grpc/" in module for module in flags)


def test_only_locked_packages():
    """`pip install` uses only wheels with hashes from the lock file and leaves no cache."""
    installs = [text for text in of("RUN") if "pip install" in text]
    assert 1 == len(installs)
    wanted = {"--require-hashes", "--no-cache-dir", "--only-binary=:all:"}
    assert wanted <= set(installs[0].split())
    assert [] == [text for text in of("RUN", stage=1) if "pip install" in text or "apt" in text]


def test_the_last_stage():
    """It starts the plugin, has labels, and copies only the build result."""
    assert ['["vdev"]'] == of("ENTRYPOINT")
    assert ['["run"]'] == of("CMD")
    assert ["--from=build /opt/vdev /opt/vdev"] == of("COPY", stage=1)
    (labels,) = of("LABEL")
    names = re.findall(r"org\.opencontainers\.image\.(\w+)=", labels)
    assert ["title", "description", "licenses", "version", "revision", "created"] == names
    assert f"VERSION={vdev.__version__}" in of("ARG")


def test_bare_image_names():
    """The base image has a version and no registry, so any registry or mirror can serve it; a digest can pin it."""
    (base,) = [text for text in of("ARG") if text.startswith("BASE=")]
    assert re.fullmatch(r"BASE=python:\d+\.\d+-slim-\w+", base)
    assert {"${BASE}${BASE_DIGEST:+@${BASE_DIGEST}}"} == {text.partition(" AS ")[0] for text in of("FROM")}


def test_the_context_is_small():
    """.dockerignore allows exactly the files that the Dockerfile copies."""
    lines = (ROOT / ".dockerignore").read_text().split()
    allowed = {line[1:] for line in lines if line.startswith("!")}
    assert allowed == {shlex.split(text)[0] for text in of("COPY", stage=0)}
