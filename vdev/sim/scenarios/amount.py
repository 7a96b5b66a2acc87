"""How many of something a scenario expects: a number, at least a number, or what was remembered."""

from dataclasses import dataclass
from enum import Enum
from typing import assert_never


class Meaning(Enum):
    """How an amount is compared."""

    EXACTLY = "exactly"
    AT_LEAST = "atLeast"
    REMEMBERED = "remembered"
    LESS = "lessThan"
    NOT_LESS = "atLeast remembered"


@dataclass(frozen=True, slots=True)
class Amount:
    """An expected number. `count` means nothing where the amount refers to what was remembered."""

    count: int = 0
    meaning: Meaning = Meaning.EXACTLY

    @property
    def refers(self) -> bool:
        """Whether something must have been remembered."""
        return self.meaning in (Meaning.REMEMBERED, Meaning.LESS, Meaning.NOT_LESS)

    def met(self, seen: int, remembered: int) -> bool:
        """Whether what is seen is what is expected."""
        match self.meaning:
            case Meaning.EXACTLY:
                return seen == self.count
            case Meaning.AT_LEAST:
                return seen >= self.count
            case Meaning.REMEMBERED:
                return seen == remembered
            case Meaning.LESS:
                return seen < remembered
            case Meaning.NOT_LESS:
                return seen >= remembered
            case _:
                assert_never(self.meaning)

    def in_words(self, remembered: int) -> str:
        """As a message says it."""
        match self.meaning:
            case Meaning.EXACTLY:
                return str(self.count)
            case Meaning.AT_LEAST:
                return f"at least {self.count}"
            case Meaning.REMEMBERED:
                return f"{remembered} as remembered"
            case Meaning.LESS:
                return f"less than the remembered {remembered}"
            case Meaning.NOT_LESS:
                return f"at least the remembered {remembered}"
            case _:
                assert_never(self.meaning)
