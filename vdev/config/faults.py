"""The schema of the section `faults`: failures on demand. Only its empty form exists so far."""

from typing import Annotated

from .types import Rule, Section, Whole


def _rules_problem(value: list[object]) -> tuple[str, str]:
    return ("rules are not known to this version", "leave the list empty") if value else ("", "")


class Faults(Section):
    """Failures on demand."""

    seed: Whole = 0
    """Start of the pseudo-random choices, so that a run can be repeated."""
    rules: Annotated[list[object], Rule(_rules_problem, (("maxItems", 0),))] = []
    """What fails, and when."""
