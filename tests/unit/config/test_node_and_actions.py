"""`virtual.node` and the ownership actions: valid values, and errors with their places."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import yaml

from tests.kit.refused import check_refusals, refusals
from vdev import config

SCHEMA = jsonschema.Draft202012Validator(
    json.loads((Path(__file__).parents[3] / "configs/vdev.schema.json").read_text())
)
NODE = "devices: [{name: a, resource: example.com/a, virtual: {count: 2, node: {%s}}}]"


def node(text: str) -> Any:
    """The placeholder node of a configuration."""
    (entry,) = config.load_text(NODE % text).spec.entries
    assert entry.virtual is not None
    return entry.virtual.node


def test_valid_nodes(subtests):
    """The loader and the published schema accept each kind, and the rendered configuration loads to the same."""
    cases = [
        ("like: null", "like"),
        ('like: "null", permissions: r', "like"),
        ("like: zero, containerPath: '/dev/a{index}'", "like"),
        ("pty: echo", "pty"),
        ("pty: script, answers: {AT: OK}", "pty"),
        ("pty: script, otherwise: ERROR", "pty"),
        ("file: ''", "file"),
        ("file: x, readOnly: true", "file"),
        ("directory: {}", "directory"),
        ("directory: {a: b}", "directory"),
    ]
    for text, kind in cases:
        with subtests.test(text=text):
            assert getattr(node(text), kind) is not None
            SCHEMA.validate(yaml.safe_load(NODE % text))
            loaded = config.load_text(NODE % text)
            assert loaded.spec == config.load_text(config.render(loaded.origins())).spec


def test_errors_in_a_node(subtests):
    cases = [
        ("", "virtual.node: nothing says what the node is; give exactly one of like, pty, file, directory"),
        ("like: null, file: x", "virtual.node: like and file exclude each other"),
        (
            "like: full",
            "virtual.node.like: the string 'full' is not allowed here; did you mean 'null'? expected null, zero",
        ),
        ("pty: script", "virtual.node.pty: pty script needs answers, or otherwise"),
        ("pty: echo, answers: {A: B}", "virtual.node.pty: answers are for pty script only"),
        ("file: x, permissions: rw", "virtual.node.permissions: permissions is for like only, and this is file"),
        ("like: zero, readOnly: true", "virtual.node.readOnly: readOnly is for file and directory only"),
        ("directory: {a/b: c}", "'a/b' is not allowed; expected a file's name, without '/'"),
        ("directory: {..: c}", "'..' is not allowed"),
        ("file: '{bogus}'", "virtual.node.file: unknown placeholder {bogus}"),
        ("like: null, containerPath: dev/x", "'dev/x' is not an absolute path"),
    ]
    check_refusals(subtests, cases, NODE % "@")


def test_too_many_serial_lines_are_refused() -> None:
    """The machine has few pseudoterminals."""
    (problem,) = refusals((NODE % "pty: echo").replace("count: 2", "count: 2000"))
    assert "2000 serial lines; an entry may have at most 1024" in problem


def test_errors_in_an_action(subtests):
    cases = [
        ("ifReleaseFails: continue", "ifReleaseFails: ifReleaseFails is for onRelease only"),
        (
            "onRelease: [{truncate: /a}], ifReleaseFails: never",
            "ifReleaseFails: the string 'never' is not allowed here",
        ),
        ("onAllocate: [{}]", "onAllocate[0]: the action does nothing"),
        ("onAllocate: [{command: [a], chmod: /b}]", "onAllocate[0]: command and chmod exclude each other"),
        ("onRelease: [{truncate: /a, mode: '0600'}]", "onRelease[0].mode: mode is for chmod only"),
        ("onRelease: [{truncate: /a, timeout: 1s}]", "onRelease[0].timeout: timeout is for command only"),
        ("preStart: [{chmod: /a, mode: 0600}]", 'write it in quotes: "0600"'),
        ("preStart: [{chmod: /a, mode: '4755'}]", "'4755' is not allowed"),
        ("preStart: [{command: [a], timeout: 26s}]", "26 seconds are too long"),
        ("onAllocate: [{command: [a], timeout: 0s}]", "0 s is out of range"),
        ("onAllocate: [{truncate: a}]", "'a' is not an absolute path; it must start with '/' or {path}"),
        ("onAllocate: [{truncate: /a/../b}]", "contains '..'"),
        ("onAllocate: [{command: a b}]", "expected a list"),
    ]
    check_refusals(subtests, cases, "devices: [{name: a, resource: example.com/a, virtual: {count: 2}, @}]")
