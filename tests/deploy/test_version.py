"""The version is said in one place, and everywhere else by `.ci/version`."""

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

import vdev

ROOT = Path(__file__).parents[2]
FILES = [
    "pyproject.toml",
    "vdev/__init__.py",
    "deploy/helm/vdev/Chart.yaml",
    "deploy/base/kustomization.yaml",
    "Dockerfile",
]


@pytest.fixture
def copy(tmp_path):
    """A checkout with the places alone, in which the command can be run."""
    for name in [".ci/version", *FILES]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    shutil.copytree(ROOT / "docs", tmp_path / "docs")

    def run(*arguments):
        command = [tmp_path / ".ci/version", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)

    run.root = tmp_path
    return run


def said(root):
    """What each place says."""
    chart = yaml.safe_load((root / "deploy/helm/vdev/Chart.yaml").read_text())
    (image,) = yaml.safe_load((root / "deploy/base/kustomization.yaml").read_text())["images"]
    texts = [path.read_text() for path in sorted((root / "docs").glob("*.md"))]
    return {
        tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"],
        *re.findall(r'__version__ = "(.*)"', (root / "vdev/__init__.py").read_text()),
        *re.findall("ARG VERSION=(.*)", (root / "Dockerfile").read_text()),
        *(name for text in texts for name in re.findall(r"\bvdev:(\d[\w.]*\w)", text)),
        *(name for text in texts for name in re.findall(r"/vdev@v(\d[\w.]*\w)", text)),
        chart["version"],
        chart["appVersion"],
        image["newTag"],
    }


def test_every_place_says_the_same():
    """Package, module, chart, manifests, image, pages; the action takes the chart's."""
    done = subprocess.run([ROOT / ".ci/version", "--check"], capture_output=True, text=True, check=False, timeout=30)
    assert (0, "") == (done.returncode, done.stderr)
    assert {vdev.__version__} == said(ROOT)


def test_a_new_version_is_written_everywhere(copy):
    """By one command, which leaves nothing else behind."""
    assert 0 == copy("9.8.7rc1").returncode
    assert {"9.8.7rc1"} == said(copy.root)
    assert "9.8.7rc1\n" == copy().stdout
    assert 0 == copy("--check").returncode
    copy(vdev.__version__)
    for name in FILES:
        assert (ROOT / name).read_text() == (copy.root / name).read_text()


@pytest.mark.parametrize("name", [name for name in FILES if name != "pyproject.toml"])
def test_a_place_that_is_forgotten_is_found(copy, name):
    """With what it says."""
    path = copy.root / name
    path.write_text(path.read_text().replace(vdev.__version__, "0.0.9", 1))
    done = copy("--check")
    assert 1 == done.returncode
    assert f"{name}: says '0.0.9', and pyproject.toml '{vdev.__version__}'" in done.stderr


def test_what_is_no_version_is_refused(copy):
    """It would be written into every file."""
    assert 2 == copy("v1").returncode
    assert {vdev.__version__} == said(copy.root)
