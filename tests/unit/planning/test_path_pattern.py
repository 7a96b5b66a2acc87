"""Path patterns and conditions, compared with independent implementations."""

import re
from fnmatch import fnmatchcase

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from vdev.model import path_pattern
from vdev.model import sources as attribute_match
from vdev.model.sources import AttributeTest
from vdev.planning import naming

names = st.text("ab01-.]^!", min_size=1, max_size=6)
components = st.text("ab01*?[]!-.^", min_size=1, max_size=8).filter(lambda text: "**" not in text)


@given(components, names)
@example("[!a]", "b")
@example("[]a]", "]")
@example("[a-", "[a-")
@example("[b-a]", "b")
def test_a_component_matches_like_fnmatch(component: str, name: str) -> None:
    """Except for hidden files."""
    expected = fnmatchcase(name, component) and (not name.startswith(".") or component[:1] not in ("*", "?", "["))
    assert expected == path_pattern.component_matches(component, name)


# --- captures of wildcards, compared with a search of all possibilities -----------------------------------------------


def tried(component: list[str], name: str) -> tuple[str, ...] | None:
    """The captures of one component's wildcards: each is as long as possible, the left ones first."""
    if not component:
        return None if name else ()
    token, *rest = component
    if token[0] == "*":
        splits = ((name[:end], tried(rest, name[end:])) for end in range(len(name), -1, -1))
        return next(((taken, *found) for taken, found in splits if found is not None), None)
    if not name or (token == "[" and name[0] != "[") or (token != "[" and not fnmatchcase(name[0], token)):
        return None
    found = tried(rest, name[1:])
    is_written = (len(token) == 1 and token != "?") or re.fullmatch(r"\[[^!]\]", token)
    return found if found is None or is_written else (name[0], *found)


def tokens(component: str) -> list[str]:
    """The parts of the component: runs of stars, sets, single characters."""
    return re.findall(r"\*+|\[!?+\]?+[^\]]*\]|.", component)


def tried_path(wanted: list[str], path: list[str]) -> tuple[str, ...] | None:
    """The captures of a whole path."""
    if not wanted:
        return None if path else ()
    component, *rest = wanted
    if component == "**":
        ends = range(len(path), -1 if rest else 0, -1)
        open_ends = (end for end in ends if not any(name.startswith(".") for name in path[:end]))
        splits = (("".join(f"/{name}" for name in path[:end]), tried_path(rest, path[end:])) for end in open_ends)
        return next(((taken, *found) for taken, found in splits if found is not None), None)
    if not path or (path[0].startswith(".") and component[:1] in ("*", "?", "[")):
        return None
    inside, found = tried(tokens(component), path[0]), tried_path(rest, path[1:])
    return None if inside is None or found is None else (*inside, *found)


@given(
    st.lists(components | st.sampled_from(["**", "*", "a*", ".*", "*a*b", "[ab]*a"]), min_size=1, max_size=5),
    st.lists(st.text("ab.", min_size=1, max_size=4), min_size=1, max_size=5),
)
@example(["**", "*a*a"], ["aa", "aaa"])
@example(["**", "**"], ["a", "b"])
@example(["*[ab]?"], ["abab"])
def test_captures_are_as_long_as_possible_from_the_left(wanted: list[str], path: list[str]) -> None:
    found = path_pattern.PathPattern("", tuple(wanted)).captures("/" + "/".join(path))
    assert tried_path(wanted, path) == found


@given(st.text("ab*", max_size=7), st.text("ab", max_size=8))
def test_nvidias_patterns_match_whole_texts(wanted: str, text: str) -> None:
    """The results are those of the standard library with `*` as the only wildcard."""
    assert fnmatchcase(text, wanted) == naming.matches(wanted, text)


@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        ("/dev/" + "*a" * 2000 + "b", "/dev/" + "a" * 4000),
        ("/" + "**/*a*/" * 50 + "x", "/" + "a/" * 2000 + "y"),
        ("/**" * 300 + "/x", "/a" * 2000),
        ("/" + "*[a-b]" * 1000 + "*c", "/" + "ab" * 2000),
    ],
)
def test_a_hostile_pattern_ends(wanted: str, text: str) -> None:
    """A search of all possibilities would not end."""
    assert not naming.matches(wanted, text)
    assert not attribute_match.meets(AttributeTest("", wanted), text)


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
    """From left to right; a character in brackets is not a wildcard."""
    assert captures == path_pattern.parse(text).captures(path)


def test_conditions(subtests):
    """Each operator, with a value and without."""
    cases = [
        ("", "046d", "046d", True),
        ("", "10DE", "0x10de", True),
        ("", "0x03*", "0x030000", True),
        ("", "HD *", "HD Pro", True),
        ("", "hd *", "HD Pro", False),
        ("", "*", None, False),
        ("in", ("a", "b"), "b", True),
        ("in", ("a", "b"), "c", False),
        ("notIn", ("a", "b"), "c", True),
        ("notIn", ("a", "b"), None, True),
        ("notIn", ("a", "b"), "a", False),
        ("exists", True, "", True),
        ("exists", True, None, False),
        ("exists", False, None, True),
        (">=", "16", "0x10", True),
        (">=", "16", "15.9", False),
        (">", "1", "1", False),
        ("<", "0", "-1", True),
        ("<=", "4", "4", True),
        ("<=", "4", "many", False),
        ("<=", "4", None, False),
        (">", "0x10", "17", True),
        (">", "4", "inf", False),
        (">", "4", "1_000", False),
        (">", "4", "0x" + "f" * 300, False),
    ]
    for operator, operand, value, expected in cases:
        with subtests.test(operator=operator):
            assert expected == attribute_match.meets(AttributeTest(operator, operand), value)
