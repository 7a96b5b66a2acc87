"""Configurations that are refused."""

from collections.abc import Iterable

import pytest

from vdev import config
from vdev.errors import ConfigError


def refusals(text: str) -> list[str]:
    """The errors of a text as the file `f`."""
    with pytest.raises(ConfigError) as caught:
        config.load_text(text, "f")
    return [str(problem) for problem in caught.value.problems]


def check_refusals(subtests, cases: Iterable[tuple[str, str]], text: str) -> None:
    """Check that the text with each part in place of `@` has an error with these words."""
    for part, expected in cases:
        with subtests.test(part=part):
            found = refusals(text.replace("@", part, 1))
            assert [each for each in found if expected in each], found
