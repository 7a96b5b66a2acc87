"""What files of others in the CDI directory define, whatever is in them."""

import json
import tempfile
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from vdev.agent.outputs.cdi.cdi_foreign import MAX_DEPTH, ForeignFiles

KIND = "acme.dev/npu"
A, B = (KIND, "a"), (KIND, "b")


def defined(directory: Path, *wanted: tuple[str, str]) -> dict[tuple[str, str], str]:
    """File names by the wanted devices that they define."""
    found = ForeignFiles(directory).defining(wanted or (A, B), besides=("ours.json",))
    return {name: Path(path).name for name, path in found.items()}


@pytest.mark.parametrize(
    "text",
    [
        "kind: acme.dev/npu\ndevices:\n- name: a\n",
        "devices:\n- containerEdits: {env: [name=b]}\n  name: 'a'\nkind: acme.dev/npu\n",
        "? [x, {y: z}]\n: {kind: x}\nkind: acme.dev/npu\ndevices: [{other: {name: b}, name: a}]\n---\nkind: y\n",
        "x: &x {name: b}\nkind: acme.dev/npu\ndevices: [{name: a, more: *x}, b, [{name: b}]]\n",
        json.dumps({"kind": KIND, "devices": [{"name": "a"}]}),
    ],
)
def test_yaml(tmp_path: Path, text: str) -> None:
    """Names and kind are found wherever YAML lets them stand, and other keys called `name` are not taken for them."""
    (tmp_path / "theirs.yaml").write_text(text)
    assert {A: "theirs.yaml"} == defined(tmp_path)


def test_our_own_and_others_suffixes_are_not_looked_at(tmp_path: Path) -> None:
    """Runtimes read .json, .yaml and .yml."""
    text = json.dumps({"kind": KIND, "devices": [{"name": "a"}]})
    for name in ("ours.json", "theirs.txt", "theirs"):
        (tmp_path / name).write_text(text)
    assert {} == defined(tmp_path)
    (tmp_path / "theirs.yml").write_text(text)
    assert {A: "theirs.yml"} == defined(tmp_path)


def test_a_file_that_changes_is_read_again(tmp_path: Path) -> None:
    """And one that stays is not."""
    files, path = ForeignFiles(tmp_path), tmp_path / "theirs.json"
    path.write_text(json.dumps({"kind": KIND, "devices": [{"name": "a"}]}))
    assert {A: str(path)} == files.defining((A, B), besides=())
    assert {A: str(path)} == files.defining((A, B), besides=())
    path.write_text(json.dumps({"kind": KIND, "devices": [{"name": "b"}, {"name": "c"}]}))
    assert {B: str(path)} == files.defining((A, B), besides=())
    path.unlink()
    assert {} == files.defining((A, B), besides=())


def test_depth_is_bounded(tmp_path: Path) -> None:
    """As deep as any specification goes, and no deeper."""
    for name, depth in (("a", MAX_DEPTH - 1), ("b", MAX_DEPTH)):
        text = f"kind: {KIND}\ndevices: [{{name: {name}}}]\nx: {'[' * depth}{']' * depth}\n"
        (tmp_path / f"{name}.yaml").write_text(text)
    assert {A: "a.yaml"} == defined(tmp_path)


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.sampled_from([KIND, "a", "b"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["kind", "devices", "name", "x"]), inner, max_size=4)
    ),
    max_leaves=20,
)


def plainly(document: object) -> set[tuple[str, str]]:
    """What a document defines, read off its value."""
    match document:
        case {"kind": str(kind), "devices": [*devices]}:
            found = (each.get("name") for each in devices if isinstance(each, dict))
            return {(kind, name) for name in found if isinstance(name, str)} & {A, B}
    return set()


@given(document=_VALUES)
def test_both_forms_say_what_the_document_says(document: object) -> None:
    """The readers find what a parser that builds everything finds."""
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "it.json").write_text(json.dumps(document))
        assert plainly(document) == set(defined(Path(name)))
        (Path(name) / "it.json").rename(Path(name) / "old")
        (Path(name) / "it.yaml").write_text(yaml.safe_dump(document))
        assert plainly(document) <= set(defined(Path(name)))


@given(data=st.binary(max_size=200), suffix=st.sampled_from([".json", ".yaml"]))
def test_no_bytes_make_it_fail(data: bytes, suffix: str) -> None:
    """Whatever somebody writes there."""
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / f"it{suffix}").write_bytes(data)
        defined(Path(name))
