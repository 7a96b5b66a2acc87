"""Go's patterns and expressions as patterns of vdev: they match the same paths, or are marked as not exact."""

import re
from itertools import product

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from vdev.importers.go_patterns import NotAPatternError, glob, regex
from vdev.model.path_pattern import matches_any, problem

NAMES = st.text(alphabet="ab01/", min_size=1, max_size=6).filter(
    lambda text: not text.startswith("/") and not text.endswith("/") and "//" not in text
)
ATOMS = st.sampled_from(["a", "b", "0", "ab", "[0-9]", "[a-b]", "[01]", r"\d"])
SIGNS = st.sampled_from(["", "", "", "*", "+", "?", "{1,2}", "{2}"])
PIECES = st.lists(st.tuples(ATOMS, SIGNS).map("".join), min_size=1, max_size=4).map("".join)
BODIES = st.lists(PIECES, min_size=1, max_size=2).map("|".join).map(lambda text: f"({text})" if "|" in text else text)


def found(text: str, path: str) -> bool:
    """Whether the patterns match the path."""
    full = f"/dev/{path}"
    patterns = regex(text, "/dev").patterns
    return any(matches_any(full, [pattern]) and not matches_any(full, exclude) for pattern, exclude in patterns)


SHORT = ["".join(letters) for size in range(1, 4) for letters in product("ab01", repeat=size)]


@given(BODIES, NAMES, st.sampled_from(["^", ""]), st.sampled_from(["$", ""]))
def test_an_expression_finds_at_least_what_it_should(body: str, path: str, head: str, tail: str) -> None:
    """An exact result matches the same paths; another one matches at least these."""
    text = f"{head}{body}{tail}"
    try:
        made = regex(text, "/dev")
    except NotAPatternError:
        assume(False)
    for each in (path, *SHORT):
        wanted = re.search(text, each) is not None
        assert found(text, each) is wanted or not (wanted or made.exact), each


@given(st.text(alphabet="^$|()[]{}*+?.\\ab01-/!", max_size=12))
def test_any_text_makes_patterns_or_a_reason(text: str) -> None:
    """The patterns are valid in vdev."""
    try:
        made = regex(text, "/dev")
    except NotAPatternError:
        pass
    else:
        assert all(problem(each)[0] == "" for pattern, exclude in made.patterns for each in (pattern, *exclude)), made


def test_common_expressions(subtests):
    cases = [
        ("^video[0-9]*$", ("/dev/video*",), ("/dev/video*[!0-9]*",)),
        ("^vchiq$", ("/dev/vchiq",), ()),
        ("^tty(USB|ACM)[0-9]+$", ("/dev/ttyUSB[0-9]*", "/dev/ttyACM[0-9]*"), None),
        ("^net/tun$", ("/dev/net/tun",), ()),
        ("^snd", ("/dev/snd*", "/dev/snd*/**"), ()),
        ("video", ("/dev/**/*video*", "/dev/**/*video*/**"), ()),
        (r"^gpio\.0$|^x$", ("/dev/gpio.0", "/dev/x"), ()),
        ("^vcsm.*$", ("/dev/vcsm*", "/dev/vcsm*/**"), ()),
    ]
    for text, patterns, exclude in cases:
        with subtests.test(text=text):
            made = regex(text, "/dev")

            assert (patterns, True) == (tuple(pattern for pattern, _ in made.patterns), made.exact)
            if exclude is not None:
                assert {exclude} == {left_out for _, left_out in made.patterns}


def test_expressions_without_a_pattern(subtests):
    for text in [r"^\bx$", "(?i)x", "a{99}", "(ab)*", "^a$b", "[[:alpha:]]", "x{2,1}", "(", ")"]:
        with subtests.test(text=text), pytest.raises(NotAPatternError):
            regex(text, "/dev")


def test_globs(subtests):
    cases = [
        ("/dev/ttyUSB*", "/dev/ttyUSB*"),
        ("/dev/tty[^0]", "/dev/tty[!0]"),
        ("/dev/**/x", "/dev/*/x"),
        (r"/dev/a\*b", "/dev/a[*]b"),
        ("/dev/{a,b}", "/dev/[{]a,b}"),
    ]
    for go, ours in cases:
        with subtests.test(go=go):
            assert ours == glob(go)
