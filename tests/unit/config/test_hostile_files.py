"""Valid YAML with a hostile key or value anywhere: the result is a configuration or ConfigError.

Because the YAML is valid, the tests reach the code behind the parser: the schema, checks across keys, the trial of
`vdev validate`, and `vdev plan`.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.kit.previews import preview
from vdev import config
from vdev.config.loader import FileTexts
from vdev.config.presets import load_preset
from vdev.errors import ConfigError
from vdev.model.spec import Spec
from vdev.planning.plan import prove

EVERYTHING = yaml.safe_load((Path(__file__).parent / "everything.yaml").read_text())
"""A valid file that has every key of the schema."""

Steps = tuple[str | int, ...]


def steps(tree: Any, at: Steps = ()) -> Iterator[Steps]:
    """The path to every value below the top."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for step, value in items:
        yield (*at, step)
        yield from steps(value, (*at, step))


def at(tree: Any, place: Steps) -> Any:
    """The value at this path."""
    for step in place:
        tree = tree[step]
    return tree


PLACES = list(steps(EVERYTHING))
MAPPINGS = [(), *(place for place in PLACES if isinstance(at(EVERYTHING, place), dict) and "match" not in place[:-1])]
KEYS = sorted({step for place in PLACES for step in place if isinstance(step, str)})
TEXTS = [
    *("", "[key]", "0", "*", "**", "[", "[]", "[!", "[b-a]", "{", "{id}", "{{", "~", "on", "null"),
    *(".", "..", "/", "//", "/..", "../..", "/" + "x" * 300, "/" + "x/" * 3000),
    *("\0", "a\0b", "\n", "\x7f", "\x85", "\u202e", "İ", "ﬀ", "🦆", "٣", "²", "x" * 300, "9" * 5000),
    *("-1", "0x10", "1e9", "1e999", "nan", ".inf", "0-1", "1-0", "0:0", "::", "a/0", "0-999999999", "99999999999h"),
    *("100%", "99999999999999999999Ei", "GPU-", "MIG-GPU-0/0/0", "1g.5gb@9", "@", "<<", "&a", "*a", "%s", "{0}"),
    *("gpu", "nvidia.com/gpu", "a.b/" + "c" * 63),
]
NUMBERS = [0, 1, -1, 2, 49, 2**31, 2**63, 2**64, 10**30, -(10**30), 0.5, -0.0, 1e308, 200_001, True, False, None]
SCALARS = st.sampled_from([*TEXTS, *NUMBERS])
NAMES = st.sampled_from([*KEYS, *TEXTS])
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(NAMES, inner, max_size=2), max_leaves=4
)
HARD = settings(max_examples=settings().max_examples * 3 // 5)  # each example is read four times


def changed(tree: Any, place: Steps, change: Callable[[Any, str | int], None]) -> Any:
    """A copy of the tree with a change at one place; if the place no longer exists, an unchanged copy."""
    copy = json.loads(json.dumps(tree))
    inner = copy
    try:
        for step in place[:-1]:
            inner = inner[step]
        inner[place[-1]]
    except (KeyError, IndexError, TypeError):
        return copy
    change(inner, place[-1])
    return copy


def put(value: Any) -> Callable[[Any, str | int], None]:
    """A change that sets a value."""
    return lambda parent, step: parent.__setitem__(step, value)


def added(name: str, value: Any) -> Callable[[Any, str | int], None]:
    """A change that adds a key to a mapping or an item to a list."""
    return lambda parent, _: parent.append(value) if isinstance(parent, list) else parent.__setitem__(name, value)


def renamed(name: str) -> Callable[[Any, str | int], None]:
    """A change that renames a key."""
    return lambda parent, step: None if isinstance(parent, list) else parent.__setitem__(name, parent.pop(step))


def removed(parent: Any, step: str | int) -> None:
    """A change that removes the value."""
    del parent[step]


CHANGES = st.one_of(
    st.builds(put, VALUES), st.builds(added, NAMES, VALUES), st.builds(renamed, NAMES), st.just(removed)
)


def refused(act: Callable[[], object]) -> bool:
    """Whether `act` raises ConfigError with printable problems. Other exceptions fail the test."""
    try:
        act()
    except ConfigError as error:
        for problem in error.problems:
            str(problem).encode()
        return bool(error.problems)
    return False


def survives(text: str, file: Path) -> None:
    """Load the text fully and partially, render it, validate it and plan with it."""
    file.write_text(text)

    def shown() -> None:
        loaded = config.load([file])
        config.render(loaded.origins()).encode()
        for problem in prove(loaded.spec):
            str(problem).encode()

    whole, part = refused(shown), refused(lambda: config.load([file], partial=True))
    assert whole or not part
    preview([file], node="n1", host_root=file.parent)


def test_the_file_has_every_key_of_the_schema(tmp_path: Path) -> None:
    """It is valid too, so a changed value is the only error."""
    schema = config.json_schema()
    models = [schema, *schema["$defs"].values()]
    missing = {key for model in models for key in model.get("properties", {})} - {*KEYS, "mps", "bus", "presetsDir"}
    assert missing == set(), "add these keys to everything.yaml"
    assert not refused(lambda: config.load_text(json.dumps(EVERYTHING)))


@HARD
@given(st.lists(st.tuples(st.sampled_from(PLACES), CHANGES), min_size=1, max_size=3))
def test_hostile_values(tmp_path_factory, changes) -> None:
    """Change one to three places of a valid file."""
    tree = EVERYTHING
    for place, change in changes:
        tree = changed(tree, place, change)
    survives(json.dumps(tree), tmp_path_factory.getbasetemp() / "hostile.yaml")


@HARD
@given(st.sampled_from(MAPPINGS))
@example(next(place for place in MAPPINGS if place[-1:] == ("usb",)))  # a single item for a list
def test_a_key_that_looks_like_pydantics_marker(place: Steps) -> None:
    """Pydantic marks a wrong key by `[key]` at the end of its location; a file may have such a key."""
    tree = json.loads(json.dumps(EVERYTHING))
    at(tree, place)["[key]"] = [1]
    assert refused(lambda: config.load_text(json.dumps(tree), "f"))


@pytest.mark.parametrize(
    "text",
    [
        '"[key]": 1',
        'partitioning: {profiles: {"[key]": {"[key]": 1}}}',
        "count: 5000\nlinks: [[" + ",".join(map(str, range(5000))) + "]]",
        "count: 1000000000000",
        "base: p",
        'base: "\\0"',
        "deviceNodes: [{path: '/dev/x{index'}]",
    ],
)
def test_hostile_presets(text: str, tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(text)
    assert refused(lambda: load_preset("p", FileTexts(preset_dirs=[tmp_path])))
    entry = "devices: [{name: a, resource: a.b/c, virtual: {preset: p}}]"
    assert refused(lambda: config.load_text(entry, preset_dirs=(tmp_path,)))


def test_hostile_rules(subtests):
    """Rules from the control socket or the fault directory."""
    for text in [
        '"[key]": 1',
        'rules: {"[key]": 1}',
        'rules: [{"[key]": 1}]',
        'faults: {"[key]": 1}',
        "rules: 1",
        "{}",
        "[]",
        "~",
    ]:
        with subtests.test(text=text):
            assert refused(lambda: config.load_rules(text, "f", Spec()))


@HARD
@given(st.sampled_from(PLACES), st.sampled_from(PLACES))
@example(("devices",), ("devices", 0))
def test_aliases_and_merge_keys_anywhere(tmp_path_factory, source: Steps, target: Steps) -> None:
    """Anchor a value at one place and use it at another, also inside itself, as a value and as a merge."""
    anchored = changed(
        EVERYTHING, source, lambda parent, step: parent.__setitem__(step, ["ANCHOR", parent[step], "END"])
    )
    for use in (put("ALIAS"), added("MERGE", "ALIAS")):
        text = json.dumps(changed(anchored, target, use))
        text = text.replace('["ANCHOR", ', "&a ").replace(', "END"]', "").replace('"ALIAS"', "*a")
        survives(text.replace('"MERGE"', "<<"), tmp_path_factory.getbasetemp() / "alias.yaml")


@pytest.mark.parametrize("opening", ["[", "{", "- ", "? ", "[{a: ", "{? ["])
@pytest.mark.parametrize("depth", [65, 5000, 100_000])
def test_deep_nesting_is_refused(opening: str, depth: int) -> None:
    assert refused(lambda: config.load_text("devices: " + "\n" * (opening in "- ? ") + opening * depth))
