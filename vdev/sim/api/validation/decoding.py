"""An object as the server understands what was sent: each field of its type, and only fields that there are."""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from ...objects.amounts import exact
from .types import STRUCTURES, Fields

_TOP: Fields = {"apiVersion": "s", "kind": "s", "metadata": "Metadata"}
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d([.,]\d+)?(Z|[+-]\d\d:\d\d)")
_MICRO_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}(Z|[+-]\d\d:\d\d)")
_LIKE_A_QUANTITY = r"^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$"
_NAMES = {dict: "object", list: "array", str: "string", bool: "bool", int: "number", float: "number"}
_INDEX = re.compile(r"\[\d+\]")
_SIZES = {"i": 64, "w": 32}
_NOTHING: Mapping[str, Any] = {"s": "", "q": "0"}


class NoObject(Exception):
    """What was sent cannot be an object of its kind."""


def decoded(kind: str, document: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The object without fields that are null, and the fields that it cannot have, which it has no more.

    A kind that `STRUCTURES` does not have may have any. Raises NoObject.
    """
    known = STRUCTURES.get(kind)
    fields = {name: _TOP.get(name, "?") for name in document} if known is None else {**_TOP, **known}
    reader = _Reader()
    return reader.structure(kind, fields, document, ""), reader.unknown


class _Reader:
    def __init__(self) -> None:
        self.unknown: list[str] = []

    def structure(self, name: str, fields: Fields, value: Mapping[str, Any], at: str) -> dict[str, Any]:
        """An object or a part of one; `name` is that of its Go type."""
        found = {}
        for key, each in value.items():
            inside = f"{at}.{key}" if at else key
            if (type_ := fields.get(key)) is None:
                self.unknown.append(inside)
            elif each is not None:
                found[key] = self._value(type_, each, inside, f"{name}.{_INDEX.sub('', inside)}")
        return found

    def _value(self, type_: str, value: Any, at: str, where: str) -> Any:
        """A value of this type; null as an item of a list or a map is one of no amount."""
        if type_ in ("x", "?"):
            return value
        if value is None:
            return _NOTHING.get(type_, {})
        if type_[0] == "[":
            items = _is(list, value, f"[]{_go(type_[1:-1])}", where)
            return [self._value(type_[1:-1], each, f"{at}[{index}]", where) for index, each in enumerate(items)]
        if type_[0] == "{":
            members = _is(dict, value, f"map[string]{_go(type_[1:-1])}", where)
            return {key: self._value(type_[1:-1], each, f"{at}.{key}", where) for key, each in members.items()}
        if fields := STRUCTURES.get(type_):
            return self.structure(type_, fields, _is(dict, value, f"v1.{type_}", where), at)
        return _SIMPLE[type_](value, where)


def _go(type_: str) -> str:
    """The name that Go has for the type of an item."""
    return {"s": "string", "q": "resource.Quantity"}.get(type_, f"v1.{type_}")


def _is(wanted: type, value: Any, name: str, where: str) -> Any:
    if type(value) is not wanted:
        given = _NAMES.get(type(value), type(value).__name__)
        raise NoObject(f"json: cannot unmarshal {given} into Go struct field {where} of type {name}")
    return value


def _whole(bits: int) -> Callable[[Any, str], Any]:
    def whole(value: Any, where: str) -> Any:
        if type(value) is float or (type(value) is int and not -(2 ** (bits - 1)) <= value < 2 ** (bits - 1)):
            number = json.dumps(value)
            raise NoObject(f"json: cannot unmarshal number {number} into Go struct field {where} of type int{bits}")
        return _is(int, value, f"int{bits}", where)

    return whole


def _quantity(value: Any, _where: str) -> Any:
    text = value.strip() if isinstance(value, str) else value
    if exact(text) is None:
        if isinstance(text, str) and re.fullmatch(_LIKE_A_QUANTITY, text):
            raise NoObject("unable to parse quantity's suffix")
        raise NoObject(f"quantities must match the regular expression '{_LIKE_A_QUANTITY}'")
    return text


def _time(pattern: re.Pattern[str], form: str) -> Callable[[Any, str], Any]:
    def time(value: Any, where: str) -> Any:
        if not pattern.fullmatch(text := _is(str, value, "string", where)):
            raise NoObject(f'parsing time {json.dumps(text)} as "{form}": cannot parse {json.dumps(text)}')
        return text

    return time


_SIMPLE: Mapping[str, Callable[[Any, str], Any]] = {
    "s": lambda value, where: _is(str, value, "string", where),
    "b": lambda value, where: _is(bool, value, "bool", where),
    "q": _quantity,
    "t": _time(_TIME, "2006-01-02T15:04:05Z07:00"),
    "m": _time(_MICRO_TIME, "2006-01-02T15:04:05.000000Z07:00"),
    **{name: _whole(bits) for name, bits in _SIZES.items()},
}
