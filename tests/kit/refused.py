"""Configurations that are refused."""

import pytest

from vdev import config
from vdev.errors import ConfigError


def refusals(text: str) -> list[str]:
    """The errors of a text as the file `f`."""
    with pytest.raises(ConfigError) as caught:
        config.load_text(text, "f")
    return [str(problem) for problem in caught.value.problems]
