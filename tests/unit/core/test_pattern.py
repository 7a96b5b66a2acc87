"""Path patterns and conditions, against independent judges."""

from fnmatch import fnmatchcase

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from vdev.core import match, pattern
from vdev.core.spec import Condition, Operator

names = st.text("ab01-.]^!", min_size=1, max_size=6)
components = st.text("ab01*?[]!-.^", min_size=1, max_size=8).filter(lambda text: "**" not in text)


@given(components, names)
@example("[!a]", "b")
@example("[]a]", "]")
@example("[a-", "[a-")
@example("[b-a]", "b")
def test_a_component_matches_what_fnmatch_says(component: str, name: str) -> None:
    """The standard library is the judge, but for hidden files."""
    expected = fnmatchcase(name, component) and (not name.startswith(".") or component[:1] not in ("*", "?", "["))
    assert expected == (pattern.component_regex(component).fullmatch(name) is not None)


@given(st.lists(names, max_size=4), st.lists(names, min_size=1, max_size=2))
def test_two_stars_stand_for_any_directories(between: list[str], ends: list[str]) -> None:
    """None, one or many, unless one of them is hidden."""
    path = "/" + "/".join([*between, ends[-1]])
    expected = not any(name.startswith(".") for name in between)
    wanted = pattern.Pattern("", ("**", "*")) if not ends[-1].startswith(".") else pattern.Pattern("", ("**", ".*"))
    assert expected == (wanted.captures(path) is not None)


@pytest.mark.parametrize(
    ("text", "path", "captures"),
    [
        ("/dev/snd/pcmC*D*p", "/dev/snd/pcmC1D20p", ("1", "20")),
        ("/dev/tty[AU]??*", "/dev/ttyUSB7", ("U", "S", "B", "7")),
        ("/dev/x[*]", "/dev/x*", ()),
        ("/dev/a", "/dev/b", None),
        ("/dev/**/x", "/dev/x", ("",)),
        ("/dev/*", "/dev/a/b", None),
    ],
)
def test_wildcards_capture_their_text(text: str, path: str, captures: tuple[str, ...] | None) -> None:
    """From left to right; a character in brackets is no wildcard."""
    assert captures == pattern.parse(text).captures(path)


@given(st.lists(st.integers(0, 10**6), min_size=2, max_size=8))
def test_numbers_sort_by_value(numbers: list[int]) -> None:
    """ttyUSB2 before ttyUSB10."""
    shown = sorted((f"ttyUSB{number}" for number in numbers), key=pattern.natural_key)
    assert [f"ttyUSB{number}" for number in sorted(numbers)] == shown


@given(st.lists(st.text("a1-", max_size=6), max_size=8))
def test_every_text_can_be_sorted(texts: list[str]) -> None:
    """The order is total and does not depend on the start."""
    assert sorted(texts, key=pattern.natural_key) == sorted(sorted(texts), key=pattern.natural_key)


@pytest.mark.parametrize(
    ("operator", "values", "value", "expected"),
    [
        (Operator.GLOB, ("046d",), "046d", True),
        (Operator.GLOB, ("10DE",), "0x10de", True),
        (Operator.GLOB, ("0x03*",), "0x030000", True),
        (Operator.GLOB, ("HD *",), "HD Pro", True),
        (Operator.GLOB, ("hd *",), "HD Pro", False),
        (Operator.GLOB, ("*",), None, False),
        (Operator.IN, ("a", "b"), "b", True),
        (Operator.IN, ("a", "b"), "c", False),
        (Operator.NOT_IN, ("a", "b"), "c", True),
        (Operator.NOT_IN, ("a", "b"), None, True),
        (Operator.NOT_IN, ("a", "b"), "a", False),
        (Operator.EXISTS, ("true",), "", True),
        (Operator.EXISTS, ("true",), None, False),
        (Operator.EXISTS, ("false",), None, True),
        (Operator.GE, ("16",), "0x10", True),
        (Operator.GE, ("16",), "15.9", False),
        (Operator.GT, ("1",), "1", False),
        (Operator.LT, ("0",), "-1", True),
        (Operator.LE, ("4",), "4", True),
        (Operator.LE, ("4",), "many", False),
        (Operator.LE, ("4",), None, False),
    ],
)
def test_conditions(operator: Operator, values: tuple[str, ...], value: str | None, expected: bool) -> None:
    """Each operator, with a value and without."""
    assert expected == match.meets(Condition(attribute="x", operator=operator, values=values), value)


@given(st.text(max_size=8) | st.none(), st.floats(allow_nan=False))
def test_comparisons_agree_with_each_other(value: str | None, limit: float) -> None:
    """Greater, or at most: exactly one of them holds for a number, neither for anything else."""
    above, below = (
        match.meets(Condition(attribute="x", operator=operator, values=(str(limit),)), value)
        for operator in (Operator.GT, Operator.LE)
    )
    number = match.number(value)
    assert (number is not None and number == number) == (above != below)  # noqa: PLR0124 - not a number differs from itself
