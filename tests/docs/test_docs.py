"""The pages of docs/: every YAML block is valid, every command runs or at least exists, and every link has a target."""

import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.kit import reader
from vdev import cli, config

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
LINK = re.compile(r"\]\((?!https?:)([^)#]+)(#[^)]*)?\)")
FOREIGN = {"kubectl", "helm", "kind", "k3d", "minikube", "docker", "git", "cd", ".venv/bin/python"}
FOREIGN |= {"export", "unset", "k3s", ".venv/bin/pip"}
FOREIGN |= {"systemctl", "pipx", "python3", "/opt/vdev/bin/pip", "install", "ln", "rm"}

by_page = pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(DOCS)))


def blocks(page):
    return reader.blocks(page.read_text())


def commands(block):
    """The commands of a shell block, with continued lines joined and `&&` split."""
    lines = block.text.replace("\\\n", " ").splitlines()
    return [part.strip() for line in lines for part in line.partition(" #")[0].split("&&") if part.strip()]


def test_yaml_blocks_are_valid(subtests):
    """A block with `version` is a configuration; other blocks are Kubernetes objects."""
    for page in PAGES:
        with subtests.test(page=page):
            for block in blocks(page):
                if block.language != "yaml" or block.mark == "fragment":
                    continue
                for document in yaml.safe_load_all(block.text):
                    if "version" in document:
                        assert () == config.load_text(block.text, page.name).errors
                    elif document.get("kind") not in (None, "Kustomization", "Cluster"):
                        kubernetes_validate = pytest.importorskip("kubernetes_validate")
                        kubernetes_validate.validate(document, "1.36", strict=True)


@by_page
def test_commands_run(page, tmp_path):
    """Commands marked `run` succeed, with the page's named files and installed extras."""
    for block in blocks(page):
        if block.file:
            (tmp_path / block.file).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / block.file).write_text(block.text)
    environ = reader.environ(page.read_text(), tmp_path)
    if reader.has_cel(page.read_text()):
        pytest.importorskip("cel_expr_python", reason="cel-expr-python, which evaluates selectors, is not installed")
    for block in blocks(page):
        for command in commands(block) if block.mark == "run" else ():
            done = subprocess.run(
                command, shell=True, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False, timeout=60
            )
            assert done.returncode == 0, f"{command}: {done.stderr}"


def test_files_are_introduced(subtests):
    """A command uses only files that the page creates or that are in the repository."""
    for page in PAGES:
        with subtests.test(page=page):
            made = {block.file for block in blocks(page)}
            for block in blocks(page):
                for command in commands(block) if block.mark in {"run", "journey"} else ():
                    made |= set(re.findall(r"> (\S+)$", command))
                    named = re.findall(r"(?<![\w/.-])[\w./-]+\.yaml", command)
                    assert {each for each in named if not (ROOT / each).exists()} <= made, command


def test_commands_exist(subtests):
    """A command that needs a cluster is a known program, with targets of the Makefile and files that exist."""
    for page in PAGES:
        with subtests.test(page=page):
            targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
            for block in blocks(page):
                for command in commands(block) if block.mark == "cluster" else ():
                    program, *arguments = shlex.split(command)
                    if program == "make":
                        assert {each for each in arguments if "=" not in each} <= targets
                        arguments = [each.rpartition("=")[2] for each in arguments]
                    elif program == "vdev":
                        assert arguments[0] in cli.COMMANDS
                    else:
                        assert program in FOREIGN
                    for argument in arguments:
                        if argument.startswith(("deploy/", "tests/", "requirements/")):
                            assert (ROOT / argument).exists(), argument
                        if argument.startswith("config."):  # Helm takes a dot without a backslash for a nested key
                            assert argument.startswith("config.default\\.yaml="), argument


def test_links_have_targets(subtests):
    """A relative link is a file or directory of the repository, and an anchor is a heading of its page."""
    for page in PAGES:
        with subtests.test(page=page):
            for target, anchor in LINK.findall(page.read_text()):
                path = (page.parent / target).resolve()
                assert path.exists(), target
                if anchor:
                    headings = re.findall(r"^#+ (.*)$", path.read_text(), re.MULTILINE)
                    slugs = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
                    assert anchor[1:] in slugs


def test_the_index_links_to_every_page():
    linked = {(DOCS / target).resolve() for target, _ in LINK.findall((DOCS / "README.md").read_text())}
    assert set(PAGES) - {DOCS / "README.md"} <= linked


def test_the_command_line_reference_is_complete():
    """Each command has its usage, and a described row for each flag and argument, in its section or under run."""
    page = (DOCS / "reference" / "command-line.md").read_text()
    parts = dict(re.findall(r"^#{2,3} (.*?)\n(.*?)(?=^#{2,3} |\Z)", page, re.DOTALL | re.MULTILINE))
    below = page.partition("## Options of vdev run")[2]

    def check(name, parser):
        assert f"`vdev {name.removeprefix('vdev ')}" in parts[name]
        for argument in cli.arguments_of(parser):
            for word in (argument.option_strings or [argument.metavar]) if argument.dest != "help" else ():
                row = re.compile(rf"^\|.*`\[?{re.escape(word)}[\] `].*\| \S[^|]*\S \|$", re.MULTILINE)
                assert row.search(parts[name]) or row.search(below), (name, word)
        for action, inner in cli.subcommands(parser).items():
            check(f"{name} {action}", inner)

    for name in cli.COMMANDS:
        check(f"vdev {name}", cli.subcommands(cli.parser_of([name])[0])[name])


def test_reference_is_up_to_date(monkeypatch, capsys):
    """The generated pages match the code."""
    monkeypatch.setattr(sys, "argv", ["generate.py", "--check"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(DOCS / "generate.py"), run_name="__main__")
    assert ("", 0) == (capsys.readouterr().err, ended.value.code)
