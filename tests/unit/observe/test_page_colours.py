"""The page's colours, computed from its style: every text can be read on every ground, by day and by night."""

import re
from importlib import resources

import pytest

ENOUGH = 4.5  # what WCAG 2.1 asks for text of usual size
TEXTS = {"ink", "soft", "free", "held", "bad", "warn", "drill"}
GROUNDS = {"ground", "card", "free-wash", "held-wash", "bad-wash", "warn-wash", "drill-wash"}
PAGE = resources.files("vdev.observe").joinpath("page.html").read_text()
STYLE = PAGE.partition("<style>")[2].partition("</style>")[0]
ROOTS = re.findall(r":root {(.*?)}", STYLE, re.DOTALL)


def colours(number):
    """The colours by name: 0 by day, 1 by night."""
    return dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6});", ROOTS[number]))


def luminance(colour):
    """The relative luminance, as WCAG defines it."""
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one, other):
    """The contrast of two colours, from 1 to 21."""
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def test_the_measure_is_right():
    """Black on white is 21, the known grey at the limit is just enough."""
    assert 21.0 == pytest.approx(contrast("#000000", "#ffffff"))
    assert 4.54 == pytest.approx(contrast("#767676", "#ffffff"), abs=0.01)


@pytest.mark.parametrize("number", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("ground", sorted(GROUNDS))
def test_every_text_can_be_read(number, ground):
    """Each colour of text on each ground, whether they meet today or not."""
    found = colours(number)
    assert {} == {
        text: round(contrast(found[text], found[ground]), 2)
        for text in TEXTS
        if contrast(found[text], found[ground]) < ENOUGH
    }


def test_there_are_no_other_colours():
    """What is computed above is all there is: the style names no colour but these, nor do the scripts."""
    assert 2 == len(ROOTS)
    assert colours(0).keys() == colours(1).keys() == TEXTS | GROUNDS | {"line"}
    rest = STYLE
    for root in ROOTS:
        rest = rest.replace(root, "")
    assert [] == re.findall(r"#[0-9a-fA-F]{3,8}\b|rgba?\(|hsla?\(", rest)
    used = re.findall(r"(?<![-\w])color: ([^;}]+)", rest)
    assert {f"var(--{text})" for text in TEXTS} | {"inherit"} >= {each.strip() for each in used}
    assert {*re.findall(r"opacity: *([^;}]+)", STYLE)} == set()
    script = PAGE.partition("<script>")[2]
    assert {"var(--bad)"} == {*re.findall(r'color:([^"]+)"', script)}
    assert [] == re.findall(r'"#[0-9a-fA-F]{3,8}"', script)
