"""Problems for people: made from exceptions, logged once, and counted by metrics."""

from collections.abc import Collection

import structlog

from ..errors import InvariantBroken, VdevError
from ..model.problem import Problem, error
from ..observe.metrics import Metrics

log = structlog.get_logger(__name__)

_RETRIED = "it is tried again, and everything else goes on"
_REPORT = "this looks like a defect of vdev: please report it with the trace that --log-level debug shows"


class ProblemLog:
    """Counts the problems of the agent, and logs those of the configuration that are new."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._logged: frozenset[Problem] = frozenset()  # the problems of the last configuration

    def count(self, problems: tuple[Problem, ...]) -> None:
        for severity in ("error", "warning"):
            self._metrics.problems.labels(severity).set(sum(problem.severity == severity for problem in problems))

    def log(self, problems: tuple[Problem, ...], *, but: Collection[Problem]) -> None:
        """Log the problems that the last configuration did not have; those in `but` have an event of their own."""
        before, self._logged = self._logged, frozenset(problems)
        for problem in problems:
            if problem not in before and problem not in but:
                log_problem("problem in the configuration", problem)


def log_problem(event: str, problem: Problem) -> None:
    write = log.error if problem.is_error else log.warning
    write(event, where=problem.where, problem=problem.message, hint=problem.hint)


def problem_of(name: str, failed: Exception) -> Problem:
    """Return the problem of an operation that failed; `name` goes before "failed"."""
    hint = _RETRIED if isinstance(failed, VdevError | OSError) else f"{_RETRIED}; {_REPORT}"
    return error("vdev", f"{name} failed: {reason_in_words(failed)}", hint)


def broken_in(failed: Exception) -> InvariantBroken | None:
    """Return the broken invariant that the exception is or that its group contains."""
    if isinstance(failed, ExceptionGroup):
        return next((found for each in failed.exceptions if (found := broken_in(each)) is not None), None)
    return failed if isinstance(failed, InvariantBroken) else None


def reason_in_words(failed: Exception) -> str:
    """Return the text of the exception, with its type if the text is not meant for people."""
    if isinstance(failed, ExceptionGroup):
        return "; ".join(reason_in_words(each) for each in failed.exceptions if isinstance(each, Exception))
    text = str(failed)
    if isinstance(failed, VdevError):
        return text
    if isinstance(failed, OSError) and failed.strerror:
        return f"{failed.strerror}: {failed.filename}" if failed.filename else failed.strerror
    return f"{type(failed).__name__}: {text}" if text else type(failed).__name__
