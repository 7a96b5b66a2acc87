"""Problems as the log and the metrics tell them: each once, when it comes."""

from collections.abc import Collection

import structlog

from ..core.model.problem import Problem
from ..observe.metrics import Metrics

log = structlog.get_logger(__name__)


class ToldProblems:
    """What is told already."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._counted: tuple[Problem, ...] | None = None
        self._logged: frozenset[Problem] = frozenset()  # those of the last configuration

    def count(self, problems: tuple[Problem, ...]) -> None:
        if problems != self._counted:
            self._counted = problems
            for severity in ("error", "warning"):
                self._metrics.problems.labels(severity).set(sum(problem.severity == severity for problem in problems))

    def log(self, problems: tuple[Problem, ...], *, but: Collection[Problem]) -> None:
        """Tell of those that the last configuration did not have, but for some that have an event of their own."""
        before, self._logged = self._logged, frozenset(problems)
        for problem in problems:
            if problem not in before and problem not in but:
                tell("problem in the configuration", problem)


def tell(event: str, problem: Problem) -> None:
    write = log.error if problem.is_error else log.warning
    write(event, where=problem.where, problem=problem.message, hint=problem.hint)
