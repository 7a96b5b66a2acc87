"""`Section`, the base class of all mappings in the file, and functions for validators that refuse values.

An unquoted scalar that YAML reads as a number or boolean is a `Plain`, so that scalar types can check it.
"""

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, NoReturn, Self, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    InstanceOf,
    ModelWrapValidatorHandler,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic.fields import FieldInfo
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import PydanticCustomError

from .problem import MAX_LISTED, KeyPath, Where, did_you_mean, either, listed
from .template import Template

PROBLEM = "vdev"
"""The type of pydantic errors with a text from vdev."""

MAX_QUOTED = 60
"""Maximum number of characters that an error quotes from a text."""


class Plain(str):
    """The text of an unquoted scalar that YAML reads as a number or a boolean."""

    __slots__ = ()


NO_VALUE = object()
"""Marks a key without a value in the file."""


_Value = TypeVar("_Value")
Resolved = Annotated[SkipJsonSchema[_Value], Field(validation_alias="\0", exclude=True)]
"""A field that is no key of the file: `config` sets it from other files and keys. A file has no key `\\0`."""


class Section(BaseModel):
    """A mapping in the file, with a fixed set of keys in camel case.

    A key without a value counts as absent, unless `config.pipeline` sets it to NO_VALUE, which every type refuses.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, use_attribute_docstrings=True)

    @property
    def by_key(self) -> dict[str, Any]:
        """The values by key, in the schema's order."""
        return {key: getattr(self, name) for key, name in _names(type(self)).items()}

    @property
    def written(self) -> dict[str, Any]:
        """The values in the file, by key."""
        return {key: getattr(self, name) for key, name in _names(type(self)).items() if name in self.model_fields_set}

    @property
    def given(self) -> tuple[str, ...]:
        """The keys whose value is not the default, in the schema's order.

        False and an empty list count as absent.
        """
        defaults = (field.default for field in fields_of(type(self)).values())
        values = zip(self.by_key.items(), defaults, strict=True)
        return tuple(
            key for (key, value), default in values if value is not False and value not in (default, None, [], ())
        )

    @model_validator(mode="before")
    @classmethod
    def _drop_empty(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        known = fields_of(cls)
        return {key: value for key, value in data.items() if value is not None or key not in known}

    def over(self, base: Self) -> Self:
        """Return `base`, overridden with the values that are set here."""
        return base.model_copy(update={name: getattr(self, name) for name in self.model_fields_set})

    def only(self, is_kept: Callable[["Placed"], bool]) -> Self:
        """Return the section without the items of its lists, and of sections below, that `is_kept` refuses."""
        update: dict[str, object] = {}
        for name, value in self:
            if isinstance(value, Section):
                update[name] = value.only(is_kept)
            elif isinstance(value, tuple):
                update[name] = tuple(each for each in value if not isinstance(each, Placed) or is_kept(each))
        return self.model_copy(update=update)

    def __deepcopy__(self, memo: object = None) -> Self:
        """Return self, because sections are immutable and pydantic deep-copies each default that it cannot hash."""
        return self


class FileMapping(dict[str, Any]):
    """A mapping in a file, with its place."""

    where = Where()


class Placed(Section):
    """A list item that stores its place in the file, for problems that are found later."""

    where: Resolved[InstanceOf[Where]] = Where()
    """The place in the file; empty for an item that is built in code."""

    @model_validator(mode="wrap")
    @classmethod
    def _keep_place(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        made = handler(data)
        return made.model_copy(update={"where": data.where}) if isinstance(data, FileMapping) else made

    def __eq__(self, other: object) -> bool:
        """Compare items without their places, so that a moved item is unchanged."""
        if not isinstance(other, Placed) or self.where.for_nvidia != other.where.for_nvidia:
            return False
        return {**self.__dict__, "where": other.where} == other.__dict__

    @property
    def for_nvidia(self) -> bool:
        """Whether the file is for NVIDIA's plugin, which ignores unknown values."""
        return self.where.for_nvidia


@functools.cache
def fields_of(section: type[Section]) -> Mapping[str, FieldInfo]:
    """Return the fields by the keys that the mapping may have."""
    return {key: section.model_fields[name] for key, name in _names(section).items()}


@functools.cache
def _names(section: type[Section]) -> Mapping[str, str]:
    """Return the names of the fields by their keys in the file."""
    return {field.alias or name: name for name, field in section.model_fields.items() if not field.exclude}


def templates(value: object, path: KeyPath = ()) -> Iterator[tuple[KeyPath, Template]]:
    """Yield every template in the value with its keys."""
    inner: Iterable[tuple[Any, object]] = ()
    match value:
        case Template():
            yield path, value
        case Section():
            inner = value.written.items()
        case dict():
            inner = value.items()
        case list() | tuple():
            inner = enumerate(value)
    for key, each in inner:
        yield from templates(each, (*path, key))


def refuse(message: str, hint: str = "") -> NoReturn:
    """Raise an error for the value under validation. `hint` is what is allowed, or what to do."""
    raise PydanticCustomError(PROBLEM, "{message}", {"message": message, "hint": hint})


def described(value: object) -> str:
    """Describe a value in an error: `the number 0451`, `the string 'x'`, `a list`."""
    if value is None or value is NO_VALUE:
        return "nothing"
    if isinstance(value, (list, tuple, dict)):
        return "a mapping" if isinstance(value, dict) else "a list"
    if isinstance(value, str) and not isinstance(value, Plain):
        return f"the string {value[:MAX_QUOTED] + '…' * (len(value) > MAX_QUOTED)!r}"
    text = str(value)
    kind = "boolean" if text.lower() in ("true", "false") else "number"
    return f"the {kind} {text[:MAX_QUOTED]}{'…' * (len(text) > MAX_QUOTED)}"


def unlisted(value: object, words: Sequence[str]) -> tuple[str, str]:
    """Return the message for a value that is not an allowed word, and a hint with the nearest word."""
    near = did_you_mean(str(value), words) if isinstance(value, str) else ""
    if len(words) > MAX_LISTED:
        hint = listed(words, near, lead="expected one of", command="vdev schema")
    else:
        hint = f"{near} expected {either(words)}".lstrip()
    return f"{described(value)} is not allowed here", hint
