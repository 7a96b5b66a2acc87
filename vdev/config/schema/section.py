"""What all sections of the schema have in common: known keys in camel case, and errors in words of our own."""

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn, Self

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from pydantic.alias_generators import to_camel
from pydantic_core import InitErrorDetails, PydanticCustomError

from ..document.parser import Plain

PROBLEM = "vdev"
"""The type of pydantic errors whose text is ours."""

MAX_SHOWN = 60
"""Characters of a text that an error quotes."""


class Section(BaseModel):
    """A mapping of the file: its keys are known, in camel case.

    A key without a value counts as absent; `messages.empty_values` reports those that need one.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, use_attribute_docstrings=True)
    may_be_empty: ClassVar[frozenset[str]] = frozenset()  # keys for which nothing is a value

    @property
    def by_key(self) -> dict[str, Any]:
        """The values by key, in the schema's order."""
        return {field.alias or name: getattr(self, name) for name, field in type(self).model_fields.items()}

    @property
    def given(self) -> tuple[str, ...]:
        """The keys with a value other than their default, in the schema's order; false and [] count as absent."""
        defaults = (field.default for field in type(self).model_fields.values())
        values = zip(self.by_key.items(), defaults, strict=True)
        return tuple(key for (key, value), default in values if value is not False and value not in (default, None, []))

    @model_validator(mode="before")
    @classmethod
    def _drop_empty(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        known = _keys(cls)
        return {key: value for key, value in data.items() if value is not None or key not in known}

    def __deepcopy__(self, memo: object = None) -> Self:
        """Itself, for nothing changes it: pydantic asks for a copy of each default that it cannot hash."""
        return self


@functools.cache
def _keys(section: type[Section]) -> frozenset[str]:
    return frozenset(field.alias or name for name, field in section.model_fields.items())


def refuse(message: str, hint: str = "") -> NoReturn:
    """Refuse the value under validation: what is wrong, and what is allowed or to be done."""
    raise PydanticCustomError(PROBLEM, "{message}", {"message": message, "hint": hint})


@dataclass(frozen=True, slots=True)
class Flaw:
    """One of several things wrong with a value: `at` is the place inside it."""

    at: tuple[str | int, ...]
    message: str
    hint: str = ""
    value: object = None


def refuse_all(title: str, faults: Iterable[Flaw]) -> NoReturn:
    """Refuse the value under validation with several errors, each at its own place inside it."""
    details = [
        InitErrorDetails(
            type=PydanticCustomError(PROBLEM, "{message}", {"message": fault.message, "hint": fault.hint}),
            loc=fault.at,
            input=fault.value,
        )
        for fault in faults
    ]
    raise ValidationError.from_exception_data(title, details)


def refuse_items(title: str, items: Iterable[object], problem_of: Callable[[object], str]) -> None:
    """Refuse a list, each item at its place for which `problem_of` returns a text."""
    flaws = [Flaw((place,), text, value=item) for place, item in enumerate(items) if (text := problem_of(item))]
    if flaws:
        refuse_all(title, flaws)


def described(value: object) -> str:
    """A value in an error's words: `the number 0451`, `the string 'x'`, `a list`."""
    if value is None:
        return "nothing"
    if isinstance(value, (list, tuple, dict)):
        return "a mapping" if isinstance(value, dict) else "a list"
    if isinstance(value, str) and not isinstance(value, Plain):
        return f"the string {value[:MAX_SHOWN] + '…' * (len(value) > MAX_SHOWN)!r}"
    text = str(value)
    kind = "boolean" if text.lower() in ("true", "false") else "number"
    return f"the {kind} {text[:MAX_SHOWN]}{'…' * (len(text) > MAX_SHOWN)}"
