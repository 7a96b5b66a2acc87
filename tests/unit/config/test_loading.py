"""From files to a tree: errors in the text itself."""

import os
from pathlib import Path

import pytest

from vdev import config
from vdev.config.loader import decoded, read_text
from vdev.errors import ConfigError

MINIMAL = "version: v1\ndevices:\n  - name: a\n    resource: example.com/a\n    virtual: {count: 1}\n"


def refused(text: str | bytes) -> str:
    """The error text."""
    with pytest.raises(ConfigError) as caught:
        read_text(decoded(text if isinstance(text, bytes) else text.encode(), "f.yaml"), "f.yaml")
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        pytest.param("", "f.yaml: ", "is empty", id="empty"),
        pytest.param("# only a comment\n", "f.yaml: ", "is empty", id="comment"),
        pytest.param("a: 1".encode("utf-16"), "f.yaml:1:1: ", "not UTF-8", id="utf-16 with BOM"),
        pytest.param(b"a: 1\nb: \xff\n", "f.yaml:2:4: ", "not UTF-8", id="not utf-8"),
        pytest.param("a: \0", "f.yaml:1:4: ", "U+0000", id="NUL"),
        pytest.param('a: "\x1b"', "f.yaml:1:5: ", "U+001B", id="control character"),
        pytest.param("- a\n", "f.yaml:1:1: ", "expected a mapping", id="list"),
        pytest.param("hello\n", "f.yaml:1:1: ", "expected a mapping", id="text"),
        pytest.param("a:\n\tb: 1\n", "f.yaml:2:1: ", "tab", id="tab"),
        pytest.param("a: 1\n---\nb: 2\n", "f.yaml:2:1: ", "second document", id="two documents"),
        pytest.param("a: {b: 4\n", "f.yaml:1:4: ", "file ends too early", id="cut in a mapping"),
        pytest.param('a: "b\n', "f.yaml:1:4: ", "file ends too early", id="cut in a text"),
        pytest.param("a: [\n  {b: 4},\n\nc: {}\n", "f.yaml:1:4: ", "file ends too early", id="open list of lines"),
        pytest.param("a: {\n  b: 4\n", "f.yaml:1:4: ", "file ends too early", id="open mapping of lines"),
        pytest.param("a: {b: 4\nc: 5\n", "f.yaml:1:4: ", "nothing closes it before line 2", id="open mapping"),
        pytest.param("a: [b, c\nd: [e]\n", "f.yaml:1:4: ", "nothing closes it before line 2", id="open list"),
        pytest.param("a: {\n  b: 4\n  c: 5\n}\n", "f.yaml:3:4: ", "did not find expected ','", id="no comma"),
        pytest.param('{"a": [\n  "b"\n  "c"\n]}\n', "f.yaml:3:3: ", "did not find expected ','", id="no comma in JSON"),
        pytest.param("a: {b: 4 c: 5}\n", "f.yaml:1:11: ", "did not find expected ','", id="no comma in a line"),
        pytest.param("a: b\nc d\ne: f\n", "f.yaml:2:1: ", "is there a ':' after the key?", id="no colon"),
        pytest.param("a:\n  b:c\n  d: e\n", "f.yaml:3:4: ", "space after the ':' in the line above", id="no space"),
        pytest.param(
            "a: *video\n", "f.yaml:1:4: ", "undefined alias 'video'; quote a pattern that begins with '*'", id="pattern"
        ),
        pytest.param("a: *-gpu.*\n", "f.yaml:1:9: ", "quote a pattern that begins with '*'", id="other pattern"),
        pytest.param('{"a": "\\ud83d\\ude00"}', "f.yaml:1:10: ", "write the character itself", id="surrogates"),
        pytest.param("a: @b\n", "f.yaml:1:4: ", "quote a text that begins with '@'", id="at"),
        pytest.param("a: [1, 2]]\n", "f.yaml:1:10: ", "is not YAML", id="syntax"),
        pytest.param("a: !!python/object:os.system x\n", "f.yaml:1:4: ", "is not supported", id="python tag"),
        pytest.param("a: !!binary eA==\n", "f.yaml:1:4: ", "is not supported", id="binary"),
        pytest.param("{a: b}: c\n", "f.yaml:1:1: ", "a key must be a string", id="mapping as a key"),
        pytest.param("~: c\n", "f.yaml:1:1: ", "a key is missing", id="no key"),
        pytest.param("a: *b\n", "f.yaml:1:4: ", "undefined alias 'b'", id="alias without an anchor"),
        pytest.param("a: &a [*a]\n", "f.yaml:1:4: ", "levels deep, with aliases", id="endless alias"),
        pytest.param("a: " + "[" * 100_000, "f.yaml:1:", "levels deep", id="deep flow"),
        pytest.param("{a: " * 100_000, "f.yaml:1:", "levels deep", id="deep mappings"),
        pytest.param("- " * 100_000, "f.yaml:1:", "levels deep", id="deep block"),
        pytest.param("a: [" + "a," * 200_000, "f.yaml:1:", "more than 100000 values", id="many values"),
        pytest.param("a: " + "x" * 200_000, "f.yaml:1:4: ", "at most 131072", id="long text"),
        pytest.param(b"a" * (8 * 2**20 + 1), "f.yaml: ", "larger than 8 MiB", id="large file"),
    ],
)
def test_broken_text_is_refused_with_its_place(text: str | bytes, place: str, words: str) -> None:
    message = refused(text)
    assert message.startswith(place)
    assert words in message


def test_an_anchor_bomb_is_refused() -> None:
    """Expanded aliases count against the limit on values."""
    lines = ["a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [f"{b}: &{b} [{', '.join([f'*{a}'] * 10)}]" for a, b in zip("abcdefgh", "bcdefghi", strict=True)]
    assert "more than 100000 values, with aliases and merge keys expanded" in refused("\n".join(lines))


KEYS = ", ".join(f"k{number}: 1" for number in range(500))


@pytest.mark.parametrize(
    "merge",
    [
        pytest.param(f"[{', '.join(['{<<: [*a, *a]}'] * 150)}]", id="twice in many mappings"),
        pytest.param(f"{{{', '.join(['<<: *l'] * 500)}}}", id="a list, many times"),
    ],
)
def test_merged_pairs_count_against_the_limit_on_values(merge: str) -> None:
    """They also count if another source has the same key."""
    anchors = f"a: &a {{{KEYS}}}\nl: &l [{', '.join(['*e'] * 500)}]\n"
    text = f"e: &e {{}}\n{anchors}c: {merge}"
    assert "more than 100000 values, with aliases and merge keys expanded" in refused(text)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        pytest.param(lambda path: path, "No such file", id="missing"),
        pytest.param(lambda path: path.parent, "is a directory", id="directory"),
        pytest.param(lambda path: path / "\0", "cannot be read", id="NUL in the name"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(make: object, words: str, tmp_path: Path) -> None:
    """The error has the file's name and the reason."""
    path = make(tmp_path / "missing.yaml")  # type: ignore[operator]
    with pytest.raises(ConfigError, match=words) as caught:
        config.load([path])
    assert str(caught.value).startswith(str(path))


def test_a_config_map_is_not_a_configuration() -> None:
    """The error names the key whose value is the configuration."""
    message = refused("apiVersion: v1\nkind: ConfigMap\ndata:\n  config.yaml: |\n    version: v1\n")
    assert "Kubernetes object of kind ConfigMap" in message
    assert 'data["config.yaml"]' in message


def test_duplicate_keys_name_both_places() -> None:
    """The second key has the error, with the place of the first."""
    with pytest.raises(ConfigError) as caught:
        config.load_text("version: v1\nflags: {}\nflags: {}\ndevices: []\n", "f.yaml")
    assert "f.yaml:3:1: flags: key 'flags' is given twice; the first is at f.yaml:2:1" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("a: {b: 1}\nc: {<<: {b: 2, d: 3}, b: 4}", {"b": "4", "d": "3"}, id="own keys win"),
        pytest.param("a: &a {b: 1}\nc: {<<: *a}", {"b": "1"}, id="alias"),
        pytest.param("a: &a {b: 1}\ne: &e {b: 2, f: 3}\nc: {<<: [*a, *e]}", {"b": "1", "f": "3"}, id="first wins"),
        pytest.param("a: &a {b: 1}\nc: {<<: {<<: *a, d: 3}, b: 4}", {"b": "4", "d": "3"}, id="merges in each other"),
        pytest.param("a: &a {b: 1}\na2: &a {b: 2}\nc: *a", {"b": "2"}, id="an anchor that is defined again"),
        pytest.param("&c c: &v {x: *c}", {"x": "c"}, id="an anchored key"),
        pytest.param('c: {"<<": x}', {"<<": "x"}, id="quoted is a key"),
    ],
)
def test_merge_keys_follow_yaml_rules(text: str, expected: dict[str, str]) -> None:
    """A mapping's own keys take precedence over merged keys, and earlier sources over later ones."""
    assert expected == read_text(text, "f").root["c"]


def test_duplicate_keys_of_a_merged_mapping_are_errors() -> None:
    """They are reported where they are, and once for a mapping that is merged in several places."""
    first = "the first is at f.yaml:3:12; remove one of them"
    with pytest.raises(ConfigError) as caught:
        config.load_text("version: v1\ndevices:\n- {<<: &a {name: a, name: b}}\n- {<<: *a}\n", "f.yaml")
    twice = [str(each) for each in caught.value.problems if "given twice" in str(each)]
    assert [f"f.yaml:3:21: devices[0].name: key 'name' is given twice; {first}"] == twice


def test_only_mappings_can_be_merged(subtests):
    for value in ["x", "[x]", "[[a]]", "[]"]:
        with subtests.test(value=value):
            assert "merge" in refused(f"c: {{<<: {value}}}")


def test_an_error_in_an_alias_is_at_its_anchor() -> None:
    text = MINIMAL + "sharing: {timeSlicing: {resources: [&r {name: x, replicas: 1}, *r]}}\n"
    with pytest.raises(ConfigError, match=r"f:6:60: sharing.timeSlicing.resources\[1\].replicas"):
        config.load_text(text, "f")


def test_a_section_in_two_files_names_both_places(tmp_path: Path) -> None:
    one, two = tmp_path / "a.yaml", tmp_path / "b.yaml"
    one.write_text(MINIMAL)
    two.write_text("version: v2\ndevices: []\n")
    with pytest.raises(ConfigError) as caught:
        config.load([one, two])
    text = str(caught.value)
    assert f"{two}:2:1: devices: section 'devices' is in two files; the other is at {one}:2:1" in text
    assert f"{two}:1:10: version: version v2 differs from v1" in text


def test_a_preset_that_is_a_pipe_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x1.yaml")
    text = "devices: [{name: a, resource: example.com/a, virtual: {preset: x1}}]"
    with pytest.raises(ConfigError, match="is not a plain file"):
        config.load_text(text, preset_dirs=[tmp_path])


def test_a_pipe_of_the_shell_is_read() -> None:
    """As in `helm template … | vdev validate /dev/stdin` and `<(…)`: the other end is already open."""
    read_end, write_end = os.pipe()
    try:
        os.write(write_end, MINIMAL.encode())
        os.close(write_end)
        assert 1 == len(config.load([Path(f"/dev/fd/{read_end}")]).spec.entries)
    finally:
        os.close(read_end)
