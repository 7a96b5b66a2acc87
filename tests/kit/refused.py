"""Checks of configurations that are refused."""

from collections.abc import Iterable

import pytest

from vdev import config
from vdev.errors import ConfigError


def refusals(text: str) -> list[str]:
    """Return the errors of a text that is loaded as the file `f`."""
    with pytest.raises(ConfigError) as caught:
        config.load_text(text, "f")
    return [str(problem) for problem in caught.value.problems]


def check_refusals(subtests, cases: Iterable[tuple[str, str]], text: str) -> None:
    """For each case, replace `@` in the text by the first item, and check that an error contains the second one."""
    for part, expected in cases:
        with subtests.test(part=part):
            found = refusals(text.replace("@", part, 1))
            assert [each for each in found if expected in each], found
