"""An output that stands in for another one until something asks for that, with which it is imported and made."""

import asyncio
from collections.abc import Collection
from pathlib import Path
from typing import Generic, TypeVar

from ...core.decide import Plan
from ...core.model.problem import Problem
from ..outputs.base import Output

_Made = TypeVar("_Made", bound=Output)


class Late(Output, Generic[_Made]):
    """What it tells is what the other one tells, once that is there."""

    def __init__(self) -> None:
        self.made: _Made | None = None
        self._begun = asyncio.Event()

    def _begin(self, made: _Made) -> None:
        self.made = made
        self._begun.set()

    async def _there(self) -> _Made:
        """The other one, from when it is made on."""
        await self._begun.wait()
        assert self.made is not None
        return self.made

    def unprepared(self, plan: Plan) -> Collection[str]:
        """As the other one does."""
        return self.made.unprepared(plan) if self.made is not None else ()

    def listed(self, plan: Plan) -> None:
        """As the other one does."""
        if self.made is not None:
            self.made.listed(plan)

    def recheck(self, changed: frozenset[str] = frozenset()) -> bool:
        """As the other one does."""
        return self.made is not None and self.made.recheck(changed)

    @property
    def toolless(self) -> frozenset[str]:
        """Those of the other one."""
        return self.made.toolless if self.made else frozenset()

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Those of the other one."""
        return self.made.problems if self.made else ()

    @property
    def directories(self) -> frozenset[Path]:
        """Those of the other one."""
        return self.made.directories if self.made else frozenset()

    @property
    def again_at(self) -> float | None:
        """When the other one wants to be settled again."""
        return self.made.again_at if self.made else None
