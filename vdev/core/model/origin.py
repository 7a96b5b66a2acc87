"""Where the value of an option came from when it was not the file: the command line or the environment."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Override:
    """A value that stands over what the file says.

    `value` is the text as given, a number, a boolean, or a list of texts; `source` names it: `flag --mig-strategy`,
    `env MIG_STRATEGY`.
    """

    value: str | int | bool | tuple[str, ...]
    source: str
