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
    patterns, _ = regex(text, "/dev")
    return any(matches_any(full, [pattern]) and not matches_any(full, exclude) for pattern, exclude in patterns)


SHORT = ["".join(letters) for size in range(1, 4) for letters in product("ab01", repeat=size)]


@given(BODIES, NAMES, st.sampled_from(["^", ""]), st.sampled_from(["$", ""]))
def test_an_expression_finds_at_least_what_it_should(body: str, path: str, head: str, tail: str) -> None:
    """An exact result matches the same paths; another one matches at least these."""
    text = f"{head}{body}{tail}"
    try:
        _, exact = regex(text, "/dev")
    except NotAPatternError:
        assume(False)
    for each in (path, *SHORT):
        wanted = re.search(text, each) is not None
        assert found(text, each) is wanted or not (wanted or exact), each


@given(st.text(alphabet="^$|()[]{}*+?.\\ab01-/!", max_size=12))
def test_any_text_makes_patterns_or_a_reason(text: str) -> None:
    """The patterns are valid in vdev."""
    try:
        patterns, _ = regex(text, "/dev")
    except NotAPatternError:
        pass
    else:
        assert not any(problem(each)[0] for pattern, exclude in patterns for each in (pattern, *exclude)), patterns


@pytest.mark.parametrize(
    ("text", "patterns"),
    [
        ("^video[0-9]*$", [("/dev/video*", ["/dev/video*[!0-9]*"])]),
        ("^vchiq$", [("/dev/vchiq", [])]),
        (
            "^tty(USB|ACM)[0-9]+$",
            [
                ("/dev/ttyUSB[0-9]*", ["/dev/ttyUSB[0-9]*[!0-9]*"]),
                ("/dev/ttyACM[0-9]*", ["/dev/ttyACM[0-9]*[!0-9]*"]),
            ],
        ),
        ("^net/tun$", [("/dev/net/tun", [])]),
        ("^snd", [("/dev/snd*", []), ("/dev/snd*/**", [])]),
        ("video", [("/dev/**/*video*", []), ("/dev/**/*video*/**", [])]),
        (r"^gpio\.0$|^x$", [("/dev/gpio.0", []), ("/dev/x", [])]),
        ("^vcsm.*$", [("/dev/vcsm*", []), ("/dev/vcsm*/**", [])]),
        ("^.*loop[0-9]*", [("/dev/**/*loop*", []), ("/dev/**/*loop*/**", [])]),
    ],
)
def test_common_expressions_are_exact(text, patterns):
    assert regex(text, "/dev") == (patterns, True)


@pytest.mark.parametrize("text", [r"^\bx$", "(?i)x", "a{99}", "(ab)*", "^a$b", "[[:alpha:]]", "x{2,1}", "(", ")"])
def test_expressions_without_a_pattern(text):
    with pytest.raises(NotAPatternError):
        regex(text, "/dev")


@pytest.mark.parametrize(
    ("go", "ours"),
    [
        ("/dev/ttyUSB*", "/dev/ttyUSB*"),
        ("/dev/tty[^0]", "/dev/tty[!0]"),
        ("/dev/**/x", "/dev/*/x"),
        ("/dev/{a,b}", "/dev/[{]a,b}"),
    ],
)
def test_path_patterns(go, ours):
    assert ours == glob(go)


@pytest.mark.parametrize("go", [r"/dev/a\*b", "/dev/[!a]", "/dev/[a{]", "/dev/[[^a]", "/dev/[a", "/dev/["])
def test_path_patterns_without_an_equivalent(go):
    with pytest.raises(NotAPatternError):
        glob(go)
